//! Search for a program in `PATH`.

use std::ffi::OsString;
use std::path::Path;

/// Checks that `program` exists in `path`. A name with a slash is relative to `folder`.
///
/// # Errors
///
/// Returns an error that names the missing program.
pub(super) fn check_program(program: &str, folder: &Path, path: Option<OsString>) -> Result<(), String> {
    if program.contains(std::path::MAIN_SEPARATOR) || program.contains('/') {
        let file = folder.join(program);
        return match file.metadata() {
            Ok(metadata) if metadata.is_file() && is_executable(&metadata) => Ok(()),
            Ok(metadata) if metadata.is_file() => Err(format!("the program {program:?} is not executable")),
            Ok(_) => Err(format!("{program:?} is not a program")),
            Err(error) => Err(format!("cannot read the program {program:?}: {error}")),
        };
    }
    let path = path.unwrap_or_default();
    let is_program = |file: &Path| file.metadata().is_ok_and(|metadata| metadata.is_file() && is_executable(&metadata));
    // Windows appends extensions and searches additional folders, so absence cannot be determined.
    if cfg!(windows) || std::env::split_paths(&path).any(|folder| is_program(&folder.join(program))) {
        return Ok(());
    }
    Err(format!("no program {program:?} in PATH"))
}

#[cfg(unix)]
fn is_executable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

#[cfg(not(unix))]
fn is_executable(_: &std::fs::Metadata) -> bool {
    true
}
