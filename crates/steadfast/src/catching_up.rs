//! Waits for what was written through a client (C12).

use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decode::Kept;
use steadfast_core::event::Event;
use steadfast_core::store::Snapshot;
use steadfast_core::{Freshness, Instant, ObjectKey, ResourceVersion, Uid};
use tokio::sync::oneshot;

use crate::driver::Command;
use crate::error::WaitError;
use crate::informer::{Informer, UNAIDED_WAIT, is_at, is_unversioned};
use crate::shared::Shared;
use crate::writes::{GRACE, Outcome, Write, Writes};

/// So long is waited before the server is asked whether it still has what is waited for: it may have been restored from a
/// backup since.
const STEP: Duration = Duration::from_secs(5);

/// What was asked in the very moment in which a write was answered may have been asked before it: where the clock is a test's, much
/// happens in one.
const NEXT_MOMENT: Duration = Duration::from_nanos(1);

/// The time from a question that was not answered to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a cache may take to reach the version of the server before a proof is sought. No event may lie between the two,
/// for another resource may have been written: then no wait helps.
const UNAIDED_BY_EVENTS: Duration = Duration::from_millis(100);

/// How long is waited.
#[derive(Clone, Copy)]
struct Limit {
    begun: Instant,
    end: Instant,
}

impl<K: Kept> Informer<K> {
    /// Whether the cache has all of `writes` that it is going to hold: those of this resource, on this server, in this scope's
    /// namespace. Those that take a question to the server to find out it is not known to have:
    /// [`wait_for_writes`](Self::wait_for_writes) asks.
    pub fn has_writes(&self, writes: &Writes) -> bool {
        writes.iter().all(|write| self.has(write))
    }

    /// Waits until the cache has all of `writes` that it is going to hold: those of this resource, on this server, in this
    /// scope's namespace.
    ///
    /// A request is waited for that is under way. Where its answer was lost, or tells no version, the server is asked which
    /// version it has come to. A cache that was never synced, and is refused, holds nothing that could be read: it is not
    /// waited for. Neither is what a restored server has no more.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, the informer is stopped, or a version cannot be compared.
    pub async fn wait_for_writes(&self, writes: &Writes, deadline: Duration) -> Result<(), WaitError> {
        let begun = self.shared().environment.now();
        let limit = Limit { begun, end: begun + deadline };
        for write in writes.iter() {
            if !self.has(write) {
                self.wait_for_write(write, limit).await?;
            }
        }
        Ok(())
    }

    /// What this cache has seen so far, as a write: for other caches of the resource to be waited for that have come as far.
    /// Nothing, where it has no version, or one that cannot be compared.
    pub fn seen(&self) -> Writes {
        let (origin, mut seen) = (self.origin(), Writes::default());
        if let Some(version) = self.snapshot().version().filter(|version| version.is_ordered()) {
            let write = origin.write(origin.scope.in_namespace(), None, Outcome::Unknown(None));
            write.reach(version.clone());
            seen.push(Arc::new(write));
        }
        seen
    }

    /// Whatever anybody may have written so far to the resource that this cache looks at, in its namespace: for who takes over from
    /// another, to wait until caches have what that one has done.
    ///
    /// A cache has it once it has come to the version that the server tells when it is asked after this; nobody asks before it is
    /// [waited for](Self::wait_for_writes).
    pub fn written_so_far(&self) -> Writes {
        let mut written = Writes::default();
        written.push(Arc::new(self.origin().anything()));
        written
    }

    fn has(&self, write: &Write) -> bool {
        if !self.origin().concerns(write) || is_refused(self.shared()) {
            return true;
        }
        if !self.has_synced() {
            return false;
        }
        let snapshot = self.snapshot();
        let is_past = |version: Option<&ResourceVersion>| {
            version.zip(snapshot.version()).is_some_and(|(version, at)| is_at(at, version))
        };
        match write.outcome() {
            Outcome::Awaited => false,
            Outcome::Nothing => true,
            Outcome::Held { key, version, labels } => {
                // One that does not belong here, and is not here, makes no event.
                let is_strange = || !self.origin().may_hold(&key, labels.as_ref()) && !holds(&snapshot, &key, None);
                is_past(Some(&version)) || is_strange()
            }
            Outcome::Gone { key, uid, version } => {
                is_past(version.as_ref().or(write.reached())) && !holds(&snapshot, &key, uid.as_ref())
            }
            Outcome::Unknown(_) => is_past(write.reached()),
        }
    }

