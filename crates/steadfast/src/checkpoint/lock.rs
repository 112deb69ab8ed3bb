//! Exclusive use of a checkpoint: a lock file next to it, which names the holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process;

/// Lock of a checkpoint, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    /// Process that has taken the lock.
    process: u32,
}

impl Lock {
    /// Locks the checkpoint at `path`, or returns the identity of the holder.
    pub(super) fn take(path: &Path) -> io::Result<Result<Self, String>> {
        let mut file =
            private().read(true).write(true).create(true).truncate(false).open(with_suffix(path, ".lock"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.take(256).read_to_string(&mut holder)?;
                return Ok(Err(if holder.is_empty() {
                    "another program".to_owned()
                } else {
                    holder.trim().to_owned()
                }));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Written under the lock: the file may still name the previous holder. The system releases the lock when the
        // process ends, so a crash leaves no stale lock.
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", this_program())?;
        Ok(Ok(Self { file, process: process::id() }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A forked child has the lock in common with this process and would keep it, so the end of the file's use is not
        // enough. The child itself must not unlock the file of its parent.
        if self.process == process::id() {
            // After an error the lock ends with the last process.
            let _ = self.file.unlock();
        }
    }
}

fn this_program() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    format!("process {} ({})", process::id(), name.as_deref().unwrap_or("a program without a name"))
}

/// Returns the path of the checkpoint at `path` with `suffix` appended.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns options that create files readable by the current user only.
pub(super) fn private() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has modes"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
