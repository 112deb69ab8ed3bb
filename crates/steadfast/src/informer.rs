//! An informer: one watch, its cache, and all who follow it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use kube::Resource;
use steadfast_core::breach::Breach;
use steadfast_core::decode::Kept;
use steadfast_core::event::Event;
use steadfast_core::reflector::Note;
use steadfast_core::store::Snapshot;
use steadfast_core::{Freshness, Instant, ResourceVersion, Uid};
use tokio::sync::watch;

use crate::driver::Command;
use crate::error::{HandlerError, NotSynced, WaitError};
use crate::handler::{AsyncHandler, Handler};
use crate::handler_counts::HandlerCounts;
use crate::lister::{Index, Lister};
use crate::memory::Memory;
use crate::owner::{Held, Origin, Share};
use crate::registration::{HandlerBuilder, Registration};
use crate::scope::Scope;
use crate::shared::Shared;

/// How long a wait lasts before a proof is sought for it: a write outside the selector makes no event (C12).
pub(crate) const UNAIDED_WAIT: Duration = Duration::from_secs(1);

/// A cache of the objects of one resource and scope, kept true by one watch, and delivered to any number of handlers.
///
/// Cheap to clone. The watch ends when the informer is stopped, or when its last handle (informer, lister or index) is
/// dropped. While the factory exists, handlers keep the watch running too: it ends with the last handle or handler.
pub struct Informer<K> {
    owner: Held<K>,
}

/// Identity of the cache of an [`Informer`]: clones of the informer have the same identity, and no other informer that exists
/// at the same time has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(usize);

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone() }
    }
}

impl<K> std::fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Informer({})", self.owner.shared.name)
    }
}

impl<K: Kept> Informer<K> {
    pub(crate) fn new(owner: Held<K>) -> Self {
        Self { owner }
    }

    /// Returns a handle of this informer that counts as one of its users.
    pub(crate) fn with_share(&self, share: Arc<Share>) -> Self {
        Self { owner: self.owner.with_share(share) }
    }

    pub(crate) fn owner(&self) -> &Held<K> {
        &self.owner
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<K>> {
        &self.owner.shared
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.owner.origin
    }

    /// Has its driver do something.
    pub(crate) fn command(&self, command: Command) {
        // One that has ended does nothing any more.
        let _ = self.owner.commands.send(command);
    }

    /// The resource and its scope, for people.
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// Identity of the cache.
    pub fn cache_id(&self) -> CacheId {
        CacheId(Arc::as_ptr(self.shared()).addr())
    }

    /// What the informer looks at.
    pub fn scope(&self) -> &Scope {
        &self.shared().scope
    }

    /// Calls `handle` for every change, one call at a time, on a thread of its own. It may block: nobody waits for it.
    ///
    /// A handler that holds this informer keeps it running until it is stopped or the handler removed.
    ///
    /// # Errors
    ///
    /// After the stop.
    pub fn on_event(&self, handle: impl Fn(Event<K>) + Send + Sync + 'static) -> Result<Registration<K>, HandlerError> {
        self.handler().on_event(handle)
    }

    /// Calls `handle` for every change, one call at a time, on the async runtime that is current now.
    ///
    /// # Errors
    ///
    /// Where no runtime is current, and after the stop.
    pub fn on_event_async<F, Fut>(&self, handle: F) -> Result<Registration<K>, HandlerError>
    where
        F: Fn(Event<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.handler().on_event_async(handle)
    }

    /// Adds a handler that keeps state or wants to know of retries.
    ///
    /// # Errors
    ///
    /// After the stop.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_handler(handler)
    }

    /// Adds an async handler that keeps state or wants to know of retries.
    ///
    /// # Errors
    ///
    /// Where no runtime is current, and after the stop.
    pub fn add_async_handler(&self, handler: impl AsyncHandler<K>) -> Result<Registration<K>, HandlerError> {
        self.handler().add_async_handler(handler)
    }

