//! Start and end of controllers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use steadfast::Scope;
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_controller::{Action, Controller, RunningController, StalePolicy, back_off};
use steadfast_testing::{TestError, config_map};
use tokio::sync::oneshot;

use super::{ControllerFixture, EventLog, Failure, SECOND, advance, key, start_lagging};

/// Starts a controller with reconciles of ten seconds. Logs their start and end, and counts those in flight.
fn start_slow_controller(
    fixture: &ControllerFixture,
    log: &EventLog,
    running: &Arc<AtomicUsize>,
    configure: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> Result<RunningController, TestError> {
    struct RunningGuard(Arc<AtomicUsize>);
    impl Drop for RunningGuard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let (calls, running) = (log.clone(), running.clone());
    let controller = configure(
        Controller::new(&fixture.factory, Scope::all()).concurrency(2).on_diagnostic(log.diagnostic_callback()),
    );
    let controller = controller.run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            running.fetch_add(1, Ordering::SeqCst);
            let (calls, running) = (calls.clone(), RunningGuard(running.clone()));
            async move {
                calls.record(format!("begins {}", map.name_any()));
                advance(10 * SECOND).await;
                calls.record(format!("ends {}", map.name_any()));
                drop(running);
                Ok::<_, Failure>(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    );
    Ok(controller?)
}

async fn fixture_with_config_maps(names: &[&str]) -> Result<ControllerFixture, TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in names {
        fixture.server.create(&config_map(name, "1"))?;
    }
    Ok(fixture)
}

#[tokio::test(start_paused = true)]
async fn stop_drains_running_reconciles() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a", "b", "c"]).await?;
    let (log, running) = (EventLog::default(), Arc::default());
    let controller = start_slow_controller(&fixture, &log, &running, |controller| controller)?;
    advance(5 * SECOND).await;
    let start = tokio::time::Instant::now();
    let stop_report = controller.stop(60 * SECOND).await;
    assert!(start.elapsed() < 6 * SECOND, "{:?}", start.elapsed());
    assert_eq!((stop_report.queued, stop_report.cancelled, stop_report.stuck), (1, 0, 0));
    assert_eq!(log.all(), ["begins a", "begins b", "ends a", "ends b"]);
    fixture.write("a", "2")?;
    advance(60 * SECOND).await;
    assert_eq!(log.all().len(), 4, "no reconcile starts after the stop");
    assert_eq!(fixture.server.open_watches(0), 0, "no informer handle remains");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deadline_cancels_running_reconciles() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a", "b", "c"]).await?;
    let (log, running) = (EventLog::default(), Arc::default());
    let controller = start_slow_controller(&fixture, &log, &running, |controller| controller)?;
    advance(5 * SECOND).await;
    assert_eq!(running.load(Ordering::SeqCst), 2);
    let stop_report = controller.stop(2 * SECOND).await;
    assert_eq!((stop_report.queued, stop_report.cancelled, stop_report.stuck), (1, 2, 0));
    assert_eq!(running.load(Ordering::SeqCst), 0);
    advance(60 * SECOND).await;
    assert_eq!(log.all(), ["begins a", "begins b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropped_controller_ends_immediately() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let (log, running) = (EventLog::default(), Arc::default());
    let controller = start_slow_controller(&fixture, &log, &running, |controller| controller)?;
    advance(SECOND).await;
    drop(controller);
    advance(60 * SECOND).await;
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert_eq!(log.all(), ["begins a"]);
    fixture.factory.shutdown();
    drop(fixture.factory);
    drop(fixture.connection);
    advance(60 * SECOND).await;
    assert!(
        fixture.server.connections().iter().all(|connection| connection.ended.is_some()),
        "all connections are closed"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pending_write_wait_ends_with_controller() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let maps = fixture.config_maps();
    let reconcile = move |map: Arc<ConfigMap>, _: Arc<()>| {
        let maps = maps.clone();
        async move {
            let patch = Patch::Merge(json!({ "data": { "value": "own" } }));
            maps.patch(&map.name_any(), &PatchParams::default(), &patch).await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
    };
    let run = |controller: Controller<ConfigMap>| controller.run(reconcile, back_off, Arc::new(()));
    let controller = start_lagging(&fixture, Controller::new(&fixture.factory, Scope::all()), run).await?;
    advance(SECOND).await;
    controller.queue().add(key("a"));
    advance(SECOND).await;
    assert_eq!(controller.stats().waiting_for_writes, 1);
    fixture.assert_stop_closes_connections(controller).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn caches_sync_before_first_reconcile() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let (log, running) = (EventLog::default(), Arc::default());
    let (release_start, start_released) = oneshot::channel::<()>();
    let ready = async { drop(start_released.await) };
    let controller = start_slow_controller(&fixture, &log, &running, |controller| controller.start_after(ready))?;
    advance(100 * SECOND).await;
    assert_eq!(log.all(), [""; 0]);
    assert_eq!(fixture.server.open_watches(0), 1);
    // Liveness probes belong to connections and not to controllers, so only requests for resources count.
    let object_requests = || fixture.server.requests().iter().filter(|request| request.resource.is_some()).count();
    let requests_before = object_requests();
    drop(release_start);
    advance(Duration::from_millis(10)).await;
    assert_eq!(log.all(), ["begins a"]);
    assert_eq!(object_requests(), requests_before + 1, "one version probe, and no other request");
    drop(controller);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn first_reconcile_waits_for_previous_writes() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let (log, running) = (EventLog::default(), Arc::default());
    let (release_start, start_released) = oneshot::channel::<()>();
    let ready = async { drop(start_released.await) };
    let controller = start_slow_controller(&fixture, &log, &running, |controller| controller.start_after(ready))?;
    advance(SECOND).await;
    // Simulates a previous leader whose last write has not reached the lagging caches of its successor.
    fixture.server.faults().lag(true);
    fixture.write("a", "2")?;
    drop(release_start);
    advance(65 * SECOND).await;
    assert_eq!(log.times("begins a").len(), 0, "{:?}", log.all());
    let waits = log.times("keys of another process have waited");
    assert_eq!(waits.len(), 2, "{:?}", log.all());
    let stats = controller.stats();
    assert_eq!((stats.catching_up, stats.catch_ups), (true, 0));
    fixture.server.faults().lag(false);
    advance(20 * SECOND).await;
    assert_eq!(log.times("begins a").len(), 1, "{:?}", log.all());
    let stats = controller.stats();
    assert_eq!((stats.catching_up, stats.catch_ups), (false, 1));
    assert!(stats.catch_up_duration > 60 * SECOND, "{stats:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reconciles_start_after_all_caches_sync() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let slow_secrets = RequestRule::any().resource("secrets");
    fixture.server.faults().delay_matching(slow_secrets, 5 * SECOND);
    let (log, running) = (EventLog::default(), Arc::default());
    let _controller =
        start_slow_controller(&fixture, &log, &running, |controller| controller.owns::<Secret>(Scope::all()))?;
    advance(4 * SECOND).await;
    assert_eq!(log.all(), [""; 0]);
    advance(20 * SECOND).await;
    assert_eq!(log.times("begins a").len(), 1, "{:?}", log.all());
    assert!(log.times("begins a")[0] >= 5 * SECOND);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_read_cache_is_awaited_and_reported() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let slow_secrets = RequestRule::any().resource("secrets");
    fixture.server.faults().delay_matching(slow_secrets, 100 * SECOND);
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    let (log, running) = (EventLog::default(), Arc::default());
    let _controller = start_slow_controller(&fixture, &log, &running, |controller| controller.reads(&secrets))?;
    advance(300 * SECOND).await;
    let events = log.take();
    let prefix = "a source is unavailable, and the first reconciles wait for its cache: secrets in all";
    assert!(events.len() == 1 && events[0].starts_with(prefix), "{events:?}");
    fixture.server.faults().clear_rules();
    advance(60 * SECOND).await;
    assert_eq!(log.times("begins a").len(), 1, "{:?}", log.all());
    Ok(())
}

/// Regression test: the controller waited up to 30 s for every cache of the factory.
#[tokio::test(start_paused = true)]
async fn failing_undeclared_cache_delays_no_controller() -> Result<(), TestError> {
    for code in [500, 503] {
        let fixture = fixture_with_config_maps(&["a"]).await?;
        fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(code));
        let _services = fixture.factory.informer::<Service>(Scope::all())?;
        let (log, running) = (EventLog::default(), Arc::default());
        let _controller = start_slow_controller(&fixture, &log, &running, |controller| controller)?;
        advance(5 * SECOND).await;
        let times = log.times("begins a");
        assert!(times.len() == 1 && times[0] <= SECOND, "{code}: {times:?} {:?}", log.all());
    }
    Ok(())
}

/// A cache with a broken stream delays only those controllers that declare the cache, even if the cache was synced
/// before.
#[tokio::test(start_paused = true)]
async fn undeclared_cache_in_doubt_delays_no_controller() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    advance(SECOND).await;
    fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::code(500));
    fixture.server.faults().end_watches();
    advance(5 * SECOND).await;
    assert!(secrets.has_synced() && !secrets.freshness().is_fresh());
    fixture.server.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "unseen", "namespace": "default" },
    }))?;
    let (log, running) = (EventLog::default(), Arc::default());
    let _controller = start_slow_controller(&fixture, &log, &running, |controller| controller)?;
    advance(5 * SECOND).await;
    let times = log.times("begins a");
    assert!(times.len() == 1 && times[0] <= SECOND, "{times:?} {:?}", log.all());
    Ok(())
}

