//! Calls that write: each makes the value of its object one more, until it is as high as it is to be. Each write leads to the
//! next call.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;

/// What all objects begin with.
const FIRST: u64 = 1;

/// How far the writing is.
#[derive(Default)]
pub(crate) struct Writing {
    /// How often each object is written.
    times: u64,
    maps: OnceLock<Api<ConfigMap>>,
    has_begun: AtomicBool,
    /// The objects that a call has seen as they are to be in the end.
    ended: Mutex<HashSet<String>>,
    another: Notify,
}

impl Writing {
    pub(crate) fn new(times: u64) -> Self {
        Self { times, ..Self::default() }
    }

    /// Writes are made by `client`.
    pub(crate) fn by(&self, client: impl FnOnce() -> kube::Client) {
        if self.times > 0 {
            // A client that nobody needs would be memory that no controller takes.
            drop(self.maps.set(Api::namespaced(client(), "default")));
        }
    }

    /// From here on calls write.
    pub(crate) fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
    }

    /// What a call does.
    pub(crate) async fn call(&self, map: &ConfigMap) -> kube::Result<()> {
        let Some(maps) = self.maps.get().filter(|_| self.has_begun.load(Ordering::Acquire)) else { return Ok(()) };
        let value = map.data.as_ref().and_then(|data| data.get("value")?.parse().ok()).unwrap_or(FIRST);
        let name = map.metadata.name.as_deref().unwrap_or_default();
        if value < FIRST + self.times {
            let patch = Patch::Merge(json!({ "data": { "value": (value + 1).to_string() } }));
            maps.patch(name, &PatchParams::default(), &patch).await?;
        } else if self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned()) {
            self.another.notify_one();
        }
        Ok(())
    }

    /// Waits until so many objects are as they are to be in the end.
    pub(crate) async fn ended(&self, objects: usize) {
        while self.ended.lock().unwrap_or_else(PoisonError::into_inner).len() < objects {
            self.another.notified().await;
        }
    }
}