    /// A handler with choices: a filter, a resync period, each event delivered.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(pods: &steadfast::Informer<Pod>) -> Result<(), steadfast::HandlerError> {
    /// let mine = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some("node-1"));
    /// pods.handler().filter(mine).resync(Duration::from_secs(600)).on_event(|event| println!("{event:?}"))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handler(&self) -> HandlerBuilder<'_, K> {
        HandlerBuilder::new(&self.owner)
    }

    /// Tells `callback` what a log line would: faults, relists, resumes; before the readers and handlers see what comes
    /// of it. They see it when `callback` has returned; nobody else waits for that.
    pub fn on_note(&self, callback: impl Fn(&Note) + Send + Sync + 'static) {
        self.shared().on_note(Arc::new(callback));
    }

    /// Whether the cache is true, and if not, since when and why.
    pub fn freshness(&self) -> Freshness {
        self.shared().freshness()
    }

    /// Whether the first complete list is in the cache. Never undone: whether the cache is true now is its freshness.
    pub fn has_synced(&self) -> bool {
        self.shared().is_synced()
    }

    /// A reader of the cache.
    ///
    /// # Errors
    ///
    /// Before the first complete list, so that "not there" is never "not yet".
    pub fn lister(&self) -> Result<Lister<K>, NotSynced> {
        if self.has_synced() { Ok(Lister::new(self.owner.clone())) } else { Err(self.not_synced()) }
    }

    pub(crate) fn not_synced(&self) -> NotSynced {
        NotSynced { resource: self.name().into(), state: self.freshness() }
    }

    /// Adds an index by the values that `extract` finds in an object, filled when it is handed out.
    ///
    /// `extract` must answer the same for the same object; one on which it panics counts as having no more values. It
    /// may take its time, and ask this informer for anything: readers, handlers and other informers do not wait for it,
    /// only this informer's next changes do. An index is kept up as long as the informer runs, so it is to be made once.
    pub fn index<I, V>(&self, extract: impl Fn(&K) -> V + Send + Sync + 'static) -> Index<K, I>
    where
        I: Ord + Clone + Send + Sync + 'static,
        V: IntoIterator<Item = I>,
    {
        let name: Arc<str> = self.name().into();
        let contained = move |object: &K| {
            let values = contained(&name, || extract(object).into_iter());
            let name = name.clone();
            // The values may be found as late as they are taken.
            values.into_iter().flat_map(move |mut values| {
                let name = name.clone();
                std::iter::from_fn(move || contained(&name, || values.next()).flatten())
            })
        };
        let index = self.shared().add_index(contained);
        Index::new(self.owner.clone(), index)
    }

    /// The cache as it is now, consistent in itself, before the first list too.
    pub fn snapshot(&self) -> Arc<Snapshot<K>> {
        self.shared().snapshot()
    }

    /// Tells of every change of the cache or of its freshness from here on; what changed is to be read.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.shared().moved()
    }

    /// What it takes up in memory, by part. To count it takes about a microsecond for each hundred objects.
    pub fn memory(&self) -> Memory {
        self.owner.shared.memory()
    }

    /// What each handler has done and has before it.
    pub fn handlers(&self) -> Vec<HandlerCounts> {
        self.shared().handler_counts()
    }

    /// Waits until the first complete list is in the cache.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first: the state and its cause.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), NotSynced> {
        self.wait_until(deadline, |shared| shared.is_synced().then_some(())).await.map_err(|_| self.not_synced())
    }

    /// Waits until the cache holds `written` or a later state of its resource: reads then see that write.
    ///
    /// Where the server gives no versions of what it lists, that is after the next list.
    ///
    /// # Errors
    ///
    /// When 30 s pass first, the informer is stopped, or the version cannot be compared.
    pub async fn wait_for<R: Resource>(&self, written: &R) -> Result<(), WaitError> {
        let deadline = Duration::from_secs(30);
        match written.meta().resource_version.as_deref() {
            _ if is_unversioned(self.shared()) => self.wait_for_list(deadline).await,
            Some(version) => self.wait_for_version(&ResourceVersion::from(version), deadline).await,
            None => Err(WaitError::NoVersion),
        }
    }

    /// Waits until what was written before this call is in a list that was requested after it.
    pub(crate) async fn wait_for_list(&self, deadline: Duration) -> Result<(), WaitError> {
        let begun = self.shared().environment.now();
        self.wait_aided(deadline, "a new list".to_owned(), None, |shared| is_listed_since(shared, begun)).await
    }

    /// Waits until the cache is at or past `version`, a version of this same resource.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, the informer is stopped, or the version cannot be compared.
    pub async fn wait_for_version(&self, version: &ResourceVersion, deadline: Duration) -> Result<(), WaitError> {
        if is_unversioned(self.shared()) {
            return self.wait_for_list(deadline).await;
        }
        if !version.is_ordered() {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        if self.shared().breaches.commit(Breach::ImpatientWait) {
            return Ok(());
        }
        let begun = self.shared().environment.now();
        let reached = |shared: &Shared<K>| {
            shared.snapshot().version().is_some_and(|at| is_at(at, version)) || is_listed_since(shared, begun)
        };
        // Known by now, or found out while this waits: then it ends at its deadline, and says how things stand.
        if self.snapshot().version().is_some_and(|at| !at.is_ordered()) {
            return Err(WaitError::Opaque { version: version.to_string() });
        }
        self.wait_aided(deadline, format!("version {version}"), Some(version), reached).await
    }

    /// Waits until the cache no longer holds `object`, which was seen or returned by the server.
    ///
    /// One that has no UID is known by its name: then another of that name is waited for as well.
    ///
    /// # Errors
    ///
    /// When `deadline` passes first, the informer is stopped, or the object is not held and its version cannot be
    /// compared, so that "gone" and "not there yet" look alike.
    pub async fn wait_gone<R: Resource>(&self, object: &R, deadline: Duration) -> Result<(), WaitError> {
        let meta = object.meta();
        let Some(name) = &meta.name else { return Err(WaitError::NoVersion) };
        let uid = meta.uid.as_deref().filter(|uid| !uid.is_empty()).map(Uid::from);
        let version = meta.resource_version.as_deref().map(ResourceVersion::from);
        let held = |snapshot: &Snapshot<K>| {
            let entry = snapshot.entry(meta.namespace.as_deref(), name);
            entry.is_some_and(|entry| uid.as_ref().is_none_or(|uid| entry.uid().is_same(uid)))
        };
        let asked = self.shared().environment.now();
        let begun = self.snapshot();
        let was_held = held(&begun);
        if !was_held && !is_unversioned(self.shared()) {
            match &version {
                None => return Err(WaitError::NoVersion),
                Some(version) if !version.is_ordered() => {
                    return Err(WaitError::Opaque { version: version.to_string() });
                }
                Some(_) => {}
            }
        }
        let epoch = begun.epoch();
        drop(begun);
        let gone = |shared: &Shared<K>| {
            let snapshot = shared.snapshot();
            // A cache that has not reached the object's own version lacks it for another reason. In another epoch its
            // version says nothing, and the list that began that epoch all.
            let at = snapshot.version().zip(version.as_ref());
            let reached = was_held || snapshot.epoch() != epoch || at.is_some_and(|(at, version)| is_at(at, version));
            (reached || is_listed_since(shared, asked)) && !held(&snapshot)
        };
        let who = uid.as_ref().map_or("without a UID", Uid::as_str);
        self.wait_aided(deadline, format!("the end of {name} ({who})"), None, gone).await
    }

    /// Waits until `reached` says so, which it does not before the cache has come to `version`, where that is said.
    pub(crate) async fn wait_aided(
        &self,
        deadline: Duration,
        target: String,
        version: Option<&ResourceVersion>,
        reached: impl Fn(&Shared<K>) -> bool,
    ) -> Result<(), WaitError> {
        self.wait_unaided_for(UNAIDED_WAIT, deadline, target, version, reached).await
    }

    /// Waits as [`wait_aided`](Self::wait_aided) does, and seeks the first proof after `unaided`.
    pub(crate) async fn wait_unaided_for(
        &self,
        unaided: Duration,
        deadline: Duration,
        target: String,
        version: Option<&ResourceVersion>,
        reached: impl Fn(&Shared<K>) -> bool,
    ) -> Result<(), WaitError> {
        let begun = self.shared().environment.now();
        let mut unaided = unaided;
        loop {
            let passed = self.shared().environment.now().since(begun);
            let step = unaided.min(deadline.saturating_sub(passed));
            match self.wait_beyond(version, step, |shared| reached(shared).then_some(())).await {
                Ok(()) => return Ok(()),
                Err(Unreached::Stopped) => {
                    return Err(WaitError::Stopped { resource: self.name().to_owned(), target });
                }
                Err(Unreached::Expired) => {}
            }
            let waited = self.shared().environment.now().since(begun);
            if waited >= deadline {
                let (resource, state) = (self.name().to_owned(), self.freshness());
                return Err(WaitError::Deadline { resource, target, waited, state });
            }
            self.command(Command::SeekProof);
            unaided = (unaided * 2).min(Duration::from_secs(15));
        }
    }

    /// Waits until `reached` finds what it looks for, and returns that.
    pub(crate) async fn wait_until<T>(
        &self,
        deadline: Duration,
        reached: impl FnMut(&Shared<K>) -> Option<T>,
    ) -> Result<T, Unreached> {
        self.wait_beyond(None, deadline, reached).await
    }

    /// The same; before the cache has come to `version` nothing is looked for, unless that may never be.
    async fn wait_beyond<T>(
        &self,
        version: Option<&ResourceVersion>,
        deadline: Duration,
        mut reached: impl FnMut(&Shared<K>) -> Option<T>,
    ) -> Result<T, Unreached> {
        let shared = self.shared();
        let mut moved = shared.moved();
        let mut timeout = shared.environment.sleep_until(shared.environment.now() + deadline);
        let mut expired = false;
        loop {
            // Before anything is looked at, so that nobody passes between the two.
            let ahead = version.filter(|version| !shared.snapshot().version().is_some_and(|at| is_at(at, version)));
            let milestone = ahead.and_then(|version| shared.milestone(version));
            // Looked at even when the time is up: the last change may have come together with that.
            if let Some(found) = reached(shared) {
                return Ok(found);
            }
            if shared.is_stopped() {
                return Err(Unreached::Stopped);
            }
            if expired {
                return Err(Unreached::Expired);
            }
            let changed = async {
                match milestone {
                    Some(milestone) => milestone.await,
                    None => drop(moved.changed().await),
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = &mut timeout => expired = true,
            }
        }
    }

    /// Ends the watch; the handlers may go on with what waits for them.
    pub(crate) fn stop_reading(&self) {
        self.shared().stop();
        self.command(Command::Stop { handlers: false });
    }

    /// Ends the watch, also when cut off; what handlers were not given stays undelivered. The cache stays readable.
    pub fn stop(&self) {
        self.shared().stop();
        self.command(Command::Stop { handlers: true });
        // Here and not by the driver alone, which the user's code may hold up.
        self.shared().close_handlers();
    }
}

/// Why what was waited for did not come.
pub(crate) enum Unreached {
    /// The informer was stopped.
    Stopped,
    /// The time was up.
    Expired,
}

/// Whether the server gives no version of what it lists, so that only a list tells what it has come to (C12).
pub(crate) fn is_unversioned<K: Kept>(shared: &Shared<K>) -> bool {
    shared.is_synced() && shared.snapshot().version().is_none()
}

/// Whether what has no version was listed, and requested after this moment.
fn is_listed_since<K: Kept>(shared: &Shared<K>, then: Instant) -> bool {
    is_unversioned(shared) && shared.evidence.load().proven.is_some_and(|proven| proven > then)
}

/// Runs the user's `extract`; what it breaks stays with the object.
fn contained<T>(informer: &str, extract: impl FnOnce() -> T) -> Option<T> {
    let found = std::panic::catch_unwind(AssertUnwindSafe(extract));
    if found.is_err() {
        tracing::error!(%informer, "an index function panicked; the object has no more values in that index");
    }
    found.ok()
}

/// Whether `held` is known to be at `version` or past it.
pub(crate) fn is_at(held: &ResourceVersion, version: &ResourceVersion) -> bool {
    held.order(version).is_some_and(std::cmp::Ordering::is_ge)
}