/// Regression test: with `never_pause`, the controller waited for an owned cache that never synced.
#[tokio::test(start_paused = true)]
async fn never_pause_starts_despite_failed_owned_cache() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(500));
    let (log, running) = (EventLog::default(), Arc::default());
    let _controller = start_slow_controller(&fixture, &log, &running, |controller| {
        controller.owns::<Service>(Scope::all()).stale_policy(StalePolicy::never_pause())
    })?;
    advance(5 * SECOND).await;
    let times = log.times("begins a");
    assert!(times.len() == 1 && times[0] <= SECOND, "{times:?} {:?}", log.all());
    assert_eq!(
        log.times("a source is unavailable, and reconciles run without its cache: services in all namespaces").len(),
        1
    );
    Ok(())
}

/// `never_pause` does not apply to the reconciled objects: their cache must be synced in any case.
#[tokio::test(start_paused = true)]
async fn never_pause_waits_for_reconciled_objects() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["a"]).await?;
    fixture.server.faults().respond(RequestRule::any().resource("configmaps"), InjectedResponse::code(500));
    let (log, running) = (EventLog::default(), Arc::default());
    let _controller = start_slow_controller(&fixture, &log, &running, |controller| {
        controller.stale_policy(StalePolicy::never_pause())
    })?;
    advance(120 * SECOND).await;
    let prefix = "a source is unavailable, and the first reconciles wait for its cache: configmaps in all";
    assert!(log.all().len() == 1 && log.all()[0].starts_with(prefix), "{:?}", log.all());
    fixture.server.faults().clear_rules();
    advance(60 * SECOND).await;
    assert_eq!(log.times("begins a").len(), 1, "{:?}", log.all());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failed_owned_cache_limits_reconciled_keys() -> Result<(), TestError> {
    let fixture = fixture_with_config_maps(&["safe", "unsafe"]).await?;
    fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(500));
    let (log, running) = (EventLog::default(), Arc::default());
    let policy = StalePolicy::pause_except(10 * SECOND, |key| key.name() == "safe");
    let controller = start_slow_controller(&fixture, &log, &running, |controller| {
        controller.owns::<Service>(Scope::all()).stale_policy(policy)
    })?;
    advance(60 * SECOND).await;
    let times = log.times("begins safe");
    assert!(times.len() == 1 && times[0] >= 10 * SECOND && times[0] <= 12 * SECOND, "{:?}", log.all());
    assert_eq!(log.times("begins unsafe").len(), 0, "{:?}", log.all());
    assert!(controller.stats().paused);
    fixture.server.faults().clear_rules();
    advance(60 * SECOND).await;
    assert_eq!(log.times("begins unsafe").len(), 1, "{:?}", log.all());
    Ok(())
}

