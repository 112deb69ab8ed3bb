//! Temporary folder of a test.

use std::ops::Deref;
use std::path::{Path, PathBuf};

/// Temporary folder of a test, removed on drop.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Creates an empty folder for the test `name`.
    pub(crate) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-notify-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("enough space");
        Self(folder)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
