//! Files of the state folder with access for the owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Returns options that open or create a file with access for the owner only. An existing file keeps its mode.
pub(crate) fn private_options() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a file atomically, with access for the owner only.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let staged = file.with_file_name(name);
    // A staged file of an earlier run may have other permissions, which reopening would keep.
    match fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut staged_file = private_options().write(true).create_new(true).open(&staged)?;
    staged_file.write_all(text.as_bytes())?;
    drop(staged_file);
    fs::rename(&staged, file)
}
