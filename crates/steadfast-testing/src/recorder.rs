//! Recorder of the events of informers, their handlers and their readers, as a trace for the checker.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Resource;
use parking_lot::{Mutex, MutexGuard};
use steadfast::{
    Cacheable, Call, Diagnostic, Event, Freshness, Handler, HandlerBuilder, Informer, Registration, ResourceVersion,
    Scope, WaitError,
};
use steadfast_apiserver::ApiServer;
use steadfast_contract::{HandlerEvent, Key, Reason, Record, Trace, WaitOutcome, WaitTarget};

use crate::convert;
use crate::proxy::{FaultTransition, NetworkFaults};

/// Recorder of the events and times of informers and handlers, in one trace. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<Inner>,
}

struct Inner {
    trace: Mutex<Trace>,
    clock: Box<dyn Fn() -> Duration + Send + Sync>,
    next_handler_number: AtomicUsize,
    next_call_number: AtomicU64,
    informers: Mutex<Vec<Arc<dyn ObservedInformer>>>,
    /// Informers for which the trace contains a sync record.
    synced_informers: Mutex<BTreeSet<String>>,
}

/// Observed informer of any type.
trait ObservedInformer: Send + Sync {
    fn name(&self) -> &str;
    fn wait_for_version(&self, version: ResourceVersion, deadline: Duration) -> BoxFuture<'_, ()>;
    /// Returns `true` if the cache is fresh and no handler has queued events.
    fn is_settled(&self) -> bool;
    fn record_freshness(&self, recorder: &Recorder);
    fn record_contents(&self, recorder: &Recorder);
}

struct InformerObservation<K: Cacheable> {
    name: String,
    informer: Informer<K>,
    selection: FilterAsSelector<K>,
}

/// Selection of an informer's objects by a handler's filter, which the checker treats like a selector.
struct FilterAsSelector<K>(Option<Predicate<K>>);

type Predicate<K> = Arc<dyn Fn(&K) -> bool + Send + Sync>;

// Not derived: a derive would require `K: Clone`, although only pointers are cloned.
impl<K> Clone for FilterAsSelector<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> FilterAsSelector<K> {
    fn selects(&self, object: &K) -> bool {
        self.0.as_ref().is_none_or(|predicate| predicate(object))
    }
}

impl<K: Cacheable> ObservedInformer for InformerObservation<K> {
    fn name(&self) -> &str {
        &self.name
    }

    fn wait_for_version(&self, version: ResourceVersion, deadline: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // If the informer does not reach the version, the checker must report it, so the error is ignored here.
            let _ = self.informer.wait_for_version(&version, deadline).await;
        })
    }

    fn is_settled(&self) -> bool {
        // A handler without queued entries has received everything, unless the cache itself lags.
        self.informer.freshness().is_fresh() && self.informer.handlers().iter().all(|counts| counts.entries == 0)
    }

    fn record_freshness(&self, recorder: &Recorder) {
        recorder.sample(&self.informer, &self.name);
    }

    fn record_contents(&self, recorder: &Recorder) {
        recorder.write_as_of_now(|| {
            let (objects, tainted) =
                convert::contents(&self.informer.snapshot(), |object| self.selection.selects(object));
            Record::Snapshot { informer: self.name.clone(), objects, tainted }
        });
    }
}

