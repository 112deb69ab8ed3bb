//! Text of printed events, errors, diagnostics and log lines.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ApiResource, DynamicObject};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Diagnostic, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_testing::{TestError, config_map};

use super::{CapturedLog, EVENT_TIMEOUT, EventLog, InformerFixture, follow, settle};

#[tokio::test(start_paused = true)]
async fn printed_event_omits_object_content() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let secret = |value: &str| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "door" }, "stringData": { "key": value } });
    fixture.server.create(&secret("planted-1"))?;
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    let log = EventLog::default();
    let captured_log = log.clone();
    secrets.on_event(move |event| captured_log.record(format!("{event:?}")))?;
    settle().await;
    fixture.server.merge_patch("secrets", "default", "door", json!({ "stringData": { "key": "planted-2" } }))?;
    settle().await;
    fixture.server.delete_named("secrets", "default", "door")?;
    settle().await;
    let log = log.all();
    let starts = [
        "Added { object: Secret default/door v",
        "Updated { object: Secret default/door v",
        "Deleted { object: Secret default/door v",
    ];
    assert_eq!(log.len(), starts.len(), "{log:#?}");
    for (line, start) in log.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
        // Values of secrets are base64 in JSON, so both forms must be absent.
        assert!(!line.contains("planted") && !line.contains("cGxhbnRlZ"), "{line}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn missing_kind_is_named_with_its_remedy() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let kind = ApiResource {
        group: "trial.example".into(),
        version: "v1".into(),
        api_version: "trial.example/v1".into(),
        kind: "Lamp".into(),
        plural: "lamps".into(),
    };
    let lamps = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    let error = fixture.factory.wait_for_sync(EVENT_TIMEOUT).await.expect_err("the kind does not exist");
    let freshness = lamps.freshness().to_string();
    for messages in [error.to_string(), freshness] {
        assert!(messages.contains("the server does not serve the kind Lamp of trial.example/v1"), "{messages}");
        assert!(messages.contains("install the CustomResourceDefinition lamps.trial.example"), "{messages}");
    }
    assert_eq!(format!("{error:?}"), error.to_string(), "a `main` that returns it prints `Debug`");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lost_watch_error_omits_write_warning() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let messages = Arc::<Mutex<Vec<String>>>::default();
    let captured_messages = messages.clone();
    informer.on_diagnostic(move |note| captured_messages.lock().push(note.to_string()));
    let record = |text: String| messages.lock().push(text);
    let faults = fixture.server.faults();
    for is_frozen in [false, true] {
        if is_frozen {
            faults.freeze(true);
        } else {
            faults.cut();
        }
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            record(informer.freshness().to_string());
        }
        faults.freeze(false);
        faults.heal();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    faults.reset();
    record(informer.freshness().to_string());
    tokio::time::sleep(EVENT_TIMEOUT).await;
    let messages = messages.lock().clone();
    assert!(messages.iter().any(|line| line.contains("was lost")), "{messages:#?}");
    let write_warnings: Vec<_> =
        messages.iter().filter(|line| line.contains("execute") || line.contains("a write")).collect();
    assert!(write_warnings.is_empty(), "{write_warnings:#?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropping_informer_with_handlers_warns() -> Result<(), TestError> {
    let captured_log = CapturedLog::capture();
    let warnings = || captured_log.lines("this informer and its factory were dropped");
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let (_told, registration) = follow(&informer);
    drop(informer);
    settle().await;
    assert!(warnings().is_empty(), "the factory still exists");
    drop(fixture.factory);
    settle().await;
    assert_eq!(warnings().len(), 1, "{:#?}", warnings());
    assert!(warnings()[0].contains("WARN") && warnings()[0].contains("handlers=1"), "{:#?}", warnings());
    assert!(warnings()[0].contains("configmaps in all namespaces"), "{:#?}", warnings());
    drop(registration);

    // The drop causes no warning after a stop, after the removal of all handlers, or without handlers, because it is
    // intended in these cases.
    for end in 0..4 {
        let fixture = InformerFixture::new().await?;
        let informer = fixture.synced_informer().await?;
        match end {
            0 => {}
            1 => {
                follow(&informer).1.remove();
            }
            2 => {
                follow(&informer);
                informer.stop();
            }
            _ => drop(steadfast::watch::<Secret>(fixture.factory.connection(), Scope::all())?),
        }
        drop((informer, fixture.factory));
        settle().await;
    }
    assert_eq!(warnings().len(), 1, "{:#?}", warnings());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn denied_list_reports_code_and_reason() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::code(403));
    let (captured_log, log) = (CapturedLog::capture(), EventLog::default());
    let diagnostics = log.clone();
    let secrets = fixture.factory.builder::<Secret>(Scope::all()).name("passwords").on_diagnostic(move |diagnostic| {
        if let Diagnostic::Failed { code, reason, .. } = diagnostic {
            diagnostics.record(format!("{code:?} {reason:?}"));
        }
    });
    let secrets = secrets.start()?;
    settle().await;
    assert_eq!(log.all().first().map(String::as_str), Some("Some(403) Some(\"Forbidden\")"));
    let lines = captured_log.lines("informer=passwords (secrets in all namespaces)");
    assert!(lines.iter().any(|line| line.contains("code=403 reason=\"Forbidden\"")), "{lines:?}");
    drop(secrets);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panic_log_names_handler_and_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let captured_log = CapturedLog::capture();
    let informer = fixture.synced_informer().await?;
    let named_handler = informer.handler().name("dns").on_event_async(|_| async { panic!("clumsy") })?;
    named_handler.until_synced().await;
    assert_eq!(captured_log.lines("handler=dns key=default/a").len(), 4);
    let unnamed_handler = informer.on_event_async(|_| async { panic!("clumsy") })?;
    unnamed_handler.until_synced().await;
    assert_eq!(captured_log.lines("informer=configmaps in all namespaces handler=1 key=default/a").len(), 4);
    Ok(())
}
