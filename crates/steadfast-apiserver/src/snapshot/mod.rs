//! Snapshots: the objects of a server, from which another server continues.
//!
//! | module | responsibility |
//! |---|---|
//! | `encode` | the lines of a file |
//! | `decode` | parses and checks a file |
//! | `checksum` | checksum of the lines |
//! | `error` | errors of a file |

mod checksum;
mod decode;
mod encode;
mod error;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::resources::GroupResource;
pub use error::SnapshotError;

/// First word of an encoded snapshot.
const FORMAT_NAME: &str = "steadfast-apiserver-snapshot";

/// Version of the encoding.
const FORMAT_VERSION: u32 = 1;

/// Live objects of a server with their resource versions, from which another server continues.
///
/// The other server keeps UIDs and resource versions. Its own revisions start at the snapshot's
/// [`start_revision`](Self::start_revision). It has none of the earlier changes: watches and exact reads of earlier
/// revisions receive `410 Expired`. This is the behaviour of a cluster whose etcd was restored by `etcdutl snapshot
/// restore --bump-revision --mark-compacted`.
///
/// ```
/// use serde_json::json;
/// use steadfast_apiserver::{ApiServer, Snapshot};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::builder().in_memory().start().await?;
/// let created = server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))?;
/// let bytes = server.snapshot().encode();
/// server.stop();
///
/// let server = ApiServer::builder().in_memory().snapshot(Snapshot::decode(&bytes)?).start().await?;
/// assert_eq!(server.get("configmaps", "default", "a")?, created);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Snapshot {
    /// Highest revision in use.
    revision: u64,
    start_revision: u64,
    /// Objects in the order of their revisions.
    objects: Vec<StoredObject>,
    mark: ChangeMark,
}

/// Live object of a snapshot.
#[derive(Clone, PartialEq)]
pub(crate) struct StoredObject {
    pub(crate) resource: GroupResource,
    pub(crate) revision: u64,
    pub(crate) object: Arc<Value>,
}

/// Mark of a state of the history, for comparison with a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeMark {
    pub(crate) changes: usize,
    pub(crate) epoch: u32,
}

impl Snapshot {
    pub(crate) fn new(revision: u64, mut objects: Vec<StoredObject>, mark: ChangeMark) -> Self {
        objects.sort_by_key(|stored| stored.revision);
        Self { revision, start_revision: revision, objects, mark }
    }

    /// Raises the start revision to `count` above the highest revision in use.
    ///
    /// A server that continues from this snapshot then reuses none of the next `count` revisions. A program that saves
    /// snapshots reserves more revisions than the server can use until the next save.
    #[must_use]
    pub fn with_reserved_revisions(mut self, count: u64) -> Self {
        self.start_revision = self.revision.max(self.start_revision).saturating_add(count);
        self
    }

    /// Returns the highest revision that the server had used.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the revision at which another server starts. Its first change has the next revision. At least 1.
    pub fn start_revision(&self) -> u64 {
        // 1 is the first revision of etcd.
        self.start_revision.max(self.revision).max(1)
    }

    /// Returns the number of objects.
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn objects(&self) -> &[StoredObject] {
        &self.objects
    }

    pub(crate) fn mark(&self) -> ChangeMark {
        self.mark
    }
}

impl fmt::Debug for Snapshot {
    /// Omits the objects, which may be Secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("revision", &self.revision)
            .field("start_revision", &self.start_revision)
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}
