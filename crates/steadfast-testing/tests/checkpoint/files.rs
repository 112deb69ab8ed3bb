//! Temporary folder of a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Temporary folder that is removed on drop.
pub(crate) struct Folder {
    path: PathBuf,
    files: AtomicU64,
}

impl Folder {
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("checkpoint-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, files: AtomicU64::new(0) })
    }

    /// Returns an unused path in the folder.
    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(format!("{}.checkpoint", self.files.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
