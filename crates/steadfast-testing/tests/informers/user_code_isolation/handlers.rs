//! Handlers that block, panic or block their runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Event, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, config_map, informers};

const OBJECTS: u64 = 1_000;
const CHANGES: u64 = 100_000;
/// Number of blocked handlers: more than the worker threads of any runtime in this test.
const STUCK_HANDLERS: usize = 6;

/// Handler that counts its calls, and records the highest value.
#[derive(Default)]
struct CountingHandler {
    calls: AtomicU64,
    highest: AtomicU64,
}

impl CountingHandler {
    fn record(&self, event: &Event<ConfigMap>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let data = event.object().data.as_ref();
        let value = data.and_then(|data| data.get("value")?.parse().ok()).unwrap_or_default();
        self.highest.fetch_max(value, Ordering::Relaxed);
    }
}

/// Async runtime on its own thread, until dropped.
struct RuntimeThread {
    handle: tokio::runtime::Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

fn start_runtime_thread() -> Result<RuntimeThread, TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stop_receiver) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = runtime.block_on(stop_receiver);
        runtime.shutdown_background();
    });
    Ok(RuntimeThread { handle, _stop: stop })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_handlers_do_not_delay_healthy_one() -> Result<(), TestError> {
    let server = ApiServer::start().await?;
    for index in 0..OBJECTS {
        server.create(&config_map(&format!("c-{index}"), "0"))?;
    }
    let factory = informers(&server).await?;
    let config_maps = factory.informer::<ConfigMap>(Scope::all())?;
    factory.wait_for_sync(Duration::from_secs(30)).await?;

    let release = Arc::new(AtomicBool::new(false));
    let block = |release: Arc<AtomicBool>| {
        move || {
            while !release.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    };
    let mut stuck_handlers = Vec::new();
    for _ in 0..STUCK_HANDLERS {
        let wait = block(release.clone());
        stuck_handlers.push(config_maps.on_event(move |_| wait())?);
    }
    let blocked_runtime = start_runtime_thread()?;
    {
        let _current = blocked_runtime.handle.enter();
        for _ in 0..STUCK_HANDLERS {
            let wait = Arc::new(block(release.clone()));
            stuck_handlers.push(config_maps.on_event_async(move |_| {
                let wait = wait.clone();
                async move { wait() }
            })?);
        }
    }
    let panicking = config_maps.on_event(|_| panic!("a handler that panics on every event"))?;

    let sync_counts = Arc::new(CountingHandler::default());
    let captured_counts = sync_counts.clone();
    let healthy = config_maps.on_event(move |event| captured_counts.record(&event))?;
    let async_counts = Arc::new(CountingHandler::default());
    let other_runtime = start_runtime_thread()?;
    let healthy_async = {
        let _current = other_runtime.handle.enter();
        let captured_counts = async_counts.clone();
        config_maps.on_event_async(move |event| {
            captured_counts.record(&event);
            async {}
        })?
    };
    healthy.until_synced().await;
    healthy_async.until_synced().await;

    for change in 1..=CHANGES {
        let patch = serde_json::json!({ "data": { "value": change.to_string() } });
        server.merge_patch("configmaps", "default", &format!("c-{}", change % OBJECTS), patch)?;
        if change % 500 == 0 {
            tokio::task::yield_now().await;
            for handler in &stuck_handlers {
                let entries = handler.stats().entries as u64;
                assert!(entries <= OBJECTS, "a queue holds at most one entry an object, not {entries}");
            }
        }
    }
    let version = steadfast::ResourceVersion::from(server.revision().to_string().as_str());
    config_maps.wait_for_version(&version, Duration::from_secs(60)).await?;
    for (name, handler, registration) in [("sync", &sync_counts, &healthy), ("async", &async_counts, &healthy_async)] {
        let queue_is_empty = async {
            while registration.stats().entries > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), queue_is_empty).await?;
        assert_eq!(handler.highest.load(Ordering::Relaxed), CHANGES, "the {name} handler received the last state");
        assert!(
            handler.calls.load(Ordering::Relaxed) >= 2 * OBJECTS,
            "the {name} handler received a change of every object"
        );
    }
    assert!(config_maps.freshness().is_fresh(), "{}", config_maps.freshness());
    for handler in &stuck_handlers {
        assert_eq!(handler.stats().returned, 0, "the handler is blocked permanently");
        assert!(handler.stats().entries as u64 <= OBJECTS);
    }
    let counts = panicking.stats();
    assert!(counts.panicked > 0 && counts.skipped > 0, "panics are contained and counted: {counts:?}");
    assert_eq!(counts.returned, 0);

    // The calls are still blocked here: a shutdown must not wait for them.
    let undelivered = factory.shutdown();
    // Of the handlers on the blocked runtime, only the first was called.
    assert!(undelivered.running > STUCK_HANDLERS, "the stuck calls are counted: {undelivered:?}");
    assert!(
        undelivered.events as u64 >= STUCK_HANDLERS as u64 * OBJECTS,
        "the undelivered events are counted: {undelivered:?}"
    );
    release.store(true, Ordering::Relaxed);
    Ok(())
}
