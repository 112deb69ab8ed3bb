//! Waits until a cache contains the writes of a client (C12).

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;
use steadfast_core::store::Snapshot;
use steadfast_core::{Freshness, Instant, ObjectKey, ResourceVersion, Uid};
use tokio::sync::oneshot;

use crate::driver::Command;
use crate::error::WaitError;
use crate::informer::{Informer, PROOF_DELAY, is_at, is_unversioned};
use crate::shared::Shared;
use crate::writes::{Outcome, VERSION_REQUEST_DELAY, Write, Writes};

/// Interval at which a wait verifies that the server still has the awaited version. The server may have been restored
/// from a backup.
const VERSION_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Offset that orders a version request after the response of a write. In virtual time, both can have the same instant.
/// Without the offset, a request of that instant would count as later, even if it was sent before the write.
const ORDERING_OFFSET: Duration = Duration::from_nanos(1);

/// Delay after a failed request.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Time that a cache has to reach the server's version before a proof is requested. If all writes up to that version
/// concern other resources, the cache receives no event. Only a proof then shows that the cache has reached the
/// version.
const PROOF_DELAY_WITHOUT_EVENTS: Duration = Duration::from_millis(100);

/// Deadline of a wait.
#[derive(Clone, Copy)]
struct WaitLimit {
    started_at: Instant,
    end: Instant,
}

impl<K: Cacheable> Informer<K> {
    /// Returns true if the cache contains all of `writes` that match its resource, server and namespace.
    ///
    /// Returns false for writes that need a request to the server. [`wait_for_writes`](Self::wait_for_writes) sends
    /// that request.
    pub fn has_writes(&self, writes: &Writes) -> bool {
        writes.iter().all(|write| self.contains_write(write))
    }

    /// Waits until the cache contains all of `writes` that match its resource, server and namespace.
    ///
    /// The wait includes requests in flight. If a response was lost, or contains no version, the informer requests the
    /// server's current version. A cache that never synced because the server rejects its requests has no data to read,
    /// so the wait skips it. The wait also skips writes that a restored server no longer has.
    ///
    /// # Errors
    ///
    /// Returns an error if `deadline` passes first, if the informer is stopped, or if a version cannot be compared.
    pub async fn wait_for_writes(&self, writes: &Writes, deadline: Duration) -> Result<(), WaitError> {
        let started_at = self.shared().environment.now();
        let limit = WaitLimit { started_at, end: started_at + deadline };
        for write in writes.iter() {
            if !self.contains_write(write) {
                self.wait_for_write(write, limit).await?;
            }
        }
        Ok(())
    }

    /// Returns the version that this cache has reached, as a write. A caller can then wait until other caches of the
    /// resource have reached this version.
    ///
    /// Returns no writes if the cache has no version, or a version that cannot be compared.
    pub fn seen(&self) -> Writes {
        let (origin, mut seen) = (self.origin(), Writes::default());
        if let Some(version) = self.snapshot().version().filter(|version| version.is_ordered()) {
            let write = origin.write(origin.scope.in_namespace(), None, Outcome::Unknown(None));
            write.set_reached_version(version.clone());
            seen.push(Arc::new(write));
        }
        seen
    }

    /// Returns all writes so far, by any client, to the resource and namespace of this cache.
    ///
    /// A new leader uses the result to wait until its caches contain the work of the previous leader. The first
    /// [wait](Self::wait_for_writes) requests the server's version, and ends when the cache has reached that version.
    pub fn written_so_far(&self) -> Writes {
        let mut written = Writes::default();
        written.push(Arc::new(self.origin().anything()));
        written
    }

    fn contains_write(&self, write: &Write) -> bool {
        if !self.origin().concerns(write) || is_empty_and_denied(self.shared()) {
            return true;
        }
        if !self.has_synced() {
            return false;
        }
        let outcome = write.outcome();
        // Before the snapshot, so that the snapshot does not precede the removal.
        let is_removed = match &outcome {
            Outcome::Deleted { uid: Some(uid), .. } => self.shared().removed_objects.contains(uid),
            _ => false,
        };
        let snapshot = self.snapshot();
        let is_past = |version: Option<&ResourceVersion>| {
            version.zip(snapshot.version()).is_some_and(|(version, at)| is_at(at, version))
        };
        match outcome {
            Outcome::Pending => false,
            Outcome::NoEffect => true,
            Outcome::Stored { key, version, labels } => {
                // An object that neither matches the scope nor is cached causes no event.
                let is_unrelated =
                    || !self.origin().may_contain(&key, labels.as_ref()) && !contains_object(&snapshot, &key, None);
                is_past(Some(&version)) || is_unrelated()
            }
            Outcome::Deleted { key, uid, version } => {
                (is_removed || is_past(version.as_ref().or(write.reached_version())))
                    && !contains_object(&snapshot, &key, uid.as_ref())
            }
            Outcome::Unknown(_) => is_past(write.reached_version()),
        }
    }