    async fn wait_for_write(&self, write: &Write, limit: Limit) -> Result<(), WaitError> {
        let shared = self.shared();
        let settled = |shared: &Shared<K>| (shared.is_synced() || is_refused(shared)).then_some(());
        if self.wait_until(self.left(limit), settled).await.is_err() {
            return Err(self.unmet(write, limit));
        }
        if is_refused(shared) {
            return Ok(());
        }
        let Some(outcome) = self.before(limit, write.ended()).await else { return Err(self.unmet(write, limit)) };
        let known = self.shared().environment.now();
        let mut lost = None;
        let (gone, told) = match outcome {
            Outcome::Awaited | Outcome::Nothing => return Ok(()),
            Outcome::Held { version, .. } => (None, Some(version)),
            Outcome::Gone { key, uid, version } => (Some((key, uid)), version),
            Outcome::Unknown(since) => {
                lost = since;
                (None, None)
            }
        };
        if is_unversioned(shared) {
            return self.wait_for_list(self.left(limit)).await;
        }
        let holds = |snapshot: &Snapshot<K>| gone.as_ref().is_some_and(|(key, uid)| holds(snapshot, key, uid.as_ref()));
        // What is held and then no more is gone. What is not held may be gone, or not be there yet. In another epoch the
        // write is no more, or the list that began it has it.
        let begun = self.snapshot();
        let (was_held, epoch) = (holds(&begun), begun.epoch());
        drop(begun);
        let unaided = if told.is_none() && !was_held { UNAIDED_BY_EVENTS } else { UNAIDED_WAIT };
        let wanted = match told {
            Some(version) => Some(version),
            None if was_held => None,
            None => Some(self.reached(write, lost, limit).await?),
        };
        if let Some(version) = wanted.as_ref().filter(|version| !version.is_ordered()) {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        loop {
            // It may be found out while this waits that the server's versions are in no order.
            let is_comparable = self.snapshot().version().is_none_or(ResourceVersion::is_ordered);
            if let Some(version) = wanted.as_ref().filter(|_| !is_comparable && !was_held) {
                return Err(WaitError::Opaque { version: version.to_string() });
            }
            let reached = |shared: &Shared<K>| {
                let snapshot = shared.snapshot();
                let at = snapshot.version().zip(wanted.as_ref());
                let is_past = was_held || at.is_some_and(|(at, version)| is_at(at, version));
                (is_past && !holds(&snapshot)) || snapshot.epoch() != epoch
            };
            // What was held and is to go may be gone in any.
            let after = wanted.as_ref().filter(|_| !was_held);
            let (step, target) = (self.left(limit).min(STEP), write.to_string());
            match self.wait_unaided_for(unaided, step, target, after, reached).await {
                Err(WaitError::Deadline { .. }) => {}
                ended => return ended,
            }
            // As far as that is known: a server that is not reached decides nothing.
            let after = (self.shared().environment.now() - STEP).max(known);
            let newest = self.before(limit, self.newest(after)).await.flatten().flatten();
            if newest.zip(wanted.as_ref()).is_some_and(|(newest, wanted)| newest.is_older_than(wanted)) {
                write.make_void();
                return Ok(());
            }
            if self.left(limit).is_zero() {
                return Err(self.unmet(write, limit));
            }
        }
    }

    /// What the server had come to when it was asked after `write`: a while after its answer was `lost`.
    async fn reached(&self, write: &Write, lost: Option<Instant>, limit: Limit) -> Result<ResourceVersion, WaitError> {
        let settled = async {
            if let Some(lost) = lost.filter(|_| write.reached().is_none()) {
                self.shared().environment.sleep_until(lost + GRACE).await;
            }
        };
        if self.before(limit, settled).await.is_none() {
            return Err(self.unmet(write, limit));
        }
        loop {
            if let Some(version) = write.reached() {
                return Ok(version.clone());
            }
            // One question serves all who ask after the write.
            let after = lost.map_or_else(|| self.shared().environment.now(), |lost| lost + GRACE);
            if let Some(Some(Some(version))) = self.before(limit, self.newest(after)).await {
                write.reach(version);
                continue;
            }
            let environment = &self.shared().environment;
            if self.before(limit, environment.sleep_until(environment.now() + PAUSE)).await.is_none() {
                return Err(self.unmet(write, limit));
            }
        }
    }

    /// The version that the server had come to when it was asked later than at `after`, if it has one; nothing where that is not
    /// to be had.
    async fn newest(&self, after: Instant) -> Option<Option<ResourceVersion>> {
        let (asks, answer) = oneshot::channel();
        self.command(Command::Newest(after + NEXT_MOMENT, asks));
        answer.await.ok()
    }

    /// What comes of `work`, unless the time is up first.
    async fn before<T>(&self, limit: Limit, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => Some(done),
            () = self.shared().environment.sleep_until(limit.end) => None,
        }
    }

    fn left(&self, limit: Limit) -> Duration {
        limit.end.since(self.shared().environment.now())
    }

    fn unmet(&self, write: &Write, limit: Limit) -> WaitError {
        let (resource, target, state) = (self.name().to_owned(), write.to_string(), self.freshness());
        if self.shared().is_stopped() {
            return WaitError::Stopped { resource, target };
        }
        WaitError::Deadline { resource, target, waited: self.shared().environment.now().since(limit.begun), state }
    }
}

/// What an event of `informer` tells, as a write: for other caches of the resource to be waited for that have it.
pub(crate) fn told_by<K: Kept>(informer: &Informer<K>, event: &Event<K>) -> Writes {
    let object = event.object();
    let key = object.key();
    // Who has come past that version has seen it. It may hold the object rightly, where that has left the other one's scope.
    let version = match event {
        Event::Deleted { version: Some(version), .. } => version.clone(),
        // Nobody said in which version it ended: in one that this cache has come to.
        Event::Deleted { .. } => match informer.snapshot().version() {
            Some(version) => version.clone(),
            None => return Writes::default(),
        },
        _ => object.version().clone(),
    };
    let outcome = Outcome::Held { key: key.clone(), version, labels: object.labels().map(Cow::into_owned) };
    let mut told = Writes::default();
    told.push(Arc::new(informer.origin().write(key.namespace(), Some(key.name()), outcome)));
    told
}

/// Whether there is nothing to be read, and will not be.
fn is_refused<K: Kept>(shared: &Shared<K>) -> bool {
    !shared.is_synced() && matches!(shared.freshness(), Freshness::Failed(_))
}

/// Whether an object is in the cache: that of this UID, where it is known.
fn holds<K>(snapshot: &Snapshot<K>, key: &ObjectKey, uid: Option<&Uid>) -> bool {
    let entry = snapshot.entry(key.namespace(), key.name());
    entry.is_some_and(|entry| uid.is_none_or(|uid| entry.uid().is_same(uid)))
}
