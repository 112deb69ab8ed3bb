//! Lock that a process holds until its end, even if it is killed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Lock file of this process. The system releases the lock with the process. The file is removed on drop.
#[derive(Debug)]
pub(crate) struct ProcessLock {
    path: PathBuf,
    _file: File,
}

/// Reasons why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Another process holds the lock. Contains its ID, if known.
    Held(Option<u32>),
    /// The lock file cannot be created or locked.
    Failed(io::Error),
}

impl ProcessLock {
    /// Takes the lock of the lock file `path`, which is created if it is missing.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        loop {
            let mut file = open(path).map_err(LockError::Failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held(holder(&mut file))),
                Err(TryLockError::Error(error)) => return Err(LockError::Failed(error)),
            }
            // The previous holder removes the file at its end. The lock of a removed file excludes no other process.
            if is_current(&file, path) {
                let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
                return Ok(Self { path: path.to_owned(), _file: file });
            }
        }
    }
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // Without the check of `is_current`, a waiting process could lock the removed file.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the process ID in a lock file.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(20).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

#[cfg(unix)]
fn is_current(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let (Ok(opened), Ok(current)) = (file.metadata(), fs::metadata(path)) else { return false };
    (opened.dev(), opened.ino()) == (current.dev(), current.ino())
}

#[cfg(not(unix))]
fn is_current(_: &File, _: &Path) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn lock_excludes_until_its_drop() {
        let path = std::env::temp_dir().join(format!("steadfast-lock-{}", std::process::id()));
        let lock = ProcessLock::take(&path).expect("a free lock");
        let Err(LockError::Held(holder)) = ProcessLock::take(&path) else { panic!("the lock is held") };
        assert_eq!(holder, Some(std::process::id()));
        drop(lock);
        assert!(!path.exists());
        // A killed process leaves the file, without a lock.
        fs::write(&path, "4294967295").expect("a writable folder");
        drop(ProcessLock::take(&path).expect("a free lock"));
        assert!(!path.exists());
    }
}
