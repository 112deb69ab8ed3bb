//! Source of the objects that the HTTP front end serves.
//!
//! The front end implements the protocol: routes, options, pages, watches, bookmarks, encodings, forms and faults. A
//! [`Backend`] stores objects and their revisions. The embedded history is one backend; a recording of a cluster or a
//! mirror of another API server can be another one.

mod history;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::resources::{GroupResource, Registry, ServedResource};
use crate::selector::Selector;
use crate::status::Status;
use crate::storage::{Change, ObjectKey, ReadSource, Store};

pub(crate) use history::HistoryBackend;

/// Source of the objects that one replica serves.
///
/// Revisions rise with each change, for all resources together. A backend raises the signal of the cluster after each
/// change of its state. The front end waits for this signal until [`cached_revision`](Self::cached_revision) rises or
/// new changes exist.
///
/// Reads of objects return futures, since a backend may read a disk or another server. All other methods return
/// immediately.
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Returns all served resources.
    fn registry(&self) -> Registry;

    /// Returns a served resource. If the resource changes, a new `Arc` replaces the old one, and the watches of the old
    /// one end.
    fn resource(&self, name: &GroupResource) -> Option<Arc<ServedResource>>;

    /// Returns the newest revision.
    fn newest_revision(&self) -> u64;

    /// Returns the revision of the cache. Reads that accept any revision (`resourceVersion=0`) return the state at this
    /// revision, and watches deliver the changes up to this revision.
    fn cached_revision(&self) -> u64;

    /// Returns the oldest revision that can be read exactly.
    fn oldest_revision(&self) -> u64;

    /// Waits until [`newest_revision`](Self::newest_revision) includes all writes that ended before the call.
    ///
    /// # Errors
    /// Returns `504` if the revision cannot be confirmed in time.
    fn confirm_newest_revision(&self) -> BoxFuture<'_, Result<(), Status>>;

    /// Returns the state of an object at a revision; `None` if it did not exist.
    ///
    /// # Errors
    /// Returns an error if the object cannot be read.
    fn object<'a>(
        &'a self,
        resource: &'a ServedResource,
        key: &'a ObjectKey,
        revision: u64,
    ) -> BoxFuture<'a, Result<Option<Arc<Change>>, Status>>;

    /// Returns the objects of a collection at a revision, or a page of them.
    ///
    /// # Errors
    /// Returns an error if the collection cannot be read, such as `410` for a revision that was compacted.
    fn list<'a>(&'a self, query: ListQuery<'a>) -> BoxFuture<'a, Result<ListPage, Status>>;

    /// Returns the position of a watch that starts at a revision. The last `repeated` changes before the revision are
    /// delivered again.
    ///
    /// # Errors
    /// Returns `410` if changes after the revision are missing. The front end sends this error within the stream.
    fn resume(&self, resource: &ServedResource, revision: u64, repeated: usize) -> Result<WatchPosition, Status>;

    /// Returns the number of restarts. Watches that started before a restart end.
    fn restarts(&self) -> u64;

    /// Returns the next changes of a resource for a watch.
    fn changes(&self, query: &ChangesQuery<'_>) -> ChangeBatch;

    /// Returns the store for writes.
    ///
    /// # Errors
    /// Returns `405` if the backend is read-only. This is the default.
    fn store(&self) -> Result<&Store, Status> {
        Err(Status::new(
            405,
            "MethodNotAllowed",
            "this server is read-only: it serves the objects of another source, so send writes to that source",
        ))
    }
}

/// Collection, revision and selection of a list.
pub(crate) struct ListQuery<'a> {
    pub(crate) resource: &'a ServedResource,
    /// Namespace; `None` for all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: Option<&'a str>,
    /// First key of the page.
    pub(crate) start: Bound<ObjectKey>,
    pub(crate) revision: u64,
    /// Maximum number of objects; 0 for no limit.
    pub(crate) limit: usize,
    pub(crate) selector: &'a Selector,
}

/// Objects of a list.
#[derive(Debug, Default)]
pub(crate) struct ListPage {
    /// Last change of each selected object, ordered by key.
    pub(crate) objects: Vec<Arc<Change>>,
    /// Key of the last selected object.
    pub(crate) last_key: ObjectKey,
    /// Number of further objects after a full page, selected or not.
    pub(crate) remaining: usize,
}

impl ListPage {
    /// Selects the objects of a page from all objects of a collection at a revision. The objects are ordered by key,
    /// and start at the first key of the query.
    pub(crate) fn select<'a>(
        all: impl Iterator<Item = (&'a ObjectKey, &'a Arc<Change>)>,
        limit: usize,
        selector: &Selector,
    ) -> Self {
        let (mut objects, mut last_key, mut remaining) = (Vec::new(), None, 0);
        for (key, change) in all {
            // The objects after a full page are only counted. They are not checked against the selector, so the next
            // page may be empty.
            if limit > 0 && objects.len() == limit {
                remaining += 1;
                continue;
            }
            if change.object.as_deref().is_some_and(|object| selector.matches(object)) {
                last_key = Some(key);
                objects.push(Arc::clone(change));
            }
        }
        Self { objects, last_key: last_key.cloned().unwrap_or_default(), remaining }
    }
}

/// Start of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchPosition {
    /// Changes above this revision are delivered.
    pub(crate) after_revision: u64,
    /// Revision that bookmarks must exceed.
    pub(crate) bookmark_floor: u64,
}

/// Request of a watch for its next changes.
pub(crate) struct ChangesQuery<'a> {
    /// Resource at the start of the watch.
    pub(crate) resource: &'a Arc<ServedResource>,
    /// The watch cache, or the history itself.
    pub(crate) source: ReadSource,
    /// Only changes above this revision are returned.
    pub(crate) after_revision: u64,
    /// Number of restarts at the start of the watch.
    pub(crate) restarts: u64,
    /// Maximum number of changes.
    pub(crate) limit: usize,
}

/// Changes for a watch.
#[derive(Debug)]
pub(crate) struct ChangeBatch {
    /// Changes in the order of their revisions, of all namespaces.
    pub(crate) changes: Vec<Arc<Change>>,
    /// Revision after which the next batch starts. It includes the changes of other resources.
    pub(crate) cursor: u64,
    /// Number of further changes.
    pub(crate) remaining: usize,
    /// True if the watch must end: its resource has changed, or the backend has restarted.
    pub(crate) has_ended: bool,
}
