//! Caches that survive their program's death: one file for many informers.
//!
//! | room | what it is |
//! |---|---|
//! | `lock` | who holds the file, and a lock that says so |
//! | `disk` | where the bytes lie: a file, or in tests a disk that fails |
//! | `head` | what is said of one informer's part of the file: of which server, cluster and form it is, and how much there is |
//! | `book` | the file as parts with rows, checked when they are read; one transaction for all that is written together |
//! | `lineage` | which state of a part the file has, also after a transaction of which nobody knows what became of it |
//! | `counts` | what has been written |
//! | `desk` | who writes to one file |
//! | `cluster` | asks a server of which cluster it is |
//! | `section` | the part of one informer: what differs between what was written and what is held |
//! | `writer` | writes, in batches, what is due; nobody waits for it |

mod book;
mod cluster;
mod counts;
mod desk;
mod disk;
mod head;
mod lineage;
mod lock;
mod section;
debug_as_message!(CheckpointError);

#[cfg(test)]
mod torn;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use steadfast_core::Lazy;
use steadfast_core::checkpoint::Forms;

use crate::connection::Connection;
use crate::error::Unkept;
use crate::keepsake::Keepsake;
use crate::resource::Collection;
use crate::scope::Scope;
use book::Book;
use desk::Desk;
use disk::{Disk, Failing, File};
use head::Terms;
use lock::Lock;
use section::Kept;

pub use counts::CheckpointCounts;

/// A file in which informers keep their caches beyond their program's life.
///
/// An informer that is built with [one](crate::InformerBuilder::checkpoint) has its cache at once when the program starts anew,
/// in doubt until the server has confirmed it, and watches on from where it was: no list, where the server still has that
/// version. Where it has not, a list is compared with what was kept.
///
/// One file does for all informers of a program that look at one server, and is for one program at a time. It is written in the background, changes
/// of 50 ms at once; nobody waits for it, so that what was held in the last moments may be missing in it. That is no harm: the
/// server tells it again. What cannot be used (a damaged file, one of another version or cluster) is not used, and a
/// [note](crate::Note::NotRestored) says why.
///
/// Cheap to clone. The file is open as long as one is held, or an informer writes to it.
#[derive(Clone)]
pub struct Checkpoint {
    desk: Arc<Desk>,
}

impl Checkpoint {
    /// Opens the file at `path`, or makes it, for this user alone to read. Beside it is a file of the same name with `.lock`
    /// behind it, which says who holds it.
    ///
    /// What is there and cannot be read is set aside, as `.unreadable`, and a new file is begun.
    ///
    /// # Errors
    ///
    /// Where another program holds it, or the system does not let it be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_on(path.as_ref(), |file| Box::new(file))
    }

    /// The same on a disk that fails whenever `fails` says so.
    pub(crate) fn open_failing(
        path: &Path,
        fails: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self, CheckpointError> {
        Self::open_on(path, |file| Box::new(Failing { file, fails: Arc::new(fails) }))
    }

    fn open_on(path: &Path, disk: impl FnOnce(File) -> Box<dyn Disk>) -> Result<Self, CheckpointError> {
        let failed = |source| CheckpointError::Io { path: path.to_owned(), source };
        let lock = match Lock::take(path).map_err(failed)? {
            Ok(lock) => lock,
            Err(holder) => return Err(CheckpointError::Held { path: path.to_owned(), holder }),
        };
        let book = Book::open(disk(File::at(path, lock))).map_err(failed)?;
        Ok(Self { desk: Desk::new(path.display().to_string(), book) })
    }

    /// What has been written, and what could not be.
    pub fn counts(&self) -> CheckpointCounts {
        self.desk.counts()
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> &str {
        self.desk.place()
    }

    /// Takes the part of the file that an informer of these objects has.
    ///
    /// # Errors
    ///
    /// Where another one has it.
    pub(crate) fn claim<T>(
        &self,
        connection: &Connection,
        collection: &Collection,
        scope: &Scope,
        managed_fields: bool,
    ) -> Result<Box<dyn Keepsake<Lazy<T>>>, Unkept>
    where
        T: Resource + DeserializeOwned + Send + Sync + 'static,
    {
        let name = format!("{}?{}", collection.path(), scope.query());
        let claim = self.desk.claim(&name).ok_or(Unkept::InUse)?;
        let metadata = T::metadata_api();
        let terms = Terms {
            server: connection.server().to_owned(),
            form: format!("metadata: {metadata}, managed fields: {managed_fields}"),
        };
        let wanted = collection.wanted(metadata);
        let forms = Forms::of(&wanted.api_version, &wanted.kind);
        Ok(Box::new(Kept::new(self.desk.clone(), claim, terms, forms, connection.clone())))
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checkpoint({})", self.desk.place())
    }
}

/// Why a checkpoint cannot be opened.
#[derive(thiserror::Error)]
pub enum CheckpointError {
    /// Another program holds it, or this one does already.
    #[error("the checkpoint {} is held by {holder}: end that, or name another file; one file does for all informers of a program", .path.display())]
    Held {
        /// Which file.
        path: PathBuf,
        /// Who holds it, as it says itself.
        holder: String,
    },
    /// The system does not let it be opened.
    #[error("the checkpoint {} cannot be opened: {source}; name a file in a folder that this program may write to", .path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
