//! Handlers with a filter receive a part of their informer's events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::json;
use steadfast::{Certainty, Event, Informer, Registration, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{
    CachedConfigMap, CachedForm, ConfigMapInForm, Recorder, TestError, builder_with_form, history, labelled_config_map,
};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

fn is_web(object: &ConfigMap) -> bool {
    object.labels().get("app").is_some_and(|app| app == "web")
}

fn value(object: &ConfigMap) -> &str {
    object.data.as_ref().and_then(|data| data.get("value")).map_or("none", String::as_str)
}

/// Adds a handler of web objects that logs each event with its values.
fn follow_web(informer: &Informer<ConfigMap>) -> Result<(EventLog, Registration<ConfigMap>), TestError> {
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration = informer.handler().filter(is_web).on_event(move |event| {
        let name = event.object().name_any();
        captured_log.record(match &event {
            Event::Added { object, initial } => {
                format!("Added {name}={}{}", value(object), if *initial { " initially" } else { "" })
            }
            Event::Updated { old, new } => format!("Updated {name}={} to {}", value(old), value(new)),
            Event::Deleted { last, certainty, reason, version } => {
                assert_eq!(version.is_some(), *certainty == Certainty::Observed);
                format!("Deleted {name}={}, {certainty}, {reason}", value(last))
            }
            Event::Resynced { object } => format!("Resynced {name}={}", value(object)),
        });
    })?;
    Ok((log, registration))
}

impl InformerFixture {
    /// Creates or replaces an object with this name, app label and value.
    fn put(&self, name: &str, app: &str, value: &str) -> Result<(), TestError> {
        if self.server.get("configmaps", "default", name).is_err() {
            self.server.create(&labelled_config_map(name, value, ("app", app)))?;
            return Ok(());
        }
        let patch = json!({ "metadata": { "labels": { "app": app } }, "data": { "value": value } });
        self.server.merge_patch("configmaps", "default", name, patch)?;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn filter_entry_adds_and_exit_deletes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.put("a", "web", "1")?;
    fixture.put("b", "db", "1")?;
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let (early_log, _early_registration) = follow_web(&informer)?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let (late_log, registration) = follow_web(&informer)?;
    assert!(registration.until_synced().await);
    for (name, app, value) in
        [("a", "web", "2"), ("b", "web", "2"), ("a", "db", "3"), ("a", "db", "4"), ("c", "db", "1"), ("a", "web", "5")]
    {
        fixture.put(name, app, value)?;
        settle().await;
    }
    for name in ["a", "c"] {
        fixture.server.delete_named("configmaps", "default", name)?;
    }
    settle().await;
    let expected = [
        "Added a=1 initially",
        "Updated a=1 to 2",
        "Added b=2",
        "Deleted a=2, observed, left the handler's filter",
        "Added a=5",
        "Deleted a=5, observed, deleted",
    ];
    assert_eq!(
        (early_log.all(), late_log.all()),
        (expected.map(str::to_owned).to_vec(), expected.map(str::to_owned).to_vec())
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn relist_infers_exit_from_filter() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for (name, app) in [("a", "web"), ("b", "web"), ("c", "db"), ("d", "web")] {
        fixture.put(name, app, "1")?;
    }
    let informer = fixture.synced_informer().await?;
    let (log, _registration) = follow_web(&informer)?;
    settle().await;
    let events_before = log.all().len();
    fixture.server.faults().cut();
    fixture.put("a", "db", "2")?;
    fixture.put("c", "web", "2")?;
    fixture.server.delete_named("configmaps", "default", "b")?;
    fixture.server.delete_named("configmaps", "default", "d")?;
    fixture.put("d", "db", "2")?;
    fixture.server.compact();
    fixture.server.faults().expire_events();
    fixture.server.faults().heal();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        log.all()[events_before..],
        [
            "Deleted b=1, inferred, deleted",
            "Deleted d=1, inferred, replaced",
            "Deleted a=1, inferred, left the handler's filter",
            "Added c=2",
        ]
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_filtered_handler_receives_separate_stays() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.put("a", "web", "1")?;
    let informer = fixture.synced_informer().await?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration = informer.handler().filter(is_web).on_event_async(move |event| {
        captured_log.record(format!("{} {}", event.name(), value(event.object())));
        tokio::time::sleep(Duration::from_secs(10))
    })?;
    settle().await;
    // All changes happen during the first call of the handler.
    for (app, value) in [("web", "2"), ("web", "3"), ("db", "4"), ("web", "5"), ("web", "6")] {
        fixture.put("a", app, value)?;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.all(), ["Added 1", "Deleted 3", "Added 6"]);
    let counts = registration.stats();
    assert_eq!((counts.entries, counts.missed), (0, 0));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn filtered_resync_delivers_matching_objects() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.put("a", "web", "1")?;
    fixture.put("b", "db", "1")?;
    let informer = fixture.synced_informer().await?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let handler = informer.handler().filter(is_web).resync(Duration::from_secs(30));
    handler.on_event(move |event| captured_log.record_event(&event))?;
    tokio::time::sleep(Duration::from_secs(31)).await;
    fixture.put("a", "db", "2")?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(log.all(), ["Added a initially", "Resynced a", "Deleted a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn objects_must_pass_all_filters() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b", "c"] {
        fixture.put(name, "web", "1")?;
    }
    fixture.put("d", "db", "1")?;
    let informer = fixture.synced_informer().await?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let panicking_filter = |object: &ConfigMap| {
        assert_ne!(object.name_any(), "b", "this one is not to my liking");
        object.name_any() != "c"
    };
    let registration = informer
        .handler()
        .filter(is_web)
        .filter(panicking_filter)
        .on_event(move |event| captured_log.record_event(&event))?;
    assert!(registration.until_synced().await);
    assert_eq!(log.all(), ["Added a initially"]);
    let (unfiltered_log, _registration) = super::follow(&informer);
    settle().await;
    assert_eq!(unfiltered_log.all().len(), 4, "handlers without the filter are unaffected");
    Ok(())
}

/// A filter with a changed result is evaluated again at the object's next change.
#[tokio::test(start_paused = true)]
async fn inconsistent_filter_ends_stays_in_order() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.put("a", "web", "1")?;
    let informer = fixture.synced_informer().await?;
    let passes = Arc::new(AtomicBool::new(true));
    let captured_passes = passes.clone();
    let log = EventLog::default();
    let captured_log = log.clone();
    let handler = informer.handler().filter(move |_| captured_passes.load(Ordering::Relaxed));
    assert!(handler.on_event(move |event| captured_log.record_event(&event))?.until_synced().await);
    for (pass, value) in [(false, "2"), (false, "3"), (true, "4"), (true, "5"), (false, "6")] {
        passes.store(pass, Ordering::Relaxed);
        fixture.put("a", "web", value)?;
        settle().await;
    }
    fixture.server.delete_named("configmaps", "default", "a")?;
    settle().await;
    assert_eq!(log.all(), ["Added a initially", "Deleted a", "Added a", "Updated a", "Deleted a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn filter_may_call_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.put("a", "web", "1")?;
    let informer = fixture.synced_informer().await?;
    let (captured_informer, filter_calls) = (informer.clone(), Arc::new(AtomicUsize::new(0)));
    let count = filter_calls.clone();
    let registration = informer
        .handler()
        .filter(move |_| {
            if count.fetch_add(1, Ordering::Relaxed) < 3 {
                drop(captured_informer.on_event(|_| {}));
                captured_informer.index(|object: &ConfigMap| object.metadata.name.clone());
                drop((
                    captured_informer.handlers(),
                    captured_informer.freshness(),
                    captured_informer.lister(),
                    captured_informer.snapshot(),
                ));
            }
            true
        })
        .on_event(|_| {})?;
    assert!(registration.until_synced().await);
    fixture.put("a", "web", "2")?;
    settle().await;
    assert!(filter_calls.load(Ordering::Relaxed) >= 2);
    registration.remove();
    settle().await;
    assert_eq!(
        Arc::strong_count(&filter_calls),
        1,
        "the removal must drop the filter, although the registration exists"
    );
    Ok(())
}

/// The checker treats the filter as a selector: it compares the handler's events with the server's history of matching
/// objects.
#[tokio::test(start_paused = true)]
async fn filtered_handler_keeps_contract() -> Result<(), TestError> {
    let fixture = InformerFixture::with_builder(ApiServer::builder().protobuf(CachedForm::current().protobuf)).await?;
    let recorder = Recorder::of(&fixture.server);
    fixture.put("a", "web", "1")?;
    let informer = builder_with_form(&fixture.factory, Scope::all()).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let is_web = |object: &ConfigMapInForm| object.config_map().is_some_and(|object| is_web(&object));
    let recording = recorder.record_filtered(&informer, "filtered", &Scope::all().labels("app=web"), is_web);
    settle().await;
    for (name, app, value) in [("b", "web", "1"), ("a", "db", "2"), ("a", "web", "3"), ("b", "db", "2")] {
        fixture.put(name, app, value)?;
        settle().await;
    }
    fixture.server.delete_named("configmaps", "default", "a")?;
    recorder.settle(&fixture.server).await;
    assert_eq!(recording.descriptions("default/b"), ["Added", "Deleted Observed DeletedOrLeft"]);
    steadfast_contract::check(&history(&fixture.server, "", "configmaps")?, &recorder.trace())?;
    Ok(())
}
