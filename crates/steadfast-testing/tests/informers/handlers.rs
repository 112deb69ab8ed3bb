//! Handlers and streams: deliveries, ends, and calls of the informer's API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use parking_lot::Mutex;
use steadfast::{AsyncHandler, Call, Event, Freshness, Handler, HandlerError, InformerError, Registration, Scope};
use steadfast_testing::{TestError, config_map};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, follow, settle};

#[tokio::test(start_paused = true)]
async fn late_handler_receives_initial_objects() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    fixture.server.create(&config_map("b", "1"))?;
    settle().await;
    let (log, registration) = follow(&informer);
    assert!(registration.until_synced().await);
    assert_eq!(log.all(), ["Added a initially", "Added b initially"]);
    fixture.server.create(&config_map("c", "1"))?;
    settle().await;
    assert_eq!(log.all()[2..], ["Added c"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn empty_handler_syncs_with_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let (_, early_registration) = follow(&informer);
    assert!(!early_registration.has_synced() && informer.lister().is_err());
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(early_registration.until_synced().await && informer.lister()?.is_empty());
    assert!(follow(&informer).1.has_synced(), "a late handler syncs immediately");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn resync_repeats_delivered_objects() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let period = Duration::from_secs(30);
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration = informer.handler().resync(period).on_event(move |event| captured_log.record_event(&event))?;
    registration.until_synced().await;
    tokio::time::sleep(2 * period + EVENT_TIMEOUT).await;
    assert_eq!(log.all(), ["Added a initially", "Resynced a", "Resynced a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn zero_resync_period_disables_resync() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration =
        informer.handler().resync(Duration::ZERO).on_event(move |event| captured_log.record_event(&event))?;
    registration.until_synced().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.all(), ["Added a initially"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn resync_period_is_per_handler() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let mut handlers = Vec::new();
    for period in [0, 10, 25] {
        let log = EventLog::default();
        let captured_log = log.clone();
        let handler = informer.handler().resync(Duration::from_secs(period));
        handlers.push((log, handler.on_event(move |event| captured_log.record_event(&event))?));
    }
    let (log_without_resync, _registration) = follow(&informer);
    tokio::time::sleep(Duration::from_secs(51)).await;
    let resyncs = |log: &EventLog| log.all().iter().filter(|line| *line == "Resynced a").count();
    assert_eq!(handlers.iter().map(|(log, _)| resyncs(log)).collect::<Vec<_>>(), [0, 5, 2]);
    assert_eq!(resyncs(&log_without_resync), 0);
    assert_eq!(fixture.server.request_counts().full_transfers(), 1, "a resync must not send a request");

    handlers[1].1.remove();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(handlers.iter().map(|(log, _)| resyncs(log)).collect::<Vec<_>>(), [0, 5, 3]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn remove_and_wait_returns_after_last_call() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for number in 0..9 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let handler = ConcurrencyHandler { running_count: AtomicUsize::new(0), max_running: Arc::default() };
    let registration = informer.add_async_handler(handler)?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(registration.stats().running, 3);
    let start = tokio::time::Instant::now();
    assert_eq!(registration.remove_and_wait().await, 3, "the number of undelivered events");
    assert_eq!(start.elapsed().as_millis(), 500, "the wait lasts as long as the running calls");
    let counts = registration.stats();
    assert_eq!((counts.running, counts.returned), (0, 6));
    fixture.server.create(&config_map("late", "1"))?;
    settle().await;
    assert_eq!(registration.stats(), counts, "no call starts after the removal");
    assert_eq!(registration.remove_and_wait().await, 0, "a second removal succeeds");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn remove_and_wait_inside_handler_returns() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    for is_async in [false, true] {
        let own_registration = Arc::new(Mutex::<Option<Arc<Registration<ConfigMap>>>>::default());
        let (removal_count, captured_registration) = (Arc::new(AtomicUsize::new(0)), own_registration.clone());
        let count = removal_count.clone();
        let remove = move || {
            let (registration, count) = (captured_registration.lock().clone(), count.clone());
            async move {
                registration.expect("the registration exists before the first event").remove_and_wait().await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        let registration = Arc::new(if is_async {
            informer.add_async_handler(SelfRemovingHandler(remove))?
        } else {
            informer
                .on_event(move |_| remove().now_or_never().expect("the removal must not wait inside its own call"))?
        });
        *own_registration.lock() = Some(registration.clone());
        let calls = if is_async { 3 } else { 1 };
        for number in 0..calls {
            fixture.server.create(&config_map(&format!("{is_async}-{number}"), "1"))?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::time::timeout(EVENT_TIMEOUT, registration.remove_and_wait()).await?;
        assert_eq!(removal_count.load(Ordering::Relaxed), calls, "each call must return from the removal");
        assert_eq!(registration.stats().running, 0);
        *own_registration.lock() = None;
    }
    Ok(())
}

/// Handler that removes itself in each call. Three calls may run concurrently.
struct SelfRemovingHandler<F>(F);

impl<F, Fut> AsyncHandler<ConfigMap> for SelfRemovingHandler<F>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    async fn handle(&self, _event: Event<ConfigMap>, _call: Call) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (self.0)().await;
    }

    fn concurrency(&self) -> usize {
        3
    }
}

#[test]
fn async_handler_requires_runtime() -> Result<(), TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let fixture = runtime.block_on(InformerFixture::new())?;
    let informer = {
        let _current = runtime.enter();
        fixture.factory.informer::<ConfigMap>(Scope::all())?
    };
    let Err(error) = informer.on_event_async(|_| async {}) else { panic!("the call must fail without a runtime") };
    assert!(error.to_string().contains("tokio runtime"), "{error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn ended_runtime_closes_handler() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b", "c"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let ended_runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let handle = ended_runtime.handle().clone();
    ended_runtime.shutdown_background();
    let registration = {
        let _current = handle.enter();
        informer.on_event_async(|_| async {})?
    };
    assert!(!registration.until_synced().await, "the handler can never sync");
    assert_eq!(registration.remove(), 3);
    Ok(())
}

/// Handler that panics in the first `panics` calls for each event, and logs the retry count.
struct PanickingHandler {
    log: EventLog,
    panics: u32,
}

impl Handler<ConfigMap> for PanickingHandler {
    fn handle(&self, event: Event<ConfigMap>, call: Call) {
        self.log.record(format!("{} {}", event.object().name_any(), call.retry));
        assert!(call.retry >= self.panics, "clumsy");
    }
}

impl AsyncHandler<ConfigMap> for PanickingHandler {
    async fn handle(&self, event: Event<ConfigMap>, call: Call) {
        Handler::handle(self, event, call);
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_call_is_skipped_after_retries() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    for (panics, calls, skipped) in [(1, vec!["a 0", "a 1"], 0), (9, vec!["a 0", "a 1", "a 2", "a 3"], 1)] {
        for is_async in [false, true] {
            let log = EventLog::default();
            let handler = PanickingHandler { log: log.clone(), panics };
            let registration =
                if is_async { informer.add_async_handler(handler)? } else { informer.add_handler(handler)? };
            assert!(registration.until_synced().await, "a skipped event counts as delivered for the initial sync");
            assert_eq!(log.all(), calls);
            let counts = registration.stats();
            assert_eq!((counts.skipped, counts.returned, counts.entries), (skipped, 1 - skipped, 0));
            registration.remove();
        }
    }
    Ok(())
}

/// Handler with calls of one second, which counts concurrent calls.
struct ConcurrencyHandler {
    running_count: AtomicUsize,
    max_running: Arc<AtomicUsize>,
}

impl AsyncHandler<ConfigMap> for ConcurrencyHandler {
    async fn handle(&self, _event: Event<ConfigMap>, _call: Call) {
        let running_count = self.running_count.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_running.fetch_max(running_count, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.running_count.fetch_sub(1, Ordering::Relaxed);
    }

    fn concurrency(&self) -> usize {
        3
    }
}

#[tokio::test(start_paused = true)]
async fn handler_concurrency_applies_across_names() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for number in 0..9 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let max_running = Arc::new(AtomicUsize::new(0));
    let registration = informer.add_async_handler(ConcurrencyHandler {
        running_count: AtomicUsize::new(0),
        max_running: max_running.clone(),
    })?;
    let start = tokio::time::Instant::now();
    registration.until_synced().await;
    assert_eq!(max_running.load(Ordering::Relaxed), 3);
    assert_eq!(start.elapsed().as_secs(), 3, "nine calls of a second, three at a time");

    for value in ["2", "3", "4"] {
        let written_object = fixture.write("c-0", value)?;
        informer.wait_for(&written_object).await?;
    }
    assert_eq!(registration.stats().running, 1, "calls for one name never overlap");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn removed_handler_is_dropped() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let captured = Arc::new(());
    let weak_captured = Arc::downgrade(&captured);
    let called = Arc::new(AtomicBool::new(false));
    let captured_called = called.clone();
    let registration = informer.on_event(move |_| {
        captured_called.store(Arc::strong_count(&captured) > 0, Ordering::Relaxed);
    })?;
    assert_eq!(registration.remove(), 2, "the number of undelivered events");
    settle().await;
    assert!(!called.load(Ordering::Relaxed), "no call starts after the removal");
    assert!(weak_captured.upgrade().is_none(), "the handler is dropped");
    assert!(!registration.has_synced() && !registration.until_synced().await);
    assert_eq!(fixture.factory.shutdown().events, 0, "the removal has already counted the undelivered events");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handler_added_after_stop_is_error() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    informer.stop();
    let shared_value = Arc::new(());
    for _ in 0..2 {
        let captured_value = shared_value.clone();
        let sync_result = informer.handler().filter(move |_| Arc::strong_count(&captured_value) > 0).on_event(|_| {});
        let captured_value = shared_value.clone();
        let async_result = informer.on_event_async(move |_| {
            drop(captured_value.clone());
            std::future::ready(())
        });
        for error in [sync_result.err(), async_result.err()] {
            let error = error.ok_or("it was added")?;
            assert!(matches!(error, HandlerError::Stopped { .. }));
            assert_eq!(
                error.to_string(),
                "the informer of configmaps in all namespaces was stopped, so none of its handlers will be called; \
                 request the informer again, and add the handler to the new informer"
            );
        }
        assert_eq!(Arc::strong_count(&shared_value), 1, "the rejected handlers are dropped");
        settle().await;
    }
    assert!(matches!(informer.freshness(), Freshness::Stopped(_)));
    assert_eq!(informer.lister()?.len(), 1, "the cache stays readable");
    let next_informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    next_informer.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(
        next_informer.freshness().is_fresh(),
        "a stopped informer must not be returned again: {}",
        next_informer.freshness()
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn diagnostic_callback_may_call_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let (captured_informer, call_count) = (informer.clone(), Arc::new(AtomicUsize::new(0)));
    let count = call_count.clone();
    informer.on_diagnostic(move |_| {
        drop(captured_informer.on_event(|_| {}));
        captured_informer.index(|object: &ConfigMap| object.metadata.name.clone());
        let _ = (captured_informer.handlers(), captured_informer.freshness(), captured_informer.lister());
        count.fetch_add(1, Ordering::Relaxed);
    });
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(call_count.load(Ordering::Relaxed) > 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stream_resumes_and_ends_after_stop() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let mut changes = steadfast::watch::<ConfigMap>(fixture.factory.connection(), Scope::all())?;
    let first = changes.next().await.map(|event| event.object().name_any());
    assert_eq!(first.as_deref(), Some("a"));
    fixture.server.faults().cut();
    fixture.server.create(&config_map("b", "1"))?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(changes.next().now_or_never().is_none(), "a fault does not end it");
    fixture.server.faults().heal();
    let second = changes.next().await.map(|event| event.object().name_any());
    assert_eq!(second.as_deref(), Some("b"));

    fixture.server.create(&config_map("c", "1"))?;
    fixture.server.create(&config_map("d", "1"))?;
    settle().await;
    changes.informer().stop();
    settle().await;
    let rest: Vec<String> = changes.map(|event| event.object().name_any()).collect().await;
    assert_eq!(rest, ["c", "d"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn drained_shutdown_delivers_pending_events() -> Result<(), TestError> {
    for is_drained in [false, true] {
        let fixture = InformerFixture::new().await?;
        for number in 0..5 {
            fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
        }
        let informer = fixture.synced_informer().await?;
        let returned = Arc::new(AtomicUsize::new(0));
        let captured_returned = returned.clone();
        informer.on_event_async(move |_| {
            let captured_returned = captured_returned.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                captured_returned.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        settle().await;
        let undelivered = if is_drained {
            fixture.factory.shutdown_drained(10 * EVENT_TIMEOUT).await
        } else {
            fixture.factory.shutdown()
        };
        let expected = if is_drained { (0, 0, 5) } else { (4, 1, 0) };
        assert_eq!((undelivered.events, undelivered.running, returned.load(Ordering::Relaxed)), expected);
        assert!(matches!(fixture.factory.informer::<ConfigMap>(Scope::all()), Err(InformerError::ShutDown)));
        settle().await;
        assert_eq!(fixture.server.open_watches(0), 0, "the watch has ended");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn drained_shutdown_delivers_partially_read_events() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    // The shutdown happens inside a transform, while the informer decodes an event, as if from another thread.
    let (factory, pending_shutdown) = (fixture.factory.clone(), Arc::new(Mutex::new(None)));
    let captured_shutdown = pending_shutdown.clone();
    let transform = move |object: ConfigMap| {
        if object.name_any() == "b" {
            let factory = factory.clone();
            let mut shutdown = async move { factory.shutdown_drained(10 * EVENT_TIMEOUT).await }.boxed();
            assert!(
                shutdown.as_mut().now_or_never().is_none(),
                "the shutdown waits for the event that is being decoded"
            );
            *captured_shutdown.lock() = Some(shutdown);
        }
        object
    };
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(transform).start()?;
    let (log, _registration) = follow(&informer);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.create(&config_map("b", "1"))?;
    settle().await;
    let shutdown = pending_shutdown.lock().take().expect("the transform received b");
    assert_eq!(shutdown.await.events, 0);
    assert_eq!(log.all(), ["Added a initially", "Added b"]);
    Ok(())
}
