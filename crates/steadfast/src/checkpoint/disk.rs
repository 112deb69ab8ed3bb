//! Storage of a checkpoint's bytes.

use std::fmt::{self, Debug};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::lock::{Lock, private, with_suffix};

/// Storage of a checkpoint. It is opened again after each fault.
pub(super) trait Disk: Send + Sync {
    /// Opens the current contents.
    fn open(&self) -> io::Result<Medium>;

    /// Renames a file with unreadable contents, so that the storage is empty.
    fn set_aside(&self) -> io::Result<()>;
}

/// A locked file.
pub(super) struct LockedFile {
    path: PathBuf,
    _lock: Lock,
}

impl LockedFile {
    pub(super) fn at(path: &Path, lock: Lock) -> Self {
        Self { path: path.to_owned(), _lock: lock }
    }
}

impl Disk for LockedFile {
    fn open(&self) -> io::Result<Medium> {
        let file = private().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        // An existing file may have been created with other permissions. Objects may hold confidential data.
        #[cfg(unix)]
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let backend = FileBackend::new(file).map_err(io::Error::other)?;
        Ok(Medium(Box::new(backend)))
    }

    fn set_aside(&self) -> io::Result<()> {
        std::fs::rename(&self.path, with_suffix(&self.path, ".unreadable"))
    }
}

/// A file whose changes fail if `fails` returns true, for fault tests.
pub(super) struct Failing {
    pub(super) file: LockedFile,
    pub(super) fails: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Disk for Failing {
    fn open(&self) -> io::Result<Medium> {
        Ok(Medium(Box::new(FailingMedium { medium: self.file.open()?, fails: self.fails.clone() })))
    }

    fn set_aside(&self) -> io::Result<()> {
        self.file.set_aside()
    }
}

struct FailingMedium {
    medium: Medium,
    fails: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl FailingMedium {
    fn full(&self) -> io::Result<()> {
        if (self.fails)() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Debug for FailingMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailingMedium")
    }
}

impl StorageBackend for FailingMedium {
    fn len(&self) -> io::Result<u64> {
        self.medium.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.full().and_then(|()| self.medium.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.full().and_then(|()| self.medium.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.full().and_then(|()| self.medium.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.medium.close()
    }
}

/// Random-access bytes. The lock is handled by this module, not by the backend.
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