/// Regression test: a quiet resource's version lags behind the server's version, because other programs write leases
/// all the time. To prove completeness, each cache needed a watch of four seconds, one after the other.
#[tokio::test(start_paused = true)]
async fn quiet_caches_delay_new_leader_one_second() -> Result<(), TestError> {
    for (http2, has_bookmarks) in [(true, true), (true, false), (false, true), (false, false)] {
        let builder = ApiServer::builder().seed(0).in_memory().http2(http2);
        let fixture = ControllerFixture::with_server(0, builder.start().await?).await?;
        fixture.server.create(&config_map("a", "1"))?;
        let (log, running) = (EventLog::default(), Arc::default());
        let (release_start, start_released) = oneshot::channel::<()>();
        let ready = async { drop(start_released.await) };
        let controller = start_slow_controller(&fixture, &log, &running, |controller| {
            controller.owns::<Secret>(Scope::all()).owns::<Service>(Scope::all()).start_after(ready)
        })?;
        let lease = |name: &str| {
            fixture.server.create(&json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": name, "namespace": "default" },
            }))
        };
        advance(30 * SECOND).await;
        lease("first")?;
        advance(60 * SECOND).await;
        fixture.server.faults().no_bookmarks(!has_bookmarks);
        lease("second")?;
        let begun_at = log.start.elapsed();
        drop(release_start);
        advance(20 * SECOND).await;
        let times = log.times("begins a");
        let delay = times.first().map(|started| started.saturating_sub(begun_at));
        assert!(
            delay.is_some_and(|delay| delay <= SECOND * 3 / 2),
            "{http2} {has_bookmarks}: {delay:?} {:?}",
            log.all()
        );
        assert_eq!(controller.stats().catch_ups, 1);
    }
    Ok(())
}
