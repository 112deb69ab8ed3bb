//! The embedded history as a backend: the part of the history that one replica has seen.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::time::timeout;

use super::{Backend, ChangeBatch, ChangesQuery, ListPage, ListQuery, WatchPosition};
use crate::resources::{GroupResource, Registry, ServedResource};
use crate::status::Status;
use crate::storage::{Cache, Change, ObjectKey, ReadSource, State, Store};

/// The embedded history, as one replica serves it.
#[derive(Debug)]
pub(crate) struct HistoryBackend {
    store: Arc<Store>,
    replica: usize,
    /// Maximum time that a request waits for a frozen store.
    request_timeout: Duration,
}

impl HistoryBackend {
    pub(crate) fn new(store: Arc<Store>, replica: usize, request_timeout: Duration) -> Self {
        Self { store, replica, request_timeout }
    }

    fn cache<T>(&self, read: impl FnOnce(&Cache) -> T) -> T {
        self.store.read(|state| read(&state.caches[self.replica]))
    }
}

impl Backend for HistoryBackend {
    fn registry(&self) -> Registry {
        self.store.read(|state| state.registry.clone())
    }

    fn resource(&self, name: &GroupResource) -> Option<Arc<ServedResource>> {
        self.store.read(|state| state.registry.get(name).cloned())
    }

    fn newest_revision(&self) -> u64 {
        self.store.read(State::revision)
    }

    fn cached_revision(&self) -> u64 {
        self.cache(|cache| cache.applied_revision)
    }

    fn oldest_revision(&self) -> u64 {
        self.store.read(State::compacted)
    }

    fn confirm_newest_revision(&self) -> BoxFuture<'_, Result<(), Status>> {
        // A frozen store blocks reads that need etcd. Reads from the cache still succeed.
        let until_thawed = self.store.until(|state| state.caches[self.replica].frozen_at.is_none());
        timeout(self.request_timeout, until_thawed).map(|waited| waited.map_err(|_| Status::etcd_timeout())).boxed()
    }

    fn object<'a>(
        &'a self,
        resource: &'a ServedResource,
        key: &'a ObjectKey,
        revision: u64,
    ) -> BoxFuture<'a, Result<Option<Arc<Change>>, Status>> {
        let found = self.store.read(|state| state.object_at(resource.storage_resource(), key, revision).cloned());
        ready(Ok(found)).boxed()
    }

    fn list<'a>(&'a self, query: ListQuery<'a>) -> BoxFuture<'a, Result<ListPage, Status>> {
        let page = self.store.read(|state| {
            let all = state.objects_at(query.resource.storage_resource(), query.namespace, query.start, query.revision);
            ListPage::select(all, query.limit, query.selector)
        });
        ready(Ok(page)).boxed()
    }

    fn resume(&self, resource: &ServedResource, revision: u64, repeated: usize) -> Result<WatchPosition, Status> {
        self.store.read(|state| {
            let cache = &state.caches[self.replica];
            if revision < cache.window_start {
                return Err(Status::too_old_resource_version(revision, cache.window_start));
            }
            // The bookmark floor includes changes that exist already, even if this watch does not receive them.
            let bookmark_floor = state.last_change(resource.storage_resource(), cache.applied_revision).max(revision);
            Ok(WatchPosition {
                after_revision: state.revision_before(resource.storage_resource(), revision, repeated),
                bookmark_floor,
            })
        })
    }

    fn restarts(&self) -> u64 {
        self.cache(|cache| cache.restarts)
    }

    fn changes(&self, query: &ChangesQuery<'_>) -> ChangeBatch {
        self.store.read(|state| {
            // A watch that is too slow ends, as at a real server. Its resumption then receives `410`.
            if state.has_forgotten(query.after_revision) {
                let cursor = query.after_revision;
                return ChangeBatch { has_ended: true, changes: Vec::new(), cursor, remaining: 0 };
            }
            let cache = &state.caches[self.replica];
            let last_revision = match query.source {
                ReadSource::Cache => cache.applied_revision,
                ReadSource::Etcd => cache.frozen_at.unwrap_or(state.revision()),
            };
            let name = query.resource.storage_resource();
            // A changed definition is served as a new resource. Streams of the previous one end.
            let served = state.registry.get(name);
            let is_same_definition =
                served.is_some_and(|current| !current.is_custom || Arc::ptr_eq(current, query.resource));
            let must_end = cache.restarts != query.restarts || !is_same_definition;
            let (mut changes, remaining) = state.changes(name, query.after_revision, last_revision, query.limit);
            // Without further changes, the cursor includes revisions of other resources, which bookmarks then report.
            let cursor =
                if remaining == 0 { last_revision } else { changes.last().map_or(last_revision, |last| last.revision) };
            // Dropped changes move the cursor too: the client must not receive them later.
            changes.retain(|change| !cache.is_dropped(change.revision));
            // Streams of a removed resource end after they have delivered the last objects.
            ChangeBatch { has_ended: must_end && changes.is_empty(), changes, cursor, remaining }
        })
    }

    fn store(&self) -> Result<&Store, Status> {
        Ok(&self.store)
    }
}
