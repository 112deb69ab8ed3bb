//! Reconciles that fail, block, never return or requeue immediately. Each is bounded and reported, and delays no
//! other key.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::{Connection, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_controller::{Action, Controller, RunningController, back_off};
use steadfast_testing::{TestError, config_map, kube_config, until};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance};

/// Creates a fixture with the objects `bad` and `good`. The reconcile of the object `bad` runs `reconcile_bad`.
async fn fixture_with_bad_key<F, Fut>(
    log: &EventLog,
    reconcile_bad: F,
    configure: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> Result<(ControllerFixture, RunningController), TestError>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Failure>> + Send + 'static,
{
    let fixture = ControllerFixture::new().await?;
    for name in ["bad", "good"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let calls = log.clone();
    let reconcile_bad = Arc::new(reconcile_bad);
    let controller =
        configure(Controller::new(&fixture.factory, Scope::all()).on_diagnostic(log.diagnostic_callback()));
    let controller = controller.run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            let (name, reconcile_bad) = (map.name_any(), reconcile_bad.clone());
            calls.record(format!("call {name}"));
            async move {
                if name == "bad" {
                    return reconcile_bad().await;
                }
                Ok(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    )?;
    Ok((fixture, controller))
}

/// Changes the healthy object, and checks that a reconcile follows promptly.
async fn assert_healthy_key_reconciled(fixture: &ControllerFixture, log: &EventLog) -> Result<(), TestError> {
    let calls_before = log.times("call good").len();
    for round in 0..5 {
        fixture.write("good", &format!("round {round}"))?;
        advance(Duration::from_millis(100)).await;
    }
    assert_eq!(log.times("call good").len(), calls_before + 5, "{:?}", log.all());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_reconcile_is_retried_with_backoff() -> Result<(), TestError> {
    let log = EventLog::default();
    let (fixture, controller) =
        fixture_with_bad_key(&log, || async { Err(Failure("no way".into())) }, |controller| controller.concurrency(1))
            .await?;
    advance(1000 * SECOND).await;
    let calls = log.times("call bad");
    // The backoff doubles from 5 ms up to 1,000 s. The jitter shortens each delay by up to half. This bounds the number
    // of attempts in 1,000 s.
    assert!((15..=20).contains(&calls.len()), "{} calls", calls.len());
    assert_healthy_key_reconciled(&fixture, &log).await?;
    let failures = log.times("reconcile of default/bad failed: no way");
    assert_eq!(failures.len(), calls.len());
    assert!(
        log.all().iter().any(|text| text.starts_with("reconcile of default/bad failed: no way; 3 in a row, retry in ")),
        "{:?}",
        log.all()
    );
    assert_eq!(controller.stats().failed, calls.len() as u64);
    assert_eq!(controller.queue().stats().retries, calls.len() as u64);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panicking_reconcile_counts_as_failed() -> Result<(), TestError> {
    let log = EventLog::default();
    let (fixture, controller) =
        fixture_with_bad_key(&log, || async { panic!("by design") }, |controller| controller.concurrency(1)).await?;
    advance(60 * SECOND).await;
    let calls = log.times("call bad").len();
    assert!((10..=16).contains(&calls), "{calls}");
    assert_healthy_key_reconciled(&fixture, &log).await?;
    assert_eq!(log.times("reconcile of default/bad panicked: by design; retry in").len(), calls);
    assert_eq!((controller.stats().panicked, controller.stats().running), (calls as u64, 0));
    Ok(())
}

/// Value that panics on drop.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "in the drop");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_drop_ends_no_worker() -> Result<(), TestError> {
    for panics_in_call in [true, false] {
        let log = EventLog::default();
        let reconcile_bad = move || async move {
            if panics_in_call {
                std::panic::panic_any(PanicsOnDrop);
            }
            let _panics_on_drop = PanicsOnDrop;
            std::future::pending().await
        };
        let configure = |controller: Controller<ConfigMap>| controller.concurrency(1).timeout(SECOND / 20);
        let (fixture, controller) = fixture_with_bad_key(&log, reconcile_bad, configure).await?;
        advance(30 * SECOND).await;
        assert_healthy_key_reconciled(&fixture, &log).await?;
        let panics = log.times("reconcile of default/bad panicked").len();
        assert!(panics > 3, "the key is reconciled again: {:?}", log.all());
        assert!(controller.stats().running <= 1, "{:?}", controller.stats());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hanging_reconcile_is_cancelled_and_fails() -> Result<(), TestError> {
    let log = EventLog::default();
    let configure = |controller: Controller<ConfigMap>| controller.concurrency(2).timeout(10 * SECOND);
    let (fixture, controller) = fixture_with_bad_key(&log, std::future::pending, configure).await?;
    advance(5 * SECOND).await;
    assert_eq!(controller.stats().running, 1);
    assert_healthy_key_reconciled(&fixture, &log).await?;
    advance(100 * SECOND).await;
    let calls = log.times("call bad");
    assert!(calls.windows(2).all(|pair| pair[1] >= pair[0] + 10 * SECOND), "{calls:?}");
    assert_eq!(
        log.times("reconcile of default/bad timed out after 10.0s and was cancelled; retry in").len(),
        calls.len() - 1
    );
    assert_eq!(controller.stats().timed_out, calls.len() as u64 - 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reconciles_are_bounded_and_exclusive_per_key() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for number in 0..20 {
        fixture.server.create(&config_map(&format!("m{number}"), "1"))?;
    }
    let (running, max_running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running_count, max_count) = (running.clone(), max_running.clone());
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).concurrency(4).run(
        move |_, _| {
            let (running_count, max_count) = (running_count.clone(), max_count.clone());
            async move {
                max_count.fetch_max(running_count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                advance(SECOND).await;
                running_count.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, Failure>(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND / 2).await;
    for _ in 0..10 {
        controller.queue().add(super::key("m0"));
    }
    advance(60 * SECOND).await;
    assert_eq!(max_running.load(Ordering::SeqCst), 4);
    assert_eq!(controller.stats().succeeded, 21, "once each, and the first once more");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn immediate_requeues_are_slowed_down() -> Result<(), TestError> {
    let log = EventLog::default();
    let requeue = || async { Ok(Action::requeue(Duration::ZERO)) };
    let (fixture, controller) = fixture_with_bad_key(&log, requeue, |controller| controller.concurrency(1)).await?;
    advance(100 * SECOND).await;
    let calls = log.times("call bad").len();
    assert!((100..140).contains(&calls), "{calls} calls in a hundred seconds");
    assert_eq!(log.times("default/bad requeued at once 11 times in a row").len(), 1);
    assert_eq!(controller.stats().slowed, 1);
    assert_healthy_key_reconciled(&fixture, &log).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn error_policy_determines_requeue() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let calls = log.clone();
    let _controller =
        Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).on_diagnostic(log.diagnostic_callback()).run(
            move |map: Arc<ConfigMap>, _| {
                calls.record("call");
                async move { Err(Failure(map.data.as_ref().map_or_else(String::new, |data| data["value"].clone()))) }
            },
            |_, error: &Failure, _| if error.0 == "1" { Action::requeue(10 * SECOND) } else { Action::await_change() },
            Arc::new(()),
        )?;
    advance(25 * SECOND).await;
    assert_eq!(log.times("call").len(), 3);
    assert!(log.take().contains(&"reconcile of default/a failed: 1; 1 in a row, retry in 10.0s".to_owned()));
    fixture.write("a", "2")?;
    advance(100 * SECOND).await;
    let events = log.take();
    assert_eq!(events[..2], ["call", "reconcile of default/a failed: 2; 1 in a row, no retry until a change"]);
    // The error policy awaits a change. Only the change and pending requeues may lead to further reconciles.
    assert!(events.len() <= 4, "{events:?}");
    Ok(())
}

/// Runs on real threads, because virtual time does not advance while a thread is blocked.
#[test]
fn blocking_reconcile_is_reported_and_replaced() -> Result<(), TestError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build()?;
    runtime.block_on(async {
        let server = ApiServer::start().await?;
        for name in ["bad", "good"] {
            server.create(&config_map(name, "1"))?;
        }
        let connection = Connection::new(kube_config(&server).await?)?;
        let factory = InformerFactory::new(&connection);
        let log = EventLog::default();
        let (calls, (release, release_receiver)) = (log.clone(), std::sync::mpsc::channel::<()>());
        let release_receiver = Arc::new(parking_lot::Mutex::new(release_receiver));
        let controller = Controller::<ConfigMap>::new(&factory, Scope::all())
            .concurrency(1)
            .on_diagnostic(log.diagnostic_callback())
            .run(
                move |map: Arc<ConfigMap>, _| {
                    let (calls, release_receiver) = (calls.clone(), release_receiver.clone());
                    async move {
                        calls.record(format!("call {}", map.name_any()));
                        if map.name_any() == "bad" {
                            // Blocks until the test ends.
                            release_receiver.lock().recv().unwrap_or_default();
                        }
                        Ok::<_, Failure>(Action::await_change())
                    }
                },
                back_off,
                Arc::new(()),
            )?;
        let limit = Duration::from_secs(60);
        until(limit, || controller.stats().blocked == 1).await?;
        until(limit, || !log.times("reconcile of default/bad has blocked its thread").is_empty()).await?;
        for round in 0..20 {
            let calls_before = log.times("call good").len();
            let patch = serde_json::json!({ "data": { "value": round.to_string() } });
            server.merge_patch("configmaps", "default", "good", patch)?;
            until(limit, || log.times("call good").len() > calls_before).await?;
        }
        assert_eq!(log.times("call bad").len(), 1);
        release.send(())?;
        until(limit, || controller.stats().blocked == 0 && controller.stats().running == 0).await?;
        Ok(())
    })
}
