//! Caches of other factories that reconciles read, and writes that these caches lack.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{InformerFactory, ObjectKey, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_controller::{Action, Controller, StalePolicy, back_off};
use steadfast_testing::{Children, TestError, config_map};

use super::own_writes::{child_controller_of, context_of, ensure_children};
use super::{ControllerFixture, EventLog, Failure, SECOND, advance, key, start_lagging};

/// Returns the number of children of the only parent that has children.
fn child_count(fixture: &ControllerFixture) -> Vec<usize> {
    Children::of(&fixture.server, "", "pods").max_at_once.into_values().collect()
}

/// Regression test: a cache in doubt beyond the bound ended the wait for the writes of the previous leader. Once the
/// cache was fresh again, reconciles ran although the cache lagged behind these writes.
#[tokio::test(start_paused = true)]
async fn doubtful_cache_stays_paused_until_caught_up() -> Result<(), TestError> {
    let (fixture, other) = (ControllerFixture::new().await?, ControllerFixture::seeded(1).await?);
    fixture.server.create(&config_map("a", "1"))?;
    other.server.create(&config_map("read", "1"))?;
    let read_maps = other.factory.informer::<ConfigMap>(Scope::all())?;
    let log = EventLog::default();
    let (calls, maps) = (log.clone(), read_maps.clone());
    let (release_start, start_released) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all())
        .reads(&read_maps)
        .stale_policy(StalePolicy::pause_except(5 * SECOND, |_| false))
        .start_after(async { drop(start_released.await) })
        .run(
            move |_: Arc<ConfigMap>, _: Arc<()>| {
                let map = maps.lister().ok().and_then(|lister| lister.get("default", "read").ok().flatten());
                let value = map.and_then(|map| map.data.as_ref().and_then(|data| data.get("value").cloned()));
                calls.record(value.unwrap_or_default());
                async { Ok::<_, Failure>(Action::await_change()) }
            },
            back_off,
            Arc::new(()),
        )?;
    advance(SECOND).await;
    other.server.faults().respond(RequestRule::any().resource("configmaps"), InjectedResponse::code(500));
    other.server.faults().end_watches();
    advance(10 * SECOND).await;
    // The lag starts between these two changes. The cache later receives only the first change: it is then fresh, but
    // lacks the write of the previous leader.
    other.server.create(&config_map("unrelated", "1"))?;
    other.server.faults().lag_at(other.server.revision());
    other.write("read", "2")?;
    drop(release_start);
    advance(5 * SECOND).await;
    let stats = controller.stats();
    assert_eq!((stats.paused, stats.catching_up, stats.catch_ups), (true, true, 1), "the start did not wait");

    other.server.faults().clear_rules();
    advance(60 * SECOND).await;
    assert_eq!(log.take(), [""; 0]);
    assert!(controller.stats().paused);

    other.server.faults().lag(false);
    advance(20 * SECOND).await;
    assert_eq!(log.take(), ["2"]);
    let stats = controller.stats();
    assert_eq!((stats.paused, stats.catching_up, stats.catch_ups), (false, false, 1));
    assert!(stats.catch_up_duration > 60 * SECOND, "{stats:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn safe_key_runs_before_catch_up() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    for name in ["safe", "unsafe"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let log = EventLog::default();
    let calls = log.clone();
    let (release_start, start_released) = tokio::sync::oneshot::channel::<()>();
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all())
        .stale_policy(StalePolicy::pause_except(5 * SECOND, |key| key.name() == "safe"))
        .start_after(async { drop(start_released.await) })
        .run_by_key(
            move |key: ObjectKey, _: Arc<()>| {
                calls.record(key.name());
                async { Ok::<_, Failure>(Action::await_change()) }
            },
            back_off,
            Arc::new(()),
        )?;
    advance(SECOND).await;
    fixture.network.cut();
    advance(60 * SECOND).await;
    fixture.write("unsafe", "2")?;
    drop(release_start);
    advance(5 * SECOND).await;
    assert_eq!(log.take(), ["safe"]);
    fixture.network.heal();
    advance(60 * SECOND).await;
    let calls = log.take();
    assert!(calls.contains(&"unsafe".to_owned()), "{calls:?}");
    assert!(!controller.stats().paused);
    Ok(())
}

/// Regression test: with these policies, no wait covered the caches of other factories.
#[tokio::test(start_paused = true)]
async fn own_writes_are_awaited_with_any_policy() -> Result<(), TestError> {
    let policies = [
        StalePolicy::pause_after(20 * SECOND),
        StalePolicy::pause_except(20 * SECOND, |_| false),
        StalePolicy::pause_except(20 * SECOND, |_| true),
        StalePolicy::never_pause(),
    ];
    for policy in policies {
        let fixture = ControllerFixture::new().await?;
        fixture.server.create(&config_map("a", "1"))?;
        let other_factory = InformerFactory::new(&fixture.connection);
        let context = context_of(&fixture.connection, &other_factory)?;
        other_factory.wait_for_sync(SECOND).await?;
        let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all())
            .reads(&context.children)
            .stale_policy(policy.clone());
        let run = |controller: Controller<ConfigMap>| controller.run(ensure_children, back_off, context.clone());
        let controller = start_lagging(&fixture, controller, run).await?;
        advance(SECOND).await;
        controller.queue().add(key("a"));
        advance(3 * SECOND).await;
        assert_eq!(controller.stats().waiting_for_writes, 1, "{policy:?}");
        fixture.server.faults().lag(false);
        advance(20 * SECOND).await;
        assert_eq!(child_count(&fixture), [3], "{policy:?}");
        assert_eq!(controller.stats().waiting_for_writes, 0, "{policy:?}");
    }
    Ok(())
}

/// Regression test: the wait for a key's own writes ended after 30 s of doubt. When the cache was fresh again but still
/// lagged, the next reconcile of the key repeated these writes.
#[tokio::test(start_paused = true)]
async fn unsafe_key_awaits_own_writes_despite_doubt() -> Result<(), TestError> {
    for (is_safe, waiting) in [(false, 1), (true, 0)] {
        let fixture = ControllerFixture::new().await?;
        fixture.server.create(&config_map("a", "1"))?;
        let context = context_of(&fixture.connection, &fixture.factory)?;
        let controller = child_controller_of(&fixture.factory)
            .stale_policy(StalePolicy::pause_except(100 * SECOND, move |_| is_safe))
            .timeout(Duration::from_secs(10));
        let run = |controller: Controller<ConfigMap>| controller.run(ensure_children, back_off, context.clone());
        let controller = start_lagging(&fixture, controller, run).await?;
        advance(SECOND).await;
        assert_eq!(child_count(&fixture), [3]);
        fixture.network.cut();
        controller.queue().add(key("a"));
        advance(10 * SECOND).await;
        assert_eq!(controller.stats().waiting_for_writes, 1, "the doubt is short");
        advance(80 * SECOND).await;
        assert_eq!(controller.stats().waiting_for_writes, waiting, "safe: {is_safe}");
    }
    Ok(())
}
