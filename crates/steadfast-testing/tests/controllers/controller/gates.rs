//! Staleness gate: no reconcile starts on a cache that has been in doubt for longer than a bound.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use steadfast::Scope;
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_controller::{Action, Controller, RunningController, StalePolicy, back_off};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance, key};

async fn start_gated_controller(
    configure: impl FnOnce(&ControllerFixture, Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> Result<(ControllerFixture, RunningController, EventLog), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    let log = EventLog::default();
    let calls = log.clone();
    let controller =
        configure(&fixture, Controller::new(&fixture.factory, Scope::all()).on_diagnostic(log.diagnostic_callback()));
    let controller = controller.run(
        move |map: Arc<ConfigMap>, _: Arc<()>| {
            calls.record(map.name_any());
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    log.take();
    Ok((fixture, controller, log))
}

#[tokio::test(start_paused = true)]
async fn stale_cache_stops_reconciles_after_bound() -> Result<(), TestError> {
    let choose = |_: &ControllerFixture, controller: Controller<ConfigMap>| {
        controller.stale_policy(StalePolicy::pause_after(20 * SECOND))
    };
    let (fixture, controller, log) = start_gated_controller(choose).await?;
    fixture.network.cut();
    advance(10 * SECOND).await;
    controller.queue().add(key("a"));
    advance(Duration::from_millis(100)).await;
    assert_eq!(log.take(), ["a"], "the doubt is within the bound");
    advance(20 * SECOND).await;
    controller.queue().add(key("a"));
    controller.queue().add(key("b"));
    advance(300 * SECOND).await;
    let paused = log.take();
    assert_eq!(paused.len(), 1, "{paused:?}");
    assert!(
        paused[0].starts_with(
            "reconciles are paused, except for safe keys, because a cache is in doubt: configmaps in all namespaces: "
        ),
        "{paused:?}"
    );
    assert!(controller.stats().paused);
    assert_eq!(controller.queue().len(), 2, "pending keys stay in the queue");

    fixture.network.heal();
    advance(20 * SECOND).await;
    let resumed = log.take();
    assert!(resumed[0].starts_with("reconciles resume after a pause of "), "{resumed:?}");
    assert_eq!(resumed[1..], ["a", "b"]);
    let stats = controller.stats();
    assert_eq!((stats.paused, stats.pauses), (false, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn staleness_gate_can_be_disabled() -> Result<(), TestError> {
    let choose =
        |_: &ControllerFixture, controller: Controller<ConfigMap>| controller.stale_policy(StalePolicy::never_pause());
    let (fixture, controller, log) = start_gated_controller(choose).await?;
    fixture.network.cut();
    advance(600 * SECOND).await;
    controller.queue().add(key("a"));
    advance(SECOND).await;
    assert_eq!(log.take(), ["a"]);
    assert_eq!(controller.stats().pauses, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_safe_keys_are_reconciled_during_doubt() -> Result<(), TestError> {
    let safe = |key: &steadfast::ObjectKey| key.name() == "a";
    let choose = |_: &ControllerFixture, controller: Controller<ConfigMap>| {
        controller.stale_policy(StalePolicy::pause_except(20 * SECOND, safe))
    };
    let (fixture, controller, log) = start_gated_controller(choose).await?;
    fixture.network.cut();
    advance(60 * SECOND).await;
    log.take();
    for _ in 0..3 {
        controller.queue().add(key("b"));
        controller.queue().add(key("a"));
        advance(SECOND).await;
    }
    assert_eq!(log.take(), ["a", "a", "a"]);
    assert_eq!(controller.queue().len(), 0);
    fixture.network.heal();
    advance(20 * SECOND).await;
    let resumed = log.take();
    assert!(resumed[0].starts_with("reconciles resume"), "{resumed:?}");
    assert_eq!(resumed[1..], ["b"], "once");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn gate_covers_owned_and_read_caches() -> Result<(), TestError> {
    for (source, counts) in [("owned", true), ("read", true), ("watched", false)] {
        let choose = |fixture: &ControllerFixture, controller: Controller<ConfigMap>| match source {
            "owned" => controller.owns::<Secret>(Scope::all()),
            "read" => match fixture.factory.informer::<Secret>(Scope::all()) {
                Ok(secrets) => controller.reads(&secrets),
                Err(error) => panic!("{error}"),
            },
            _ => controller.watches::<Secret, _>(Scope::all(), |_| [key("a")]),
        };
        let (fixture, controller, log) = start_gated_controller(choose).await?;
        fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::code(403));
        fixture.server.faults().end_watches();
        advance(120 * SECOND).await;
        log.take();
        controller.queue().add(key("a"));
        advance(10 * SECOND).await;
        assert_eq!(controller.stats().paused, counts, "{source}");
        assert_eq!(log.take(), if counts { vec![] } else { vec!["a".to_owned()] }, "{source}");
        fixture.server.faults().clear_rules();
        advance(60 * SECOND).await;
        assert!(!controller.stats().paused, "{source}");
    }
    Ok(())
}