impl Recorder {
    /// Creates a recorder with the times of `clock`, which must be the clock of the history.
    pub fn new(clock: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            inner: Arc::new(Inner {
                trace: Mutex::default(),
                clock: Box::new(clock),
                next_handler_number: AtomicUsize::new(0),
                next_call_number: AtomicU64::new(0),
                informers: Mutex::default(),
                synced_informers: Mutex::default(),
            }),
        }
    }

    /// Creates a recorder with the clock of `server`.
    pub fn of(server: &ApiServer) -> Self {
        // Both clocks are read once. Later times use the test's clock only, which may be virtual.
        let (started, since) = (server.elapsed(), tokio::time::Instant::now());
        Self::new(move || started + since.elapsed())
    }

    /// Returns the trace recorded so far.
    pub fn trace(&self) -> Trace {
        self.lock().clone()
    }

    /// Records the start or the end of a fault.
    pub fn fault(&self, name: &str, on: bool) {
        self.write(Record::Fault { name: name.to_owned(), on });
    }

    /// Records every change of `network` from now on.
    pub fn follow(&self, network: &NetworkFaults) {
        let recorder = self.clone();
        network.on_change(move |change| {
            let name = match change.connection {
                Some(connection) => format!("network, connection {connection}: {}", change.fault),
                None => format!("network: {}", change.fault),
            };
            recorder.fault(&name, change.transition != FaultTransition::Off);
            // An instantaneous fault ends when it starts.
            if change.transition == FaultTransition::Once {
                recorder.fault(&name, false);
            }
        });
    }

    /// Observes `informer`: the events of a new handler, and the changes of its freshness.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current, because the observer runs as a task, or if the informer was stopped.
    pub fn record<K: Cacheable>(&self, informer: &Informer<K>) -> EventRecording<K> {
        self.record_as(informer, informer.name())
    }

    /// Observes `informer` under another name, for example because several clients watch the same scope.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current, because the observer runs as a task, or if the informer was stopped.
    pub fn record_as<K: Cacheable>(&self, informer: &Informer<K>, name: &str) -> EventRecording<K> {
        self.observe(informer, name, informer.scope(), &FilterAsSelector(None));
        self.handle(informer, name, |_| {})
    }

    /// Observes a handler with the options that `choose` sets, for example a limit for events that are delivered one
    /// by one. The handler has its own name in the trace.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current, or if the informer was stopped.
    pub fn record_with_options<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        name: &str,
        choose: impl FnOnce(HandlerBuilder<'_, K>) -> HandlerBuilder<'_, K>,
    ) -> EventRecording<K> {
        self.observe(informer, name, informer.scope(), &FilterAsSelector(None));
        self.add(informer, name, &FilterAsSelector(None), choose, |_| {})
    }

    /// Observes a handler with a filter, as if it belonged to an informer of `scope` with the name `name`. The checker
    /// compares the events with the objects that `scope` selects in the history. `scope` must select exactly the
    /// objects that `predicate` accepts.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current, or if the informer was stopped.
    pub fn record_filtered<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        name: &str,
        scope: &Scope,
        predicate: impl Fn(&K) -> bool + Send + Sync + 'static,
    ) -> EventRecording<K> {
        let predicate: Predicate<K> = Arc::new(predicate);
        let selection = FilterAsSelector(Some(predicate.clone()));
        self.observe(informer, name, scope, &selection);
        self.write(Record::Filtered { informer: name.to_owned() });
        self.add(informer, name, &selection, |handler| handler.filter(move |object| predicate(object)), |_| {})
    }

    /// Adds a handler to an observed informer, and runs `act` within each of its calls.
    ///
    /// # Panics
    ///
    /// Panics if no tokio runtime is current, or if the informer was stopped.
    pub fn handle<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        name: &str,
        act: impl Fn(&Event<K>) + Send + Sync + 'static,
    ) -> EventRecording<K> {
        self.add(informer, name, &FilterAsSelector(None), |handler| handler, act)
    }

    fn add<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        name: &str,
        selection: &FilterAsSelector<K>,
        choose: impl FnOnce(HandlerBuilder<'_, K>) -> HandlerBuilder<'_, K>,
        action: impl Fn(&Event<K>) + Send + Sync + 'static,
    ) -> EventRecording<K> {
        // Handlers with equal names need different names in the trace, because the checker follows each handler
        // separately.
        let number = self.inner.next_handler_number.fetch_add(1, Ordering::Relaxed);
        let handler = format!("{name}#{number}");
        // Registered before the handler is added: its first event may arrive before `add_handler` returns.
        self.write(Record::registered(&handler, name));
        let (recorder, handler_informer) = (self.clone(), informer.clone());
        let recording_handler = RecordingHandler {
            recorder,
            name: handler.clone(),
            informer: handler_informer,
            selection: selection.clone(),
            action,
        };
        let added = choose(informer.handler()).add_handler(recording_handler);
        let registration = Arc::new(added.expect("the informer must run"));
        let (recorder, watched_registration, handler_name) = (self.clone(), registration.clone(), handler.clone());
        let (observed_informer, informer_name, selection) = (informer.clone(), name.to_owned(), selection.clone());
        tokio::spawn(async move {
            if !watched_registration.until_synced().await {
                return;
            }
            // Two observers run concurrently. If the observer of the informer runs late, the record of the informer's
            // sync must still precede that of its handler.
            recorder.record_sync_once(&observed_informer, &informer_name, &selection);
            recorder.write(Record::RegistrationSynced { handler: handler_name });
        });
        EventRecording { recorder: self.clone(), name: handler, informer: informer.clone(), registration }
    }

    /// Records `informer` in the trace, and follows its freshness and its relists.
    fn observe<K: Cacheable>(
        &self,
        informer: &Informer<K>,
        name: &str,
        scope: &Scope,
        selection: &FilterAsSelector<K>,
    ) {
        let mut informers = self.inner.informers.lock();
        // Several handlers of one informer share its observation.
        if informers.iter().any(|observed| observed.name() == name) {
            return;
        }
        self.write(Record::informer(name, convert::scope(scope)));
        informers.push(Arc::new(InformerObservation {
            name: name.to_owned(),
            informer: informer.clone(),
            selection: selection.clone(),
        }));
        // Released before the callbacks are registered, so that no callback runs under this lock.
        drop(informers);

        let (recorder, informer_name, observed_informer) = (self.clone(), name.to_owned(), informer.clone());
        informer.on_diagnostic(move |diagnostic| {
            let informer = informer_name.clone();
            let version_text = |version: &Option<ResourceVersion>| version.as_ref().map(ToString::to_string);
            match diagnostic {
                Diagnostic::Synced { version } => {
                    recorder.write(Record::Relisted { informer, from: None, to: version_text(version) });
                }
                // A restored cache has the state of the list that the checkpoint contains.
                Diagnostic::Restored { version, .. } => {
                    recorder.write(Record::Relisted { informer, from: None, to: Some(version.to_string()) });
                }
                Diagnostic::Relisted { held, version, .. } => {
                    recorder.write(Record::Relisted { informer, from: version_text(held), to: version_text(version) });
                }
                // The key is recorded here, because the object may be deleted before the next freshness record, which
                // also names it.
                Diagnostic::Undecodable { key, .. } => recorder.write_as_of_now(|| {
                    let (state, mut tainted) = convert::freshness(&observed_informer.freshness());
                    tainted.push(Key::new(key.namespace(), key.name()));
                    Record::Freshness { informer, state, tainted }
                }),
                Diagnostic::NewEpoch { .. } => recorder.write(Record::Epoch { informer }),
                _ => {}
            }
        });

        let (recorder, informer_name, observed_informer, selection) =
            (self.clone(), name.to_owned(), informer.clone(), selection.clone());
        tokio::spawn(async move {
            let mut changed = observed_informer.changed();
            let mut last = "";
            loop {
                // Only changes of the state are recorded. The version and the age change with every event.
                if observed_informer.freshness().name() != last {
                    last = recorder.sample(&observed_informer, &informer_name);
                }
                recorder.record_sync_once(&observed_informer, &informer_name, &selection);
                // A cache can become stale without an event, so the freshness is also checked periodically. An error
                // means that the informer was dropped.
                if let Ok(Err(_)) = tokio::time::timeout(Duration::from_millis(500), changed.changed()).await {
                    return;
                }
                if matches!(observed_informer.freshness(), Freshness::Stopped(_)) {
                    recorder.sample(&observed_informer, &informer_name);
                    return;
                }
            }
        });
    }

    /// Records once that `informer` reports its sync, with its contents at that time.
    fn record_sync_once<K: Cacheable>(&self, informer: &Informer<K>, name: &str, selection: &FilterAsSelector<K>) {
        if !informer.has_synced() {
            return;
        }
        // Two tasks can reach this point at the same time. The lock lets only one of them record the sync.
        let mut synced = self.inner.synced_informers.lock();
        if !synced.insert(name.to_owned()) {
            return;
        }
        // Sync and contents are written under one lock of the trace, so that no event separates them.
        let mut trace = self.lock();
        let now = (self.inner.clock)();
        trace.record(now, Record::InformerSynced { informer: name.to_owned() });
        let (objects, tainted) = convert::contents(&informer.snapshot(), |object| selection.selects(object));
        trace.record(now, Record::Snapshot { informer: name.to_owned(), objects, tainted });
    }

    /// Records the current freshness of `informer`, and returns the name of the state.
    pub fn sample<K: Cacheable>(&self, informer: &Informer<K>, name: &str) -> &'static str {
        let mut state = "";
        self.write_as_of_now(|| {
            let freshness = informer.freshness();
            state = freshness.name();
            let (state, tainted) = convert::freshness(&freshness);
            Record::Freshness { informer: name.to_owned(), state, tainted }
        });
        state
    }

    /// Reads `namespace/name`, or a cluster-scoped name, from the cache, and records the result.
    pub fn read<K: Cacheable>(&self, informer: &Informer<K>, name: &str, key: &str) {
        self.read_key(informer, name, parse_key(key));
    }

    fn read_key<K: Cacheable>(&self, informer: &Informer<K>, name: &str, key: Key) {
        self.write_as_of_now(|| {
            let content = convert::cached_object(&informer.snapshot(), &key, |_| true);
            Record::Read { informer: name.to_owned(), key, content }
        });
    }

    /// Waits for a write as [`Informer::wait_for`] does, and records the result.
    ///
    /// # Errors
    ///
    /// Returns the error of the wait.
    pub async fn wait_for<K: Cacheable, R: Resource>(
        &self,
        informer: &Informer<K>,
        name: &str,
        written: &R,
    ) -> Result<(), WaitError> {
        // The wait runs outside of the trace's lock. Only its result is recorded under the lock.
        let result = informer.wait_for(written).await;
        self.write_as_of_now(|| Record::WaitedFor {
            informer: name.to_owned(),
            target: WaitTarget::Version(written.meta().resource_version.clone().unwrap_or_default()),
            outcome: if result.is_ok() { WaitOutcome::Ok } else { WaitOutcome::Err },
            store_version: informer.snapshot().version().map(ToString::to_string),
        });
        self.read_key(informer, name, convert::object_ref(written).key);
        result
    }

    /// Records that `server` is quiet and reachable from here on. Then waits up to 20 s until all informers have caught
    /// up and all handlers have received every event, and records the final state.
    pub async fn settle(&self, server: &ApiServer) {
        self.settle_at(&server.revision().to_string(), Duration::from_secs(20)).await;
    }

    /// Does the same as [`settle`](Self::settle) for any server. `version` is the server's newest version, and
    /// `deadline` limits the wait.
    pub async fn settle_at(&self, version: &str, deadline: Duration) {
        self.write(Record::Quiet);
        let end = tokio::time::Instant::now() + deadline;
        let informers = self.inner.informers.lock().clone();
        let waits =
            informers.iter().map(|informer| informer.wait_for_version(ResourceVersion::from(version), deadline));
        futures::future::join_all(waits).await;
        // The deadline is shared by both waits. An informer that never settles must still be recorded.
        while !informers.iter().all(|informer| informer.is_settled()) && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The checker requires this order: the freshness before the end marker, and the contents after the marker.
        for informer in &informers {
            informer.record_freshness(self);
        }
        self.write(Record::Settled);
        for informer in &informers {
            informer.record_contents(self);
        }
    }

    /// Adds a record with the current time.
    pub fn write(&self, record: Record) {
        self.write_as_of_now(|| record);
    }

    /// Adds the record that `observe` returns. `observe` reads the store and the clock under the lock of the trace.
    /// Therefore the order of the trace is the order of its times, and an earlier observation never follows a later
    /// one.
    fn write_as_of_now(&self, observe: impl FnOnce() -> Record) {
        let mut trace = self.lock();
        let record = observe();
        trace.record((self.inner.clock)(), record);
    }

    fn lock(&self) -> MutexGuard<'_, Trace> {
        self.inner.trace.lock()
    }
}

