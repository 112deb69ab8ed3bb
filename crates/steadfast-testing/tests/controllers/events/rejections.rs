//! Rejected events are dropped, and reported without their note.

use std::io::Write;

use parking_lot::Mutex;
use serde_json::json;
use steadfast_apiserver::{InjectedResponse, RequestRule, Status};

use super::*;

/// Log output of one test.
#[derive(Clone, Default)]
struct LogOutput(Arc<Mutex<Vec<u8>>>);

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl LogOutput {
    /// Captures the log output until the guard is dropped.
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let captured_self = self.clone();
        let filter = tracing_subscriber::EnvFilter::new("steadfast_controller=trace");
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
        tracing::subscriber::set_default(subscriber.with_writer(move || captured_self.clone()).finish())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_event_is_dropped_without_its_note() -> Result<(), TestError> {
    let output = LogOutput::default();
    let _capture = output.capture();
    let fixture = EventsFixture::new().await?;
    let refusal = Status::of_code(422).with_details(json!({
        "causes": [{"reason": "FieldValueInvalid", "field": "note", "message": "the password is planted-password"}]
    }));
    fixture.server.faults().respond(RequestRule::any().resource(EVENTS), InjectedResponse::Status(refusal));
    for number in 0..5 {
        fixture.note(&format!("a-{number}"), "the password is planted-password");
    }
    fixture.flush().await?;
    let stats = fixture.events.stats();
    assert_eq!((stats.failed, stats.waiting, fixture.requests().len()), (5, 0, 5));
    let text = output.text();
    assert_eq!(text.matches("events abandoned: the server rejects them").count(), 1, "{text}");
    assert!(text.contains("object=\"ConfigMap default/a-0\"") && text.contains("422"), "{text}");
    assert!(!text.contains("planted-password"), "{text}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn missing_permission_is_logged_with_advice() -> Result<(), TestError> {
    let output = LogOutput::default();
    let _capture = output.capture();
    let fixture = EventsFixture::new().await?;
    fixture.server.faults().respond(RequestRule::any().resource(EVENTS), InjectedResponse::Forbidden);
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    assert!(output.text().contains("grant create and patch on events in events.k8s.io"), "{}", output.text());
    fixture.server.faults().clear_rules();
    fixture.note("a", "it was changed");
    fixture.flush().await?;
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×1"], "a rejected event is not counted");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn recorder_without_patch_creates_separate_events() -> Result<(), TestError> {
    let fixture = EventsFixture::new().await?;
    let rule = RequestRule::any().resource(EVENTS).verb(Verb::Patch);
    fixture.server.faults().respond(rule, InjectedResponse::Forbidden);
    for _ in 0..3 {
        fixture.note("a", "it was changed");
        fixture.flush().await?;
    }
    assert_eq!(fixture.event_texts().await?, ["a: it was changed ×1", "a: it was changed ×1"]);
    let stats = fixture.events.stats();
    assert_eq!((stats.delivered, stats.failed), (2, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropped_events_are_logged_once_a_minute() -> Result<(), TestError> {
    let output = LogOutput::default();
    let _capture = output.capture();
    let fixture = EventsFixture::with_settings(EventSettings { queue: 10, ..EventSettings::default() }).await?;
    fixture.server.faults().freeze(true);
    for number in 0..200 {
        fixture.note(&format!("a-{number}"), "it was changed");
        tokio::time::sleep(SECOND).await;
    }
    let text = output.text();
    assert_eq!(text.matches("events dropped").count(), 4, "{text}");
    assert!(text.contains("count=60"), "{text}");
    Ok(())
}
