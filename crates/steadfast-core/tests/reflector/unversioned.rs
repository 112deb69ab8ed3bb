//! Objects without a version: their substitute versions are never sent to a server or used for a watch.

use std::time::Duration;

use steadfast_core::record::{Bookmark, Identity, ListMeta, RecordKind};
use steadfast_core::reflector::{
    Diagnostic, Input, ListFrom, Output, Record, RecordAction, Reflector, ReflectorSettings, Request, RequestId,
};
use steadfast_core::{Freshness, Instant, ObjectKey, ResourceVersion, Uid};

fn at(seconds: u64) -> Instant {
    Instant::from_zero(Duration::from_secs(seconds))
}

fn sent(outputs: &[Output]) -> Option<(RequestId, Request)> {
    outputs.iter().find_map(|output| match output {
        Output::Send(id, request) => Some((*id, request.clone())),
        _ => None,
    })
}

fn listing(streamed_lists: bool) -> (Reflector, RequestId) {
    let mut reflector =
        Reflector::new(ReflectorSettings { streamed_lists: Some(streamed_lists), ..ReflectorSettings::default() }, 1);
    reflector.step(at(0), Input::Start);
    let (id, _) = sent(&reflector.step(at(0), Input::TransferGranted)).expect("a list");
    reflector.step(at(0), Input::Opened(id));
    (reflector, id)
}

fn unversioned() -> Identity {
    let key = ObjectKey::cluster("a");
    Identity { uid: Uid::by_name(&key), version: ResourceVersion::substitute_for(b"{}"), key }
}

fn meta() -> ListMeta {
    ListMeta { version: Some("9".into()), continue_token: None }
}

#[test]
fn objects_without_versions_are_polled() {
    let (mut reflector, id) = listing(false);
    assert_eq!(reflector.list_item(at(0), id, &unversioned()), RecordAction::Stage);
    let outputs = reflector.step(at(1), Input::ListEnded(id, meta()));
    assert!(outputs.iter().any(|output| matches!(output, Output::Commit { version: None, .. })), "{outputs:?}");
    assert_eq!((sent(&outputs), reflector.version()), (None, None));
    assert!(matches!(reflector.evidence().at(at(1)), Freshness::Fresh { polled: Some(_), .. }));

    let due = reflector.wake_at().expect("a poll");
    reflector.step(due, Input::Tick);
    let (id, request) = sent(&reflector.step(due, Input::TransferGranted)).expect("a list");
    assert!(matches!(request, Request::Page { from: ListFrom::Consistent, .. }), "{request:?}");
    // The objects have versions from here on.
    reflector.list_item(due, id, &Identity { version: "8".into(), ..unversioned() });
    let (_, request) = sent(&reflector.step(due, Input::ListEnded(id, meta()))).expect("a watch");
    assert!(matches!(&request, Request::Watch { from, .. } if from.as_str() == "9"), "{request:?}");
}

#[test]
fn initial_events_without_versions_fall_back_to_pages() {
    let (mut reflector, id) = listing(true);
    let RecordAction::Perform(outputs) = reflector.record(at(1), id, Record::Object(RecordKind::Added, &unversioned()))
    else {
        panic!("the initial events of a stream need versions");
    };
    assert!(outputs.contains(&Output::Cancel(id)) && outputs.contains(&Output::DropStaging), "{outputs:?}");
    let (_, request) = sent(&reflector.step(at(1), Input::TransferGranted)).expect("a list");
    assert!(matches!(request, Request::Page { .. }), "{request:?}");
}

#[test]
fn record_without_version_triggers_list() {
    let (mut reflector, id) = listing(true);
    let end = Bookmark { version: "9".into(), initial_events_end: true };
    reflector.record(at(0), id, Record::Bookmark(&end));
    let RecordAction::Perform(outputs) =
        reflector.record(at(1), id, Record::Object(RecordKind::Deleted, &unversioned()))
    else {
        panic!("a deletion without a version has no place in the order of events");
    };
    let is_reported = |output: &Output| match output {
        Output::Diagnostic(Diagnostic::Unidentified { reason }) => reason.contains("a has no version"),
        _ => false,
    };
    assert!(outputs.iter().any(is_reported), "{outputs:?}");
    assert_eq!(reflector.version().map(ResourceVersion::as_str), Some("9"));
    let outputs = reflector.step(at(1), Input::Tick);
    assert!(outputs.contains(&Output::Cancel(id)), "the watch must be cancelled for a list: {outputs:?}");
}