/// Handler that records each event, before and after its own action.
struct RecordingHandler<K: Cacheable, F> {
    recorder: Recorder,
    name: String,
    informer: Informer<K>,
    selection: FilterAsSelector<K>,
    action: F,
}

impl<K, F> Handler<K> for RecordingHandler<K, F>
where
    K: Cacheable,
    F: Fn(&Event<K>) + Send + Sync + 'static,
{
    fn handle(&self, event: Event<K>, call: Call) {
        let number = self.recorder.inner.next_call_number.fetch_add(1, Ordering::Relaxed);
        let mut recorded_event = convert::handler_event(&event);
        if let (Some(_), HandlerEvent::Deleted { reason: reason @ Reason::Deleted, .. }) =
            (&self.selection.0, &mut recorded_event)
        {
            // A handler with a filter receives the reason. With a selector, no client can determine the reason, and the
            // checker rejects such a claim.
            *reason = Reason::DeletedOrLeft;
        }
        let handler = self.name.clone();
        // The cache is read before the handler's action: clause C6 requires that the cache already contains the
        // event.
        self.recorder.write_as_of_now(|| {
            let store = convert::cached_object(&self.informer.snapshot(), recorded_event.key(), |object| {
                self.selection.selects(object)
            });
            Record::Entered { handler, call: number, event: recorded_event, retry: call.retry, store }
        });
        // A panic is recorded and then resumed, so that the informer handles the panic as without a recorder.
        let result = catch_unwind(AssertUnwindSafe(|| (self.action)(&event)));
        let handler = self.name.clone();
        match result {
            Ok(()) => self.recorder.write(Record::Returned { handler, call: number }),
            Err(panic) => {
                self.recorder.write(Record::Panicked { handler, call: number });
                resume_unwind(panic);
            }
        }
    }
}

