//! Reconciles that write: each increments the value of its object up to a limit, and its write triggers the next
//! reconcile.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;

/// Initial value of all objects.
const INITIAL_VALUE: u64 = 1;

/// Progress of the writes.
#[derive(Default)]
pub(crate) struct Writing {
    /// Number of writes per object.
    writes_per_object: u64,
    maps: OnceLock<Api<ConfigMap>>,
    has_started: AtomicBool,
    /// Objects that a reconcile has seen with the final value.
    finished_objects: Mutex<HashSet<String>>,
    object_finished: Notify,
}

impl Writing {
    pub(crate) fn new(writes_per_object: u64) -> Self {
        Self { writes_per_object, ..Self::default() }
    }

    /// Sets the client for the writes.
    pub(crate) fn set_client(&self, client: impl FnOnce() -> kube::Client) {
        if self.writes_per_object > 0 {
            // An unused client would distort the memory measurement.
            drop(self.maps.set(Api::namespaced(client(), "default")));
        }
    }

    /// Enables the writes of subsequent reconciles.
    pub(crate) fn start(&self) {
        self.has_started.store(true, Ordering::Release);
    }

    /// Runs one reconcile.
    pub(crate) async fn reconcile(&self, map: &ConfigMap) -> kube::Result<()> {
        let Some(maps) = self.maps.get().filter(|_| self.has_started.load(Ordering::Acquire)) else { return Ok(()) };
        let value = map.data.as_ref().and_then(|data| data.get("value")?.parse().ok()).unwrap_or(INITIAL_VALUE);
        let name = map.metadata.name.as_deref().unwrap_or_default();
        // The patch has no precondition. A reconcile on an outdated cache writes an old value again, and the server
        // then reports no change.
        if value < INITIAL_VALUE + self.writes_per_object {
            let patch = Patch::Merge(json!({ "data": { "value": (value + 1).to_string() } }));
            maps.patch(name, &PatchParams::default(), &patch).await?;
        } else if self.finished_objects.lock().insert(name.to_owned()) {
            self.object_finished.notify_one();
        }
        Ok(())
    }

    /// Waits until this number of objects has the final value.
    pub(crate) async fn wait_for_objects(&self, objects: usize) {
        while self.finished_objects.lock().len() < objects {
            self.object_finished.notified().await;
        }
    }
}
