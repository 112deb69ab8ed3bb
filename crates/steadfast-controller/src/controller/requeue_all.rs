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
        let (request, mut requests) = watch::channel(None);
        let handle = RequeueHandle(Arc::new(request));
        // Diagnostic callbacks cannot be removed, so this callback must not keep the controller alive.
        let weak_request = Arc::downgrade(&handle.0);
        informer.on_diagnostic(move |diagnostic| {
            // The first list needs no requeue, because each of its objects is an event.
            if let (Diagnostic::Relisted { held: Some(_), version, .. }, Some(request)) =
                (diagnostic, weak_request.upgrade())
            {
                request.send_replace(version.clone());
            }
        });
        let (requeue_all, informer, factory) = (self.clone(), informer.clone(), factory.clone());
        let watch_task = async move {
            while requests.changed().await.is_ok() {
                // The channel keeps only the newest request: one pass serves all requests so far.
                let version = requests.borrow_and_update().clone();
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
#[derive(Clone)]
pub(super) struct RequeueHandle(Arc<watch::Sender<Option<ResourceVersion>>>);

impl RequeueHandle {
    pub(super) fn request(&self) {
        self.0.send_replace(None);
    }
}
