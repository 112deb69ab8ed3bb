//! Sources of a controller's keys.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::{
    AsyncHandler, Cacheable, Call, DynamicType, Event, HandlerError, Informer, InformerError, InformerFactory,
    MultiNamespaceInformer, Object, ObjectKey, Registration, Scope, Writes,
};

use super::change_filter::ChangeFilter;
use super::diagnostic::ControllerDiagnostic;
use super::diagnostics::Diagnostics;
use super::lifecycle::Lifecycle;
use super::primary::Primary;
use super::requeue_all::{RequeueAll, RequeueHandle};
use super::source_cache::SourceCache;
use super::source_error::SourceError;
use super::stats::Counters;
use super::write_tracker::WriteTracker;
use crate::panics::message;
use crate::workqueue::{Priority, Workqueue};

/// Source of changes for a controller: a [`Scope`] or an existing [`Informer`], with a filter for relevant changes.
///
/// For several namespaces, [`namespaces`](Self::namespaces) opens one informer each. A program then needs permissions
/// in these namespaces only. `Source::from(vec![…])` combines several scopes or informers.
///
/// ```
/// # use std::time::Duration;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use steadfast::Scope;
/// # use steadfast_controller::{ChangeFilter, Source};
/// let deployments = Source::<Deployment>::from(Scope::namespace("shop"))
///     .filter_changes(ChangeFilter::of_generation())
///     .resync(Duration::from_secs(600));
/// ```
#[must_use = "a source does nothing until a controller uses it"]
pub struct Source<K: Cacheable> {
    open: OpenInformers<K>,
    filter: ChangeFilter<K::Resource>,
    resync: Option<Duration>,
}

type OpenInformers<K> = Box<dyn FnOnce(&InformerFactory) -> Result<Vec<Informer<K>>, InformerError> + Send>;

/// Detaches a source from its informers.
pub(super) type DetachFn = Box<dyn Fn() + Send + Sync>;

impl<K: Cacheable> Source<K> {
    /// Follows all changes of the objects in `namespaces`, with one informer each. A program needs permissions in these
    /// namespaces only.
    ///
    /// ```
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use steadfast_controller::Source;
    /// let deployments = Source::<Deployment>::namespaces(["team-a", "team-b"]);
    /// ```
    pub fn namespaces<N: Into<String>>(namespaces: impl IntoIterator<Item = N>) -> Self
    where
        DynamicType<K>: Default,
    {
        Scope::all().in_each(namespaces).into()
    }

    /// Follows only changes that `filter` matches. Defaults to all changes.
    ///
    /// A change that maps the object to other keys always counts, for example a child with a new owner.
    pub fn filter_changes(mut self, filter: ChangeFilter<K::Resource>) -> Self {
        self.filter = filter;
        self
    }

    /// Reconciles each object once per `period`, even without a change. Disabled by default.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Opens the caches of the source. Returns at least one cache.
    pub(super) fn open(self, factory: &InformerFactory) -> Result<(OpenedSource<K>, Vec<SourceCache<K>>), SourceError> {
        let informers = (self.open)(factory)?;
        if informers.is_empty() {
            return Err(SourceError::Empty);
        }
        let caches: Vec<_> = informers.into_iter().map(|informer| SourceCache::new(informer, factory)).collect();
        Ok((OpenedSource { caches: caches.clone(), filter: self.filter, resync: self.resync }, caches))
    }
}

/// A source with its caches.
pub(super) struct OpenedSource<K: Cacheable> {
    caches: Vec<SourceCache<K>>,
    filter: ChangeFilter<K::Resource>,
    resync: Option<Duration>,
}

