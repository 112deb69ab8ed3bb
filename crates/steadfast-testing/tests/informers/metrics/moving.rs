//! Each metric changes when the counted event happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use steadfast::Scope;
use steadfast_apiserver::ApiServer;
use steadfast_controller::{Action, Controller, back_off};
use steadfast_testing::{TestError, config_map};

use super::{EVENT_TIMEOUT, MetricsFixture, settle};

fn events<'a>(kind: &'a str, source: &'a str) -> [(&'a str, &'a str); 2] {
    [("type", kind), ("source", source)]
}

#[tokio::test(start_paused = true)]
async fn events_are_counted_by_type_and_source() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    let informer = fixture.synced_informer().await?;
    let count = |kind: &str, source: &str| fixture.value("steadfast_informer_events_total", &events(kind, source));
    assert_eq!((count("added", "list")?, count("added", "watch")?), (2.0, 0.0));
    assert_eq!(fixture.value("steadfast_informer_objects", &[])?, 2.0);

    fixture.server.create(&config_map("c", "1"))?;
    let change = serde_json::json!({"data": {"value": "2"}});
    fixture.server.merge_patch("configmaps", "default", "c", change)?;
    fixture.server.delete_named("configmaps", "default", "c")?;
    settle().await;
    assert_eq!((count("added", "watch")?, count("updated", "watch")?, count("deleted", "watch")?), (1.0, 1.0, 1.0));

    fixture.server.faults().cut();
    fixture.server.delete_named("configmaps", "default", "b")?;
    fixture.server.faults().expire_events();
    fixture.server.faults().heal();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((count("deleted", "list")?, count("deleted", "watch")?), (1.0, 1.0));
    let transfers = |cause| fixture.value("steadfast_informer_full_transfers_total", &[("cause", cause)]);
    assert_eq!((transfers("first")?, transfers("expired")?), (1.0, 1.0), "{}", fixture.text()?);
    assert_eq!(fixture.value("steadfast_informer_diagnostics_total", &[("note", "relisted")])?, 1.0);
    let version = informer.snapshot().version().map(|version| version.as_str().parse::<f64>());
    assert_eq!(
        fixture.value("steadfast_informer_resource_version", &[])?,
        version.expect("the informer has a version")?
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn closed_connections_stay_in_counters() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let api: Api<ConfigMap> = Api::default_namespaced(fixture.factory.connection().client());
    assert!(api.get("absent").await.is_err());
    let requests = |verb, code| fixture.value("steadfast_requests_total", &[("verb", verb), ("code", code)]);
    assert_eq!((requests("WATCH", "200")?, requests("GET", "404")?), (1.0, 1.0));
    let ready = [("state", "ready"), ("protocol", "HTTP/2")];
    assert_eq!(fixture.value("steadfast_connections", &ready)?, 2.0, "one connection for watches, one for requests");
    assert_eq!(fixture.value("steadfast_connection_streams", &[("role", "watches")])?, 1.0);
    assert_eq!(fixture.value("steadfast_request_duration_seconds_count", &[("verb", "GET")])?, 1.0);
    let infinite = [("verb", "GET"), ("le", "+Inf")];
    assert_eq!(fixture.value("steadfast_request_duration_seconds_bucket", &infinite)?, 1.0);
    let received_bytes = fixture.value("steadfast_connection_received_bytes_total", &[])?;
    assert!(received_bytes > 500.0 && fixture.value("steadfast_connection_sent_bytes_total", &[])? > 100.0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(fixture.value("steadfast_connection_ping_round_trip_seconds", &[])? >= 0.0);
    assert!(fixture.value("steadfast_connection_silence_seconds", &[])? < 20.0, "pings are received");

    fixture.server.faults().refuse(true);
    fixture.server.faults().reset();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(fixture.scrape()?.sum("steadfast_connections", &ready), (0.0, 0));
    assert_eq!(fixture.value("steadfast_connections_closed_total", &[("cause", "failed")])?, 2.0);
    assert!(fixture.value("steadfast_connection_dial_failures_total", &[("cause", "dial")])? >= 2.0);
    assert!(fixture.value("steadfast_requests_total", &[("verb", "WATCH"), ("code", "dial")])? >= 2.0);
    assert!(
        fixture.value("steadfast_connection_received_bytes_total", &[])? >= received_bytes,
        "a counter never falls"
    );
    let dials = fixture.value("steadfast_connection_dials_total", &[])?;
    assert_eq!(dials, steadfast::unstable::dial_count(fixture.factory.connection()) as f64);

    let lost_labels = [("request", "streamed_list"), ("outcome", "unreachable")];
    assert_eq!(fixture.value("steadfast_informer_requests_ended_total", &lost_labels)?, 1.0);
    assert_eq!(fixture.value("steadfast_informer_freshness", &[("state", "stale")])?, 1.0);
    assert!(fixture.value("steadfast_informer_doubt_seconds", &[])? > 15.0);
    assert!(fixture.value("steadfast_informer_failed_attempts", &[])? >= 3.0);
    assert!(fixture.value("steadfast_informer_diagnostics_total", &[("note", "attempt_failed")])? >= 3.0);
    drop(informer);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn probes_suspicion_and_recovery_are_counted() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let request_count = |request, outcome| {
        fixture.value("steadfast_informer_requests_ended_total", &[("request", request), ("outcome", outcome)])
    };
    fixture.server.faults().no_bookmarks(true);
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert!(request_count("probe", "ended")? >= 2.0, "{}", fixture.text()?);
    assert!(fixture.value("steadfast_informer_diagnostics_total", &[("note", "seeking_proof")])? >= 2.0);
    assert_eq!(fixture.value("steadfast_informer_diagnostics_total", &[("note", "suspect")])?, 0.0);

    fixture.server.faults().freeze_etcd(true);
    fixture.server.faults().stall_streams(true);
    tokio::time::sleep(Duration::from_secs(150)).await;
    assert!(
        fixture.value("steadfast_informer_diagnostics_total", &[("note", "suspect")])? >= 1.0,
        "{}",
        informer.freshness()
    );
    let fresh_value = || fixture.value("steadfast_informer_freshness", &[("state", "fresh")]);
    assert_eq!(fresh_value()?, 0.0, "{}", informer.freshness());
    fixture.server.faults().stall_streams(false);
    fixture.server.faults().freeze_etcd(false);
    fixture.server.faults().no_bookmarks(false);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((fresh_value()?, fixture.value("steadfast_informer_doubt_seconds", &[])?), (1.0, 0.0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn undecodable_object_is_counted_and_tainted() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.faults().undecodable("default", "a", true);
    let informer = fixture.synced_informer().await?;
    assert_eq!(fixture.value("steadfast_informer_decode_failures_total", &[("record", "object")])?, 1.0);
    assert_eq!(fixture.value("steadfast_informer_decode_failures_total", &[("record", "unidentified")])?, 0.0);
    assert_eq!(fixture.value("steadfast_informer_tainted_objects", &[])?, 1.0);
    drop(informer);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stuck_handler_shows_lag_and_queue() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let is_stuck = Arc::new(AtomicBool::new(true));
    let captured_stuck = is_stuck.clone();
    let registration = informer.on_event_async(move |_| {
        let captured_stuck = captured_stuck.clone();
        async move {
            while captured_stuck.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    })?;
    let idle = informer.on_event(|_| {})?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.create(&config_map("b", "1"))?;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let handler_value =
        |name: &str, handler| fixture.value(&format!("steadfast_handler_{name}"), &[("handler", handler)]);
    let lag = handler_value("lag_seconds", "0")?;
    assert!((99.0..=100.0).contains(&lag), "{lag}");
    assert_eq!(
        (handler_value("queue_length", "0")?, handler_value("running_calls", "0")?, handler_value("synced", "0")?),
        (2.0, 1.0, 1.0)
    );
    assert_eq!((handler_value("lag_seconds", "1")?, handler_value("queue_length", "1")?), (0.0, 0.0));
    let returned =
        |handler| fixture.value("steadfast_handler_calls_total", &[("handler", handler), ("result", "returned")]);
    assert_eq!((returned("0")?, returned("1")?), (0.0, 2.0));

    is_stuck.store(false, Ordering::Relaxed);
    tokio::time::sleep(EVENT_TIMEOUT).await;
    assert_eq!(
        (handler_value("lag_seconds", "0")?, handler_value("running_calls", "0")?, returned("0")?),
        (0.0, 0.0, 2.0)
    );
    registration.remove();
    assert!(handler_value("lag_seconds", "0").is_err(), "a removed handler is not in the scrape");
    let third_registration = informer.on_event(|_| {})?;
    assert_eq!((handler_value("synced", "0")?, handler_value("synced", "1")?), (0.0, 1.0));
    third_registration.until_synced().await;
    assert_eq!(handler_value("synced", "0")?, 1.0);
    drop(idle);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panics_and_skipped_events_are_counted() -> Result<(), TestError> {
    let fixture = MetricsFixture::with_builder(ApiServer::builder()).await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let registration = informer.on_event(|_| panic!("clumsy"))?;
    assert!(registration.until_synced().await);
    assert_eq!(fixture.value("steadfast_handler_calls_total", &[("result", "panicked")])?, 4.0);
    assert_eq!(fixture.value("steadfast_handler_skipped_events_total", &[])?, 1.0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn named_handler_exports_call_durations() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).name("settings").start()?;
    let registration = informer.handler().name("dns").on_event_async(|_| tokio::time::sleep(Duration::from_secs(3)))?;
    assert!(registration.until_synced().await);
    let labels = [("informer_name", "settings"), ("handler_name", "dns"), ("handler", "0")];
    let family = "steadfast_handler_call_duration_seconds";
    let value = |name: &str| fixture.value(&format!("{family}_{name}"), &labels);
    assert_eq!((value("count")?, value("sum")?), (2.0, 6.0));
    let bucket = |bound| fixture.value(&format!("{family}_bucket"), &[labels[1], ("le", bound)]);
    assert_eq!((bucket("2.5")?, bucket("5.0")?, bucket("+Inf")?), (0.0, 2.0, 2.0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handlers_of_controllers_have_their_names() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).name("shop");
    let reconcile = |_, _| std::future::ready(Ok::<_, std::convert::Infallible>(Action::await_change()));
    let _controller = controller.run(reconcile, back_off, Arc::new(()))?;
    settle().await;
    let called = [("handler_name", "shop"), ("result", "returned")];
    assert_eq!(fixture.value("steadfast_handler_calls_total", &called)?, 1.0);
    Ok(())
}
