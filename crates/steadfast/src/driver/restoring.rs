//! Start of an informer with a checkpoint. The cache is available immediately. Handlers wait until the server's cluster
//! is identified as the stored cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::checkpoint::{DeliveryKey, RestoredEntry, SavedDelivery, SavedState};
use steadfast_core::decode::Cacheable;
use steadfast_core::event::StateSource;
use steadfast_core::reflector::{ClusterMatch, Diagnostic, Input};
use steadfast_core::store::Tainted;
use steadfast_core::{Entry, Object, WithSize};

use super::Driver;
use crate::cache_storage::{CacheStorage, ClusterIdentity, RequestedStorage, Restored};
use crate::shared::Shared;

impl<K: Cacheable> Driver<K> {
    /// Sets the storage to restore from and to write to.
    pub(crate) fn with_storage(mut self, storage: RequestedStorage<K>) -> Self {
        let mut storage = storage.claimed();
        if let Some(storage) = &mut storage {
            storage.set_owner(&self.shared);
            self.shared.durable_handlers.enable_storing();
            self.shared.withhold();
        }
        self.storage = storage;
        self
    }

    /// Starts with the restored state, or with the first list. Returns `Some` if the driver must end first.
    pub(super) async fn begin(&mut self) -> Option<bool> {
        let Some(mut storage) = self.storage.take() else {
            self.step(Input::Start);
            return None;
        };
        let restored = self.restore(&mut *storage);
        // Identifies the cluster before the first list, so that data is never stored under the name of a later cluster.
        let mut identity = storage.request_cluster_identity(restored.is_some());
        let current_identity = loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => {
                    if let Some(handlers) = self.execute(command) {
                        return Some(handlers);
                    }
                    self.flush();
                }
                current_identity = &mut identity => break current_identity,
            }
        };
        let (cluster_match, cluster) = match_cluster(restored.as_ref(), current_identity);
        // Pending deliveries of another cluster are about objects that never existed in this cluster.
        if matches!(cluster_match, ClusterMatch::Other(_)) {
            self.shared.durable_handlers.forget();
        }
        storage.start_storing(&self.shared, restored.is_some(), cluster);
        if restored.is_none() {
            self.step(Input::Start);
            return None;
        }
        // In all other cases the first complete list releases the handlers.
        if cluster_match == ClusterMatch::Same {
            self.shared.release();
        }
        self.step(Input::Restart(cluster_match));
        None
    }

    /// Restores the pending deliveries of durable handlers.
    fn restore_pending_deliveries(&mut self, pending_deliveries: Vec<(DeliveryKey, SavedDelivery)>) {
        let (snapshot, mut handlers) = (self.shared.snapshot(), BTreeMap::<String, Vec<_>>::new());
        for (DeliveryKey { handler, key }, pending) in pending_deliveries {
            let outbox = handlers.entry(handler).or_default();
            // A row without an object only states that the handler exists.
            let Some(key) = key else { continue };
            let latest = snapshot.entry(key.namespace(), key.name()).and_then(Entry::last).cloned();
            let first_change = pending.first_change.clone();
            let pending = pending.map(&mut |state| match state {
                SavedState::Cached => latest.clone(),
                SavedState::Separate(raw) => {
                    let WithSize { object, .. } = self.writer.decode(&raw).ok()?;
                    Some(Object::new(raw.identity, object))
                }
            });
            // A pending state that no longer decodes is replaced by the object's current state.
            let mut pending = pending.unwrap_or_default();
            (pending.latest, pending.first_change) = (latest, first_change);
            outbox.push((key, pending));
        }
        let Shared { name, environment, durable_handlers, .. } = &*self.shared;
        for (handler, outbox) in handlers {
            durable_handlers.restore(name, &handler, outbox, environment);
        }
        self.shared.durables_restored();
    }

    /// Restores the stored objects, visible to readers only.
    fn restore(&mut self, storage: &mut dyn CacheStorage<K>) -> Option<Restored> {
        let mut staging = self.shared.edit(|store| store.begin_relist());
        let (writer, mut objects) = (&mut self.writer, 0);
        let kept = storage.restore(&mut |saved| {
            objects += 1;
            match &saved {
                RestoredEntry::Known(raw) => {
                    let decoded: Result<WithSize<K>, _> = writer.decode(raw).map_err(|_| Tainted);
                    staging.put(saved.identity().clone(), decoded);
                }
                RestoredEntry::Unknown(identity, last) => {
                    let last = last.as_ref().and_then(|raw| Some((raw.identity.clone(), writer.decode(raw).ok()?)));
                    staging.put_tainted(identity.clone(), last);
                }
            }
        });
        // The limit may be lower than in the run that wrote the file.
        let exceeds_limit = self.limits.memory.is_some_and(|limit| staging.held_bytes() > limit);
        let restored = match kept {
            Ok(_) if exceeds_limit => Err(Some(Arc::from("the checkpoint is larger than memory_limit"))),
            kept => kept,
        };
        let mut restored = match restored {
            Ok(restored) => restored,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.diagnostics.push(Diagnostic::NotRestored { reason });
                }
                self.flush();
                return None;
            }
        };
        let version = restored.version.clone();
        // Before the publication: the evidence must state doubt when readers first see the restored cache.
        self.reflector.restore(self.shared.environment.now(), version.clone());
        let Self { shared, reflector, .. } = &mut *self;
        let committed = shared.edit(|store| {
            let source = StateSource::Listed { initial: true };
            // Handlers are not notified: they receive the objects after the cluster is identified.
            let committed = store.commit(staging, Some(version.clone()), &source, false, |_| {});
            reflector.set_tainted(store.working().tainted().clone());
            shared.show_restored(store, reflector.evidence());
            committed
        });
        debug_assert!(committed.is_ok(), "an empty store takes any list");
        self.restore_pending_deliveries(std::mem::take(&mut restored.pending_deliveries));
        self.diagnostics.push(Diagnostic::Restored { version, objects });
        self.shared.notify_changed();
        self.flush();
        Some(restored)
    }
}

/// Decides how to start with the restored state on this server, and returns the server's cluster if known.
fn match_cluster(restored: Option<&Restored>, current_identity: ClusterIdentity) -> (ClusterMatch, Option<String>) {
    let before = restored.and_then(|restored| restored.cluster.clone());
    match (before, current_identity) {
        (_, ClusterIdentity::Unknown(reason)) => (ClusterMatch::Unsure(reason), None),
        (Some(before), ClusterIdentity::Cluster(now)) if before == now => (ClusterMatch::Same, Some(now)),
        (Some(_), ClusterIdentity::Cluster(now)) => {
            (ClusterMatch::Other("the checkpoint belongs to another cluster than the server".into()), Some(now))
        }
        (None, ClusterIdentity::Cluster(now)) => {
            let reason = "the checkpoint does not contain the identity of its cluster, which could not be read when the checkpoint was written";
            (ClusterMatch::Unsure(reason.into()), Some(now))
        }
    }
}
