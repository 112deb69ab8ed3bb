//! Requeue of all keys if the changed keys are unknown.
//!
//! An object may be created and deleted during a relist of a source, so that no event of the source reports the object.
//! A reconcile may still have read the object from another cache. So a relist requeues all keys once, after the known
//! changes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast::environment::SharedEnvironment;
use steadfast::{Cacheable, Diagnostic, Informer, InformerFactory, ObjectKey, ResourceVersion};
use tokio::sync::watch;

use super::lifecycle::Lifecycle;
use super::source_cache::SourceCache;
use crate::workqueue::{Priority, Workqueue};

/// Maximum time to wait for the other caches.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(30);

/// Requeues all keys of a controller's objects. Cheap to clone.
#[derive(Clone)]
pub(super) struct RequeueAll(Arc<Inner>);

struct Inner {
    environment: SharedEnvironment,
    queue: Workqueue<ObjectKey>,
    lifecycle: Lifecycle,
    /// Returns all keys. Empty until the controller watches its objects.
    keys: OnceLock<Box<dyn Fn() -> Vec<ObjectKey> + Send + Sync>>,
}

impl RequeueAll {
    pub(super) fn new(environment: SharedEnvironment, queue: Workqueue<ObjectKey>, lifecycle: Lifecycle) -> Self {
        Self(Arc::new(Inner { environment, queue, lifecycle, keys: OnceLock::new() }))
    }

    /// Sets the caches of the controller's objects.
    pub(super) fn set_caches<K: Cacheable>(&self, caches: &[SourceCache<K>]) {
        let caches = caches.to_vec();
        let keys = move || caches.iter().flat_map(SourceCache::keys).collect();
        drop(self.0.keys.set(Box::new(keys)));
    }

    /// Requeues all keys.
    fn requeue(&self) {
        if let Some(keys) = self.0.keys.get().filter(|_| !self.0.lifecycle.is_stopping()) {
            for key in keys() {
                // Low priority: changed objects precede this full pass.
                self.0.queue.add_with_priority(key, Priority::LOW);
            }
        }
    }

    /// Requeues all keys after each relist of `informer`, and after each request through the returned handle. Waits
    /// first until other caches of `factory` reach the same version.
    pub(super) fn watch_relists<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        factory: &InformerFactory,
    ) -> RequeueHandle {
        let (handle, mut requests) = RequeueHandle::new();
        // Diagnostic callbacks cannot be removed, so this callback must not keep the controller alive.
        let weak_sender = Arc::downgrade(&handle.0);
        informer.on_diagnostic(move |diagnostic| {
            // The first list needs no requeue, because each of its objects is an event.
            if let (Diagnostic::Relisted { held: Some(_), version, .. }, Some(sender)) =
                (diagnostic, weak_sender.upgrade())
            {
                RequeueHandle(sender).request_at(version.as_ref());
            }
        });
        let (requeue_all, informer, factory) = (self.clone(), informer.clone(), factory.clone());
        let weak_sender = Arc::downgrade(&handle.0);
        let watch_task = async move {
            while requests.changed().await.is_ok()
                && let Some(sender) = weak_sender.upgrade()
            {
                // One pass serves all requests so far.
                requests.mark_unchanged();
                let version = RequeueHandle(sender).take_version();
                // The diagnostic of a relist arrives before readers see the new list.
                if let Some(version) = version {
                    drop(informer.wait_for_version(&version, CATCH_UP_TIMEOUT).await);
                }
                // Other caches may lag behind this cache, and reconciles read both.
                drop(factory.wait_for_writes(&informer.seen(), CATCH_UP_TIMEOUT).await);
                requeue_all.requeue();
            }
        };
        self.0.environment.spawn(Box::pin(self.0.lifecycle.clone().until_stopping(watch_task)));
        handle
    }
}

/// Requests a requeue of all keys for one source. Concurrent requests are merged into one.
///
/// The channel contains the version that the cache must reach before the pass.
#[derive(Clone)]
pub(super) struct RequeueHandle(Arc<watch::Sender<Option<ResourceVersion>>>);

impl RequeueHandle {
    fn new() -> (Self, watch::Receiver<Option<ResourceVersion>>) {
        let (sender, requests) = watch::channel(None);
        (Self(Arc::new(sender)), requests)
    }

    /// Requests a pass. The version of a pending request remains.
    pub(super) fn request(&self) {
        self.request_at(None);
    }

    /// Requests a pass after the cache has reached `version`.
    fn request_at(&self, version: Option<&ResourceVersion>) {
        self.0.send_modify(|pending| {
            // Within an epoch, a later list is never older, so its version includes the pending one. After a new epoch
            // only the later version can be reached.
            if version.is_some() {
                *pending = version.cloned();
            }
        });
    }

    /// Returns the version of the pending requests, and removes it. Later passes must not wait for it again.
    fn take_version(&self) -> Option<ResourceVersion> {
        let mut version = None;
        self.0.send_if_modified(|pending| {
            version = pending.take();
            false
        });
        version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_keeps_pending_version() {
        let (handle, mut requests) = RequeueHandle::new();
        let version = |text: &str| ResourceVersion::from(text);
        handle.request_at(Some(&version("7")));
        handle.request();
        assert!(requests.has_changed().expect("a sender"));
        requests.mark_unchanged();
        assert_eq!(handle.take_version(), Some(version("7")));
        assert!(!requests.has_changed().expect("a sender"), "the removal is not a request");
        handle.request();
        assert!(requests.has_changed().expect("a sender"));
        assert_eq!(handle.take_version(), None, "a version applies to one pass");
        handle.request_at(Some(&version("9")));
        handle.request_at(None);
        handle.request_at(Some(&version("12")));
        assert_eq!(handle.take_version(), Some(version("12")));
    }
}