    async fn wait_for_write(&self, write: &Write, limit: WaitLimit) -> Result<(), WaitError> {
        let shared = self.shared();
        let is_readable = |shared: &Shared<K>| (shared.is_synced() || is_empty_and_denied(shared)).then_some(());
        if self.wait_until(self.remaining(limit), is_readable).await.is_err() {
            return Err(self.wait_error(write, limit));
        }
        if is_empty_and_denied(shared) {
            return Ok(());
        }
        let Some(outcome) = self.within_limit(limit, write.wait_for_outcome()).await else {
            return Err(self.wait_error(write, limit));
        };
        // The cache may have removed the object before the response to its deletion.
        if self.contains_write(write) {
            return Ok(());
        }
        let outcome_known_at = self.shared().environment.now();
        let mut response_lost_at = None;
        let (deleted, version) = match outcome {
            Outcome::Pending | Outcome::NoEffect => return Ok(()),
            Outcome::Stored { version, .. } => (None, Some(version)),
            Outcome::Deleted { key, uid, version } => (Some((key, uid)), version),
            Outcome::Unknown(since) => {
                response_lost_at = since;
                (None, None)
            }
        };
        if is_unversioned(shared) {
            return self.wait_for_list(self.remaining(limit)).await;
        }
        let has_deleted_object = |snapshot: &Snapshot<K>| {
            deleted.as_ref().is_some_and(|(key, uid)| contains_object(snapshot, key, uid.as_ref()))
        };
        // The removal of a cached object proves its deletion. An object that was never cached may be deleted, or not
        // yet listed. After a new epoch the write is void, or included in the list that started the epoch.
        let initial = self.snapshot();
        let (was_cached, epoch) = (has_deleted_object(&initial), initial.epoch());
        drop(initial);
        let proof_delay = if version.is_none() && !was_cached { PROOF_DELAY_WITHOUT_EVENTS } else { PROOF_DELAY };
        let target_version = match version {
            Some(version) => Some(version),
            None if was_cached => None,
            None => Some(self.version_after(write, response_lost_at, limit).await?),
        };
        if let Some(version) = target_version.as_ref().filter(|version| !version.is_ordered()) {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        loop {
            // Checked in each round: the server's versions may turn out to be incomparable during the wait.
            let is_comparable = self.snapshot().version().is_none_or(ResourceVersion::is_ordered);
            if let Some(version) = target_version.as_ref().filter(|_| !is_comparable && !was_cached) {
                return Err(WaitError::Opaque { version: version.to_string() });
            }
            let is_reached = |shared: &Shared<K>| {
                let snapshot = shared.snapshot();
                let at = snapshot.version().zip(target_version.as_ref());
                let is_past = was_cached || at.is_some_and(|(at, version)| is_at(at, version));
                (is_past && !has_deleted_object(&snapshot)) || snapshot.epoch() != epoch
            };
            // The removal of a cached object can appear at any version, so that wait has no minimum version.
            let min_version = target_version.as_ref().filter(|_| !was_cached);
            let (timeout, target) = (self.remaining(limit).min(VERSION_CHECK_INTERVAL), write.to_string());
            match self.wait_with_proofs_after(proof_delay, timeout, target, min_version, is_reached).await {
                Err(WaitError::Deadline { .. }) => {}
                ended => return ended,
            }
            // A response from the last interval is recent enough. Without a response the wait continues, because an
            // unreachable server must not end it.
            let after = (self.shared().environment.now() - VERSION_CHECK_INTERVAL).max(outcome_known_at);
            let newest = self.within_limit(limit, self.server_version_since(after)).await.flatten().flatten();
            if newest
                .zip(target_version.as_ref())
                .is_some_and(|(newest, target_version)| newest.is_older_than(target_version))
            {
                write.make_void();
                return Ok(());
            }
            if self.remaining(limit).is_zero() {
                return Err(self.wait_error(write, limit));
            }
        }
    }

    /// Returns the server's version from a request that was sent after `write`. If the response of the write was lost,
    /// this request is sent [`VERSION_REQUEST_DELAY`] after `response_lost_at`.
    async fn version_after(
        &self,
        write: &Write,
        response_lost_at: Option<Instant>,
        limit: WaitLimit,
    ) -> Result<ResourceVersion, WaitError> {
        let grace_period = async {
            if let Some(response_lost_at) = response_lost_at.filter(|_| write.reached_version().is_none()) {
                self.shared().environment.sleep_until(response_lost_at + VERSION_REQUEST_DELAY).await;
            }
        };
        if self.within_limit(limit, grace_period).await.is_none() {
            return Err(self.wait_error(write, limit));
        }
        loop {
            if let Some(version) = write.reached_version() {
                return Ok(version.clone());
            }
            // One request serves all waiters for the write.
            let after = response_lost_at.map_or_else(
                || self.shared().environment.now(),
                |response_lost_at| response_lost_at + VERSION_REQUEST_DELAY,
            );
            if let Some(Some(Some(version))) = self.within_limit(limit, self.server_version_since(after)).await {
                write.set_reached_version(version);
                continue;
            }
            // A stopped informer sends no request. Its caller may continue with another informer.
            if self.shared().is_stopped() {
                return Err(self.wait_error(write, limit));
            }
            let environment = &self.shared().environment;
            if self.within_limit(limit, environment.sleep_until(environment.now() + RETRY_DELAY)).await.is_none() {
                return Err(self.wait_error(write, limit));
            }
        }
    }

    /// Returns the server's version from a request that was sent after `after`. Returns `None` if no response is
    /// available, and `Some(None)` if the server sends no versions.
    async fn server_version_since(&self, after: Instant) -> Option<Option<ResourceVersion>> {
        let (sender, reply) = oneshot::channel();
        self.command(Command::Newest(after + ORDERING_OFFSET, sender));
        reply.await.ok()
    }

    /// Returns the result of `work`, or `None` at the deadline.
    async fn within_limit<T>(&self, limit: WaitLimit, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => Some(done),
            () = self.shared().environment.sleep_until(limit.end) => None,
        }
    }

