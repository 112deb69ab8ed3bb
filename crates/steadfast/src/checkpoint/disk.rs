//! Where the bytes of a checkpoint lie.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::lock::{Lock, beside, private};

/// What a checkpoint is written to; opened again after each fault.
pub(super) trait Disk: Send + Sync {
    /// The bytes, as they are.
    fn open(&self) -> io::Result<Medium>;

    /// Puts away what cannot be read, and begins with nothing.
    fn set_aside(&self) -> io::Result<()>;
}

/// A file, and the lock on it.
pub(super) struct File {
    path: PathBuf,
    _lock: Lock,
}

impl File {
    pub(super) fn at(path: &Path, lock: Lock) -> Self {
        Self { path: path.to_owned(), _lock: lock }
    }
}

impl Disk for File {
    fn open(&self) -> io::Result<Medium> {
        let file = private().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        // It may have been made by others.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Medium(Box::new(backend)))
    }

    fn set_aside(&self) -> io::Result<()> {
        std::fs::rename(&self.path, beside(&self.path, ".unreadable"))
    }
}

/// Bytes to be read and written at any place. Locks are ours.
#[derive(Debug)]
pub(super) struct Medium(pub(super) Box<dyn StorageBackend>);

impl StorageBackend for Medium {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