/// A recorded handler of an informer.
pub struct EventRecording<K: Cacheable> {
    recorder: Recorder,
    name: String,
    informer: Informer<K>,
    registration: Arc<Registration<K>>,
}

impl<K: Cacheable> EventRecording<K> {
    /// Returns the recorded informer.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// Returns the handler's registration at the informer.
    pub fn registration(&self) -> &Registration<K> {
        &self.registration
    }

    /// Returns the handler's name in the trace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the handler has processed all objects of its first view.
    pub async fn until_synced(&self) {
        self.registration.until_synced().await;
    }

    /// Returns all events of this handler, in order.
    pub fn events(&self) -> Vec<HandlerEvent> {
        let trace = self.recorder.lock();
        let entries = trace.entries().iter().filter_map(|entry| match &entry.record {
            Record::Entered { handler, event, .. } if *handler == self.name => Some(event.clone()),
            _ => None,
        });
        entries.collect()
    }

    /// Returns this handler's events of `namespace/name`, or of a cluster-scoped name.
    pub fn of(&self, key: &str) -> Vec<HandlerEvent> {
        let key = parse_key(key);
        self.events().into_iter().filter(|event| *event.key() == key).collect()
    }

    /// Describes this handler's events of `namespace/name`: `Added`, `Updated`, `Deleted Inferred Replaced`.
    pub fn descriptions(&self, key: &str) -> Vec<String> {
        let describe_event = |event: HandlerEvent| match event {
            HandlerEvent::Added { .. } => "Added".to_owned(),
            HandlerEvent::Updated { .. } => "Updated".to_owned(),
            HandlerEvent::Deleted { certainty, reason, .. } => format!("Deleted {certainty:?} {reason:?}"),
            HandlerEvent::Resynced { .. } => "Resynced".to_owned(),
        };
        self.of(key).into_iter().map(describe_event).collect()
    }
}

fn parse_key(key: &str) -> Key {
    match key.split_once('/') {
        Some((namespace, name)) => Key::new(Some(namespace), name),
        None => Key::new(None, key),
    }
}
