//! Caches that survive a restart of the process: one file for many informers.
//!
//! | module | content |
//! |---|---|
//! | `lock` | lock of the file, with the identity of its holder |
//! | `disk` | storage of the bytes: a file, or a failing disk in tests |
//! | `partition_header` | header of an informer's partition: server, cluster, format and row count |
//! | `database` | the file as partitions with checksummed rows, written in one transaction at a time |
//! | `written_states` | stored state of a partition, also after a transaction with an uncertain result |
//! | `counts` | statistics of writes |
//! | `write_queue` | queue of the writers of one file |
//! | `cluster` | identity of a server's cluster |
//! | `partition` | partition of one informer: difference between the stored and the cached state |
//! | `writer` | background task that writes pending changes in batches |

mod cluster;
mod counts;
mod database;
mod disk;
mod lock;
mod partition;
mod partition_header;
#[cfg(test)]
mod torn;
mod write_queue;
mod writer;
mod written_states;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::Lazy;
use steadfast_core::checkpoint::RowEncodings;

use crate::cache_storage::CacheStorage;
use crate::connection::Connection;
use crate::error::CheckpointUnsupported;
use crate::resource::Collection;
use crate::scope::Scope;
use database::CheckpointDatabase;
use disk::{Disk, Failing, LockedFile};
use lock::Lock;
use partition::PartitionStorage;
use partition_header::Terms;
use write_queue::WriteQueue;

pub use counts::CheckpointStats;

/// A file in which informers store their caches across restarts of the process.
///
/// An informer that is built with a [checkpoint](crate::InformerBuilder::checkpoint) has its cache immediately after a
/// restart. The cache is in doubt until the server has confirmed it. The watch resumes at the stored version without a
/// list, if the server still has that version. Otherwise the informer lists, and compares the list with the stored
/// cache.
///
/// One file serves all informers of a program that use one server. Only one process can use a file at a time. Writes
/// run in the background, in batches of 50 ms, and delay no caller. The last changes before a crash can therefore be
/// missing; the server sends them again. A file that is damaged, or of another format or cluster, is not used. The
/// diagnostic [`NotRestored`](crate::Diagnostic::NotRestored) contains the reason.
///
/// Cheap to clone. The file stays open while a handle exists or an informer writes to it.
#[derive(Clone)]
pub struct Checkpoint {
    queue: Arc<WriteQueue>,
}

impl Checkpoint {
    /// Opens or creates the file at `path`, readable by the current user only.
    ///
    /// The lock file next to it has the suffix `.lock` and contains the identity of its holder. A file that cannot be
    /// read is renamed with the suffix `.unreadable`, and a new file is created.
    ///
    /// # Errors
    ///
    /// Returns an error if another process holds the file, or if the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_on(path.as_ref(), |file| Box::new(file))
    }

    /// Opens the file on a disk that fails whenever `fails` returns true.
    pub(crate) fn open_failing(
        path: &Path,
        fails: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, CheckpointError> {
        Self::open_on(path, |file| Box::new(Failing { file, fails: Arc::new(fails) }))
    }

    fn open_on(path: &Path, disk: impl FnOnce(LockedFile) -> Box<dyn Disk>) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Io { path: path.to_owned(), source };
        let lock = match Lock::take(path).map_err(failed)? {
            Ok(lock) => lock,
            Err(holder) => return Err(CheckpointError::Held { path: path.to_owned(), holder }),
        };
        let database = CheckpointDatabase::open(disk(LockedFile::at(path, lock))).map_err(failed)?;
        if let Some(reason) = &database.unreadable {
            tracing::warn!(checkpoint = %path.display(), why = %reason, "cannot read the checkpoint; the file is renamed to *.unreadable, and a new file is created");
        }
        Ok(Self { queue: WriteQueue::new(path.display().to_string(), database) })
    }

    /// Returns the statistics of writes to the file.
    pub fn stats(&self) -> CheckpointStats {
        self.queue.stats()
    }

    /// Waits until all other handles are dropped and all informers of the file have ended. Their changes are then
    /// written, and the file is unlocked.
    pub(crate) fn until_released(self) -> impl Future<Output = ()> + Send + 'static {
        let mut released = self.queue.released();
        drop(self);
        async move {
            // No value is sent: the wait ends when the queue is dropped.
            while released.changed().await.is_ok() {}
        }
    }

    /// Returns the path of the file, for display.
    pub(crate) fn display_path(&self) -> &str {
        self.queue.display_path()
    }

    /// Claims the partition of the informer of `collection` in `scope`.
    ///
    /// # Errors
    ///
    /// Returns an error if another informer holds the partition.
    pub(crate) fn claim<T>(
        &self,
        connection: &Connection,
        collection: &Collection,
        scope: &Scope,
        managed_fields: bool,
    ) -> Result<Box<dyn CacheStorage<Lazy<T>>>, CheckpointUnsupported>
    where
        T: Resource + DeserializeOwned + Send + Sync + 'static,
    {
        // The scope is part of the name: informers of one resource with different selectors store different objects.
        let name = format!("{}?{}", collection.path(), scope.query());
        let claim = self.queue.claim(&name).ok_or(CheckpointUnsupported::InUse)?;
        let metadata = T::metadata_api();
        let terms = Terms {
            server: connection.server().to_owned(),
            // A stored cache without managed fields, or of metadata alone, must not be restored into a cache of
            // complete objects.
            form: format!("metadata: {metadata}, managed fields: {managed_fields}"),
        };
        let expected_kind = collection.expected_kind(metadata);
        let encodings = RowEncodings::of(&expected_kind.api_version, &expected_kind.kind);
        Ok(Box::new(PartitionStorage::new(self.queue.clone(), claim, terms, encodings, connection.clone())))
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({})", self.queue.display_path())
    }
}

/// Reason that a checkpoint cannot be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Another process, or this one, already holds the file.
    #[error("the checkpoint {} is in use by {holder}; end that process, or choose another file; one file is enough for all informers of a program", .path.display())]
    Held {
        /// Path of the file.
        path: PathBuf,
        /// Identity of the holder, from the lock file.
        holder: String,
    },
    /// The operating system returned an error.
    #[error("the checkpoint {} cannot be opened: {source}; choose a file in a folder that this program can write to", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

debug_as_message!(CheckpointError);