impl<K: Cacheable> OpenedSource<K> {
    /// Attaches the source: after each change, adds the keys that `keys` returns to the queue. Their reconciles wait
    /// until all caches contain the change.
    pub(super) fn attach<I>(
        self,
        source_context: &SourceContext,
        scope_filter: Option<ScopeFilter>,
        keys: impl Fn(&Object<K>) -> I + Send + Sync + 'static,
    ) -> Result<Arc<dyn Attachment>, SourceError>
    where
        I: IntoIterator<Item = ObjectKey>,
    {
        let keys: KeyMapper<K> = Arc::new(move |object, add| keys(object).into_iter().for_each(add));
        let template = HandlerTemplate {
            factory: source_context.factory.clone(),
            filter: self.filter,
            resync: self.resync,
            keys,
            scope_filter: scope_filter.map(Arc::new),
            queue: source_context.queue.clone(),
            write_tracker: source_context.write_tracker.clone(),
            requeue_all: source_context.requeue_all.clone(),
            lifecycle: source_context.lifecycle.clone(),
            diagnostics: source_context.diagnostics.clone(),
        };
        let mut attached: Vec<(SourceCache<K>, Registration<K>)> = Vec::new();
        for cache in self.caches {
            match template.attach(&cache.informer()) {
                Ok(registration) => attached.push((cache, registration)),
                Err(error) => {
                    // The source is incomplete without this informer, so the handlers on the other informers are
                    // removed.
                    for (_, registration) in &attached {
                        registration.remove();
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(Arc::new(SourceHandlers { template, attached: Mutex::new(Some(attached)) }))
    }
}

/// Handlers of a source, one on each of its caches.
pub(super) trait Attachment: Send + Sync {
    /// Continues with synced successors of stopped informers. With `requires_fresh`, the successors must also be fresh.
    fn renew(&self, requires_fresh: bool);
    /// Removes the handlers.
    fn detach(&self);
}

/// Parts of the handlers that are equal for each informer of a source.
struct HandlerTemplate<K: Cacheable> {
    factory: InformerFactory,
    filter: ChangeFilter<K::Resource>,
    resync: Option<Duration>,
    keys: KeyMapper<K>,
    scope_filter: Option<Arc<ScopeFilter>>,
    queue: Workqueue<ObjectKey>,
    write_tracker: WriteTracker,
    requeue_all: RequeueAll,
    lifecycle: Lifecycle,
    diagnostics: Diagnostics,
}

impl<K: Cacheable> HandlerTemplate<K> {
    /// Returns a handler for `informer`.
    fn handler(&self, informer: &Informer<K>) -> SourceHandler<K> {
        SourceHandler {
            informer: informer.clone(),
            factory: self.factory.clone(),
            filter: self.filter.clone(),
            keys: self.keys.clone(),
            scope_filter: self.scope_filter.clone(),
            queue: self.queue.clone(),
            write_tracker: self.write_tracker.clone(),
            requeue: self.requeue_all.watch_relists(informer, &self.factory),
            lifecycle: self.lifecycle.clone(),
            diagnostics: self.diagnostics.clone(),
        }
    }

    /// Adds a handler to `informer`.
    fn attach(&self, informer: &Informer<K>) -> Result<Registration<K>, HandlerError> {
        let name = self.diagnostics.controller().clone();
        let handler = informer.handler().name(name).deliver_each(MAX_UNMERGED_CHANGES);
        let handler = match self.resync {
            Some(period) => handler.resync(period),
            None => handler,
        };
        handler.add_async_handler(self.handler(informer))
    }
}

/// Caches of a source, each with the handler on its current informer.
type AttachedCaches<K> = Vec<(SourceCache<K>, Registration<K>)>;

struct SourceHandlers<K: Cacheable> {
    template: HandlerTemplate<K>,
    /// `None` after the handlers were removed, so that a concurrent renewal adds none.
    attached: Mutex<Option<AttachedCaches<K>>>,
}

impl<K: Cacheable> SourceHandlers<K> {
    /// Attaches handlers to the successors of stopped informers. With `requires_fresh`, skips successors that are not
    /// fresh. Returns the stopped informers.
    fn attach_to_successors(&self, requires_fresh: bool) -> Vec<Informer<K>> {
        let mut stopped = Vec::new();
        for (cache, registration) in self.attached.lock().iter_mut().flatten() {
            // If the successor was stopped in the meantime too, the next renewal attaches to the successor of that
            // informer.
            if let Some(renewed) = cache.renew(requires_fresh)
                && let Ok(added) = self.template.attach(&renewed.running)
            {
                std::mem::replace(registration, added).remove();
                stopped.push(renewed.stopped);
            }
        }
        stopped
    }
}

impl<K: Cacheable> Attachment for SourceHandlers<K> {
    fn renew(&self, requires_fresh: bool) {
        for stopped in self.attach_to_successors(requires_fresh) {
            // No event reports an object that was deleted between the two informers, or the keys of an object's earlier
            // state. So the keys of all objects of the stopped informer are enqueued.
            let handler = self.template.handler(&stopped);
            for object in stopped.snapshot().decodable() {
                handler.enqueue(handler.map(object).keys, &Writes::default(), Priority::LOW);
            }
        }
    }

    fn detach(&self) {
        let attached = self.attached.lock().take();
        for (_, registration) in attached.iter().flatten() {
            registration.remove();
        }
    }
}

/// Shared parts of a controller that sources use.
pub(super) struct SourceContext {
    pub(super) factory: InformerFactory,
    pub(super) queue: Workqueue<ObjectKey>,
    pub(super) write_tracker: WriteTracker,
    pub(super) requeue_all: RequeueAll,
    pub(super) lifecycle: Lifecycle,
    pub(super) diagnostics: Diagnostics,
    /// The controller's own objects.
    pub(super) primary: Primary,
    pub(super) counters: Arc<Counters>,
    /// True if keys are reconciled even without an object in the cache.
    pub(super) allows_missing_objects: bool,
}

impl SourceContext {
    /// Returns the filter for the keys of the source `name`, or `None` if every key is reconciled.
    pub(super) fn scope_filter(&self, name: &str) -> Option<ScopeFilter> {
        (!self.allows_missing_objects).then(|| ScopeFilter {
            source: name.to_owned(),
            primary: self.primary.clone(),
            counters: self.counters.clone(),
            diagnostics: self.diagnostics.clone(),
            is_reported: AtomicBool::new(false),
        })
    }
}

/// Filter for one source. It drops keys that no object of the controller can have.
pub(super) struct ScopeFilter {
    source: String,
    primary: Primary,
    counters: Arc<Counters>,
    diagnostics: Diagnostics,
    is_reported: AtomicBool,
}

impl ScopeFilter {
    /// Returns false if `key` cannot be reconciled. Reports the first such key.
    pub(super) fn admit(&self, key: &ObjectKey) -> bool {
        let is_admitted = self.primary.may_contain_key(key);
        if !is_admitted {
            Counters::increment(&self.counters.outside_scope);
            // One report per source. A wrong mapping usually affects every object.
            if !self.is_reported.swap(true, Ordering::Relaxed) {
                let (source, key, scope) = (self.source.clone(), key.clone(), self.primary.name().to_owned());
                self.diagnostics.report(&ControllerDiagnostic::OutsideScope { source, key, scope });
            }
        }
        is_admitted
    }
}

/// Number of queued changes that are delivered one by one instead of merged. Merged changes hide an object that was
/// created and deleted in the meantime, although a reconcile may have read this object.
const MAX_UNMERGED_CHANGES: usize = 4096;

/// Handler that maps changed objects to keys.
struct SourceHandler<K: Cacheable> {
    informer: Informer<K>,
    factory: InformerFactory,
    filter: ChangeFilter<K::Resource>,
    keys: KeyMapper<K>,
    scope_filter: Option<Arc<ScopeFilter>>,
    queue: Workqueue<ObjectKey>,
    write_tracker: WriteTracker,
    requeue: RequeueHandle,
    lifecycle: Lifecycle,
    diagnostics: Diagnostics,
}

/// Passes the keys of an object to a callback.
type KeyMapper<K> = Arc<dyn Fn(&Object<K>, &mut dyn FnMut(ObjectKey)) + Send + Sync>;

/// Keys of one state of an object.
struct MappedKeys {
    /// Sorted keys without duplicates.
    keys: Vec<ObjectKey>,
    /// False if the mapping panicked. Keys may be missing.
    is_complete: bool,
}

impl MappedKeys {
    /// Returns false if the two states map, or may map, to different keys.
    fn is_same(&self, other: &Self) -> bool {
        self.is_complete && other.is_complete && self.keys == other.keys
    }
}

impl<K: Cacheable> SourceHandler<K> {
    /// Maps `object` to its keys. Requeues all keys if the mapping panics.
    fn map(&self, object: &Object<K>) -> MappedKeys {
        let mut keys = Vec::new();
        let mapped = catch_unwind(AssertUnwindSafe(|| (self.keys)(object, &mut |key| keys.push(key))));
        keys.sort_unstable();
        keys.dedup();
        let is_complete = mapped.is_ok();
        if let Err(panic) = mapped {
            let callback = "the mapping of objects to keys";
            self.diagnostics.report(&ControllerDiagnostic::CallbackPanicked { callback, message: message(panic) });
            // Some keys of this object are unknown. A full pass is the only safe substitute.
            self.requeue.request();
        }
        MappedKeys { keys, is_complete }
    }

    /// Adds the keys that this controller can reconcile. Their next reconcile must see `required_writes`.
    fn enqueue(&self, mut keys: Vec<ObjectKey>, required_writes: &Writes, priority: Priority) {
        if let Some(scope_filter) = &self.scope_filter {
            keys.retain(|key| scope_filter.admit(key));
        }
        for key in keys {
            // Recorded before the key is enqueued, because a worker may take the key immediately.
            if !required_writes.is_empty() {
                self.write_tracker.require(&key, required_writes.clone());
            }
            self.queue.add_with_priority(key, priority);
        }
    }
}

/// Runs on the runtime of the reconciles, so that a key reaches a worker without a switch to another thread.
impl<K: Cacheable> AsyncHandler<K> for SourceHandler<K> {
    async fn handle(&self, event: Event<K>, call: Call) {
        // Yields regularly: a long series of events must not keep a thread of the runtime from the reconciles.
        tokio::task::coop::consume_budget().await;
        self.enqueue_event(&event, &call);
    }
}

impl<K: Cacheable> SourceHandler<K> {
    /// Enqueues the keys of the objects in `event`.
    fn enqueue_event(&self, event: &Event<K>, call: &Call) {
        if call.missed > 0 {
            // The queue was full and events were merged. The keys of the skipped states are unknown.
            self.requeue.request();
        }
        let priority = match event {
            // An initial object that has already changed again is as urgent as any changed object.
            Event::Added { initial: true, .. } if call.changes <= 1 => Priority::LOW,
            Event::Resynced { .. } => Priority::LOW,
            _ => Priority::NORMAL,
        };
        let mut mapped = self.map(event.object());
        if let Event::Updated { old, new } = event {
            let before = self.map(old);
            // The filter must not hide a change of the mapped keys. No other event reports to an owner that it lost or
            // gained a child.
            if before.is_same(&mapped) && !self.filter.is_relevant::<K>(old, new) {
                return;
            }
            mapped.keys.extend(before.keys);
            mapped.keys.sort_unstable();
            mapped.keys.dedup();
        }
        let required_writes = match event {
            // The first reconcile waits for the other caches anyway.
            Event::Added { initial: true, .. } if !self.lifecycle.has_started() => Writes::default(),
            Event::Resynced { .. } => Writes::default(),
            _ => self.factory.writes_missing_in_other_caches(&self.informer, event),
        };
        self.enqueue(mapped.keys, &required_writes, priority);
    }
}

impl<K: Cacheable> From<Scope> for Source<K>
where
    DynamicType<K>: Default,
{
    /// Follows all changes of the objects in `scope`, with an informer of the controller's factory.
    fn from(scope: Scope) -> Self {
        vec![scope].into()
    }
}

impl<K: Cacheable> From<Vec<Scope>> for Source<K>
where
    DynamicType<K>: Default,
{
    /// Follows all changes of the objects in `scopes`, with one informer of the controller's factory each.
    fn from(scopes: Vec<Scope>) -> Self {
        let open: OpenInformers<K> =
            Box::new(|factory| scopes.into_iter().map(|scope| factory.informer(scope)).collect());
        Self { open, filter: ChangeFilter::all(), resync: None }
    }
}

impl<K: Cacheable> From<Informer<K>> for Source<K> {
    /// Follows all changes of `informer`, for example of an informer with custom settings or of a type known only at
    /// run time.
    fn from(informer: Informer<K>) -> Self {
        vec![informer].into()
    }
}

impl<K: Cacheable> From<MultiNamespaceInformer<K>> for Source<K> {
    /// Follows all changes of `informers`, for example of several namespaces that the program also reads.
    fn from(informers: MultiNamespaceInformer<K>) -> Self {
        informers.informers().to_vec().into()
    }
}

impl<K: Cacheable> From<Vec<Informer<K>>> for Source<K> {
    /// Follows all changes of each of `informers`.
    fn from(informers: Vec<Informer<K>>) -> Self {
        let open: OpenInformers<K> = Box::new(move |_| Ok(informers));
        Self { open, filter: ChangeFilter::all(), resync: None }
    }
}

impl<K: Cacheable> fmt::Debug for Source<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("filter", &self.filter).field("resync", &self.resync).finish_non_exhaustive()
    }
}