    fn remaining(&self, limit: WaitLimit) -> Duration {
        limit.end.since(self.shared().environment.now())
    }

    fn wait_error(&self, write: &Write, limit: WaitLimit) -> WaitError {
        let (resource, target, state) = (self.name().to_owned(), write.to_string(), self.freshness());
        if self.shared().is_stopped() {
            return WaitError::Stopped { resource, target };
        }
        WaitError::Deadline { resource, target, waited: self.shared().environment.now().since(limit.started_at), state }
    }
}

/// Returns the change in an event of `informer` as a write, to wait until other caches of the resource contain it.
pub(crate) fn writes_of_event<K: Cacheable>(informer: &Informer<K>, event: &Event<K>) -> Writes {
    let object = event.object();
    let key = object.key();
    // A cache that has reached this version contains the change. The outcome is `Stored` even for a deletion: an object
    // that left this scope may still exist in another scope.
    let version = match event {
        Event::Deleted { version: Some(version), .. } => version.clone(),
        // The server reported no version for the deletion. The deletion is not newer than the current version of this
        // cache.
        Event::Deleted { .. } => match informer.snapshot().version() {
            Some(version) => version.clone(),
            None => return Writes::default(),
        },
        _ => object.version().clone(),
    };
    let outcome = Outcome::Stored { key: key.clone(), version, labels: object.labels().map(Cow::into_owned) };
    let mut writes = Writes::default();
    writes.push(Arc::new(informer.origin().write(key.namespace(), Some(key.name()), outcome)));
    writes
}

/// Returns true if the cache never synced and the server rejects its requests.
fn is_empty_and_denied<K: Cacheable>(shared: &Shared<K>) -> bool {
    !shared.is_synced() && matches!(shared.freshness(), Freshness::Failed(_))
}

/// Returns true if the cache contains the object, with this UID if it is known.
fn contains_object<K>(snapshot: &Snapshot<K>, key: &ObjectKey, uid: Option<&Uid>) -> bool {
    let entry = snapshot.entry(key.namespace(), key.name());
    entry.is_some_and(|entry| uid.is_none_or(|uid| entry.uid().is_same(uid)))
}
