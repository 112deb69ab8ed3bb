//! Waits for conditions on the cache.

use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decode::Cacheable;
use steadfast_core::store::{Lookup, Snapshot};
use steadfast_core::{Object, ObjectKey};

use crate::error::WaitError;
use crate::informer::{Informer, WaitFailure};
use crate::shared::Shared;

impl<K: Cacheable> Informer<K> {
    /// Waits until `condition` returns a value for the cache, and returns that value.
    ///
    /// The condition is called for the first complete list and for each later state of the cache. A missing object
    /// therefore never means an incomplete cache. Of changes in quick succession, the condition sees only the last. The
    /// condition runs in the caller's task, and is called again only after the cache has changed.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # async fn example(pods: &steadfast::Informer<Pod>) -> Result<(), steadfast::WaitError> {
    /// let is_empty = |cache: &steadfast::Snapshot<Pod>| cache.namespace("shop").next().is_none().then_some(());
    /// pods.until(is_empty, Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, with the last input and its freshness, or if the informer is
    /// stopped.
    pub async fn until<T>(
        &self,
        condition: impl FnMut(&Snapshot<K>) -> Option<T>,
        deadline: Duration,
    ) -> Result<T, WaitError> {
        self.wait_for_condition(condition, deadline, "the condition", summary).await
    }

    /// Waits until `condition` returns true for the object at `key`, or for `None` if the object does not exist.
    /// Returns that object or `None`.
    ///
    /// The wait works like [`until`](Self::until). While the object's newest state cannot be decoded, the condition
    /// does not hold.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use steadfast::ObjectKey;
    /// # async fn example(pods: &steadfast::Informer<Pod>) -> Result<(), steadfast::WaitError> {
    /// let web = ObjectKey::namespaced("shop", "web-0");
    /// let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
    /// let running = |pod: Option<&Pod>| pod.and_then(phase).as_deref() == Some("Running");
    /// let pod = pods.until_object(&web, running, Duration::from_secs(60)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, with the object's last state and its freshness, or if the informer
    /// is stopped.
    pub async fn until_object(
        &self,
        key: &ObjectKey,
        mut condition: impl FnMut(Option<&K>) -> bool,
        deadline: Duration,
    ) -> Result<Option<Object<K>>, WaitError> {
        let found = |snapshot: &Snapshot<K>| {
            let object = match snapshot.get(key.namespace(), key.name()) {
                Lookup::Found(object) => Some(object),
                Lookup::Absent => None,
                Lookup::Undecodable { .. } => return None,
            };
            condition(object.as_deref()).then_some(object)
        };
        let describe = |snapshot: &Snapshot<K>| match snapshot.entry(key.namespace(), key.name()) {
            None => format!("no {key} among {}", summary(snapshot)),
            Some(entry) if entry.is_tainted() => {
                format!("{key} at version {}, which cannot be decoded", entry.version())
            }
            Some(entry) => format!("{key} at version {}", entry.version()),
        };
        self.wait_for_condition(found, deadline, &format!("the condition on {key}"), describe).await
    }

    /// Waits until `condition` returns a value for a state of the cache. Errors contain `target`, and the last
    /// snapshot as `describe` returns it.
    async fn wait_for_condition<T>(
        &self,
        mut condition: impl FnMut(&Snapshot<K>) -> Option<T>,
        deadline: Duration,
        target: &str,
        describe: impl Fn(&Snapshot<K>) -> String,
    ) -> Result<T, WaitError> {
        let started_at = self.shared().environment.now();
        let mut last_snapshot = None;
        let found = self.wait_until(deadline, |shared| {
            // Changes of the freshness wake the wait too. The condition runs only once per snapshot.
            let snapshot = changed_snapshot(shared, last_snapshot.as_ref())?;
            let found = condition(&snapshot);
            last_snapshot = Some(snapshot);
            found
        });
        let failure = match found.await {
            Ok(found) => return Ok(found),
            Err(failure) => failure,
        };
        let (resource, target) = (self.name().to_owned(), target.to_owned());
        Err(match failure {
            WaitFailure::Stopped => WaitError::Stopped { resource, target },
            WaitFailure::Expired => WaitError::Unmet {
                resource,
                target,
                waited: self.shared().environment.now().since(started_at),
                seen: last_snapshot
                    .map_or_else(|| "nothing, because the cache is not synced".to_owned(), |last| describe(&last)),
                state: self.freshness(),
            },
        })
    }
}

/// Returns the snapshot of a synced cache, if it differs from `last_snapshot`.
fn changed_snapshot<K: Cacheable>(
    shared: &Shared<K>,
    last_snapshot: Option<&Arc<Snapshot<K>>>,
) -> Option<Arc<Snapshot<K>>> {
    let snapshot = shared.is_synced().then(|| shared.snapshot())?;
    (!last_snapshot.is_some_and(|last| Arc::ptr_eq(last, &snapshot))).then_some(snapshot)
}

fn summary<K>(snapshot: &Snapshot<K>) -> String {
    match snapshot.version() {
        Some(version) => format!("{} objects at version {version}", snapshot.len()),
        None => format!("{} objects", snapshot.len()),
    }
}
