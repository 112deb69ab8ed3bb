//! Retries of conflicting updates, and the duration metric of reconciles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use steadfast::Scope;
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_controller::{Action, Controller, ControllerMetrics, back_off, retry_on_conflict};
use steadfast_testing::{TestError, config_map};

use super::{ControllerFixture, Failure, SECOND, advance};

#[tokio::test(start_paused = true)]
async fn update_is_repeated_after_conflicts_only() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "0"))?;
    let (maps, attempts) = (fixture.config_maps(), AtomicU32::new(0));
    let update = || async {
        let mut map = maps.get("a").await?;
        // Another client writes between read and update, twice.
        if attempts.fetch_add(1, Ordering::Relaxed) < 2 {
            fixture.write("a", &attempts.load(Ordering::Relaxed).to_string()).map_err(kube::Error::Service)?;
        }
        map.data.get_or_insert_default().insert("own".to_owned(), "1".to_owned());
        maps.replace("a", &PostParams::default(), &map).await
    };
    let map = retry_on_conflict(&fixture.connection, update).await?;
    assert_eq!(attempts.load(Ordering::Relaxed), 3);
    let data = map.data.unwrap_or_default();
    assert_eq!((data["own"].as_str(), data["value"].as_str()), ("1", "2"), "no write is lost");

    // `AlreadyExists` is not a conflict that a retry could solve, although both errors have status 409.
    attempts.store(0, Ordering::Relaxed);
    let create = || {
        attempts.fetch_add(1, Ordering::Relaxed);
        let maps = maps.clone();
        async move { maps.create(&PostParams::default(), &config_map("a", "1")).await }
    };
    assert!(retry_on_conflict(&fixture.connection, create).await.is_err());
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn permanently_conflicting_update_is_tried_five_times() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "0"))?;
    fixture.server.faults().respond(RequestRule::any().verb(Verb::Update), InjectedResponse::code(409));
    let (maps, attempts) = (fixture.config_maps(), AtomicU32::new(0));
    let start = tokio::time::Instant::now();
    let update = || async {
        attempts.fetch_add(1, Ordering::Relaxed);
        maps.replace("a", &PostParams::default(), &maps.get("a").await?).await
    };
    let error = retry_on_conflict(&fixture.connection, update).await.expect_err("a conflict each time");
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 409), "{error}");
    assert_eq!(attempts.load(Ordering::Relaxed), 5);
    let elapsed = start.elapsed();
    assert!(Duration::from_millis(150) <= elapsed && elapsed < Duration::from_millis(350), "{elapsed:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn durations_of_calls_are_counted() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let reconcile = |_: Arc<ConfigMap>, _: Arc<()>| async {
        advance(5 * SECOND).await;
        Ok::<_, Failure>(Action::await_change())
    };
    let controller = Controller::new(&fixture.factory, Scope::all()).run(reconcile, back_off, Arc::new(()))?;
    advance(SECOND).await;
    assert_eq!(controller.durations().count, 0);
    advance(10 * SECOND).await;
    let durations = controller.durations();
    assert_eq!((durations.count, durations.sum), (1, 5 * SECOND));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ControllerMetrics::default().with("maps", &controller)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    let lines = [
        "controller_runtime_reconcile_time_seconds_sum{controller=\"maps\"} 5.0",
        "controller_runtime_reconcile_time_seconds_count{controller=\"maps\"} 1",
        "controller_runtime_reconcile_time_seconds_bucket{le=\"1.0\",controller=\"maps\"} 0",
        "controller_runtime_reconcile_time_seconds_bucket{le=\"10.0\",controller=\"maps\"} 1",
        "steadfast_controller_keys_outside_scope_total{controller=\"maps\"} 0.0",
    ];
    for line in lines {
        assert!(text.lines().any(|other| other == line), "{line} is missing in\n{text}");
    }
    Ok(())
}
