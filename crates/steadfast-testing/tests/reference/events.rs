//! Validation of events by a real server; the embedded server has none. The server must accept each event of the
//! recorder, at each limit. The recorder's limits must not be narrower than the server's.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, Namespace, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use steadfast::Connection;
use steadfast_controller::{EventDraft, EventRecorder};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

use crate::support::EVENT_TIMEOUT;

const TEAM: &str = "team";

/// Maximum lengths of a controller's domain and name, an instance, a word, an object's name, and a note.
const MAX_CONTROLLER_LENGTHS: (usize, usize) = (253, 63);
const MAX_WORD_LENGTH: usize = 128;
const MAX_NAME_LENGTH: usize = 253;
const MAX_NOTE_LENGTH: usize = 1024;

type LengthenField = fn(&mut Event);

fn pod_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(TEAM.to_owned()),
        name: Some(name.to_owned()),
        uid: Some("0b9a1d5e-0000-4000-8000-000000000000".to_owned()),
        resource_version: Some("7".to_owned()),
        field_path: Some("spec.containers{web}".to_owned()),
    }
}

fn draft() -> EventDraft {
    EventDraft::normal("Started", "Starting").note("it was started")
}

async fn send_and_check(
    connection: &Connection,
    controller: &str,
    events: &[(ObjectReference, EventDraft)],
) -> Result<(), TestError> {
    let recorder = EventRecorder::builder(connection, controller).instance("i".repeat(MAX_WORD_LENGTH)).start()?;
    for (reference, event) in events {
        recorder.publish(reference, event.clone());
    }
    recorder.stop(EVENT_TIMEOUT).await?;
    let stats = recorder.stats();
    assert_eq!((stats.delivered, stats.failed), (events.len() as u64, 0), "{controller} {events:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_server_accepts_events_at_limits() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let connection = reference.connection().await?;
    let team = Namespace {
        metadata: ObjectMeta { name: Some(TEAM.to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::all(connection.client()).create(&PostParams::default(), &team).await?;
    long_values_are_truncated(&connection).await?;
    invalid_names_are_accepted(&connection).await?;
    values_over_limits_are_rejected(&connection).await?;
    series_count_is_written(&connection).await?;
    deleted_event_is_recreated(&connection).await?;
    Ok(())
}

/// Checks that longer values are truncated to the maximum that the server accepts.
async fn long_values_are_truncated(connection: &Connection) -> Result<(), TestError> {
    let (domain, name) = MAX_CONTROLLER_LENGTHS;
    let label = "d".repeat(62);
    let domain = format!("{label}.{label}.{label}.{}/{}", "d".repeat(domain - 3 * 63), "c".repeat(name));
    for character in ["a", "é", "…", "🦀"] {
        let event = EventDraft::warning(character.repeat(300), character.repeat(300)).note(character.repeat(2000));
        let longest = pod_reference(&"a".repeat(MAX_NAME_LENGTH));
        send_and_check(connection, &domain, &[(longest.clone(), event.related(&longest))]).await?;
    }
    let events: Api<Event> = Api::namespaced(connection.client(), TEAM);
    let selected = ListParams::default().fields(&format!("reportingController={domain}"));
    let stored = events.list(&selected).await?.items;
    assert_eq!(stored.len(), 4);
    for event in stored {
        let [name, note, reason, action, instance] = [
            event.metadata.name.as_deref(),
            event.note.as_deref(),
            event.reason.as_deref(),
            event.action.as_deref(),
            event.reporting_instance.as_deref(),
        ]
        .map(|text| text.map_or(0, str::len));
        assert_eq!((name, instance), (MAX_NAME_LENGTH, MAX_WORD_LENGTH));
        // Up to three bytes less, if a character of four bytes does not fit.
        assert!((MAX_NOTE_LENGTH - 3..=MAX_NOTE_LENGTH).contains(&note), "{note}");
        assert!((MAX_WORD_LENGTH - 3..=MAX_WORD_LENGTH).contains(&reason) && action == reason, "{reason} {action}");
    }
    Ok(())
}

/// Checks objects with names that are not valid for an event.
async fn invalid_names_are_accepted(connection: &Connection) -> Result<(), TestError> {
    let names = ["system:node:n1", "Upper", "a_b", "1.2.3", "a..b", "-", "", "é", "a.-b"];
    for name in names {
        send_and_check(connection, "names", &[(pod_reference(name), draft())]).await?;
    }
    let without_namespace = ObjectReference { namespace: None, ..pod_reference("n1") };
    send_and_check(connection, "names", &[(without_namespace, draft()), (ObjectReference::default(), draft())]).await?;
    let events: Api<Event> = Api::all(connection.client());
    let stored = events.list(&ListParams::default().fields("reportingController=names")).await?.items;
    assert_eq!(stored.len(), names.len() + 2);
    let in_default = stored.iter().filter(|event| event.metadata.namespace.as_deref() == Some("default"));
    assert_eq!(in_default.count(), 2);
    Ok(())
}

/// Checks that the server rejects one more byte, so that values are not truncated too early.
async fn values_over_limits_are_rejected(connection: &Connection) -> Result<(), TestError> {
    send_and_check(connection, "limits", &[(pod_reference("limits"), draft())]).await?;
    let events: Api<Event> = Api::namespaced(connection.client(), TEAM);
    let stored = events.list(&ListParams::default().fields("reportingController=limits")).await?.items;
    let accepted = stored.first().ok_or("the event must exist")?;
    let lengthened_fields: [(&str, LengthenField); 6] = [
        ("note", |event| event.note = Some("n".repeat(MAX_NOTE_LENGTH + 1))),
        ("reason", |event| event.reason = Some("r".repeat(MAX_WORD_LENGTH + 1))),
        ("action", |event| event.action = Some("a".repeat(MAX_WORD_LENGTH + 1))),
        ("reportingInstance", |event| event.reporting_instance = Some("i".repeat(MAX_WORD_LENGTH + 1))),
        ("name", |event| event.metadata.name = Some("n".repeat(MAX_NAME_LENGTH + 1))),
        ("reportingController", |event| event.reporting_controller = Some("c".repeat(MAX_CONTROLLER_LENGTHS.1 + 1))),
    ];
    for (field, lengthen) in lengthened_fields {
        let mut event = accepted.clone();
        event.metadata = ObjectMeta { name: Some(format!("l-{}", field.to_lowercase())), ..ObjectMeta::default() };
        let result = events.create(&PostParams::default(), &event).await;
        assert!(result.is_ok(), "{field}: {result:?}");
        event.metadata.name = Some(format!("m-{}", field.to_lowercase()));
        lengthen(&mut event);
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 422, "{field}: {status:?}"),
            other => return Err(format!("{field}: {other:?}").into()),
        }
    }
    Ok(())
}

/// Checks the written count of a series, read through both API groups that serve events.
async fn series_count_is_written(connection: &Connection) -> Result<(), TestError> {
    let recorder = EventRecorder::new(connection, "series")?;
    for _ in 0..3 {
        recorder.publish(&pod_reference("web-0"), draft());
        recorder.flush(EVENT_TIMEOUT).await?;
    }
    for number in 0..20 {
        recorder.publish(&pod_reference("web-1"), draft().note(format!("change {number}")));
    }
    recorder.stop(EVENT_TIMEOUT).await?;
    let stats = recorder.stats();
    assert_eq!((stats.delivered, stats.creates, stats.patches), (23, 11, 2));
    let selected = ListParams::default().fields("reportingController=series");
    let stored = Api::<Event>::namespaced(connection.client(), TEAM).list(&selected).await?.items;
    assert_eq!(stored.len(), 11);
    let series = stored.iter().find(|event| event.series.as_ref().is_some_and(|series| series.count == 3));
    let series = series.ok_or("the series of three must exist")?;
    assert_eq!(series.note.as_deref(), Some("it was started"));
    let last_time = series.series.as_ref().map(|series| series.last_observed_time.clone());
    assert!(last_time > series.event_time, "{series:?}");
    // As in client-go, the tenth similar event within ten minutes starts a combined event.
    let combined = stored.iter().find(|event| event.series.as_ref().is_some_and(|series| series.count == 11));
    let note = combined.and_then(|event| event.note.as_deref());
    assert_eq!(note, Some("(combined from similar events): change 9"));
    let name = series.metadata.name.as_deref().unwrap_or_default();
    let core_event = Api::<CoreEvent>::namespaced(connection.client(), TEAM).get(name).await?;
    assert_eq!(core_event.series.and_then(|series| series.count), Some(3));
    assert_eq!(
        (core_event.message.as_deref(), core_event.involved_object.name.as_deref()),
        (Some("it was started"), Some("web-0"))
    );
    Ok(())
}

async fn deleted_event_is_recreated(connection: &Connection) -> Result<(), TestError> {
    let recorder = EventRecorder::new(connection, "gone")?;
    let events: Api<Event> = Api::namespaced(connection.client(), TEAM);
    let selected = ListParams::default().fields("reportingController=gone");
    recorder.publish(&pod_reference("web-0"), draft());
    recorder.flush(EVENT_TIMEOUT).await?;
    events.delete_collection(&kube::api::DeleteParams::default(), &selected).await?;
    recorder.publish(&pod_reference("web-0"), draft());
    recorder.publish(&ObjectReference { namespace: Some("nowhere".to_owned()), ..pod_reference("web-0") }, draft());
    recorder.stop(EVENT_TIMEOUT).await?;
    let stored = events.list(&selected).await?.items;
    let counts: Vec<_> = stored.iter().filter_map(|event| Some(event.series.as_ref()?.count)).collect();
    assert_eq!((stored.len(), counts), (1, vec![2]));
    let stats = recorder.stats();
    assert_eq!((stats.delivered, stats.failed, stats.retries), (2, 1, 1), "the namespace does not exist");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_during_kill_are_delivered_later() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    let connection = reference.connection().await?;
    let recorder = EventRecorder::new(&connection, "killed")?;
    let in_default = |number: usize| ObjectReference { namespace: None, ..pod_reference(&format!("web-{number}")) };
    for number in 0..40 {
        recorder.publish(&in_default(number), draft());
        if number == 20 {
            reference.kill(0);
        }
        // Some requests are in flight when the server is killed.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    reference.start_again(0).await?;
    recorder.flush(2 * EVENT_TIMEOUT).await?;
    let events: Api<Event> = Api::namespaced(connection.client(), "default");
    let stored = events.list(&ListParams::default().fields("reportingController=killed")).await?.items;
    assert_eq!(stored.len(), 40);
    assert!(stored.iter().all(|event| event.series.is_none()));
    assert_eq!(recorder.stats().delivered, 40);
    Ok(())
}
