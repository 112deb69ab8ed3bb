//! Proofs of freshness, their times, and the duration of a doubt (C10).

use std::time::Duration;

use steadfast_core::record::{Bookmark, Identity, ListMeta, RecordKind, Status};
use steadfast_core::reflector::{
    Failure, Input, ListFrom, Output, Record, RecordAction, Reflector, ReflectorSettings, Request, RequestId,
};
use steadfast_core::{Freshness, Instant, ObjectKey, ResourceVersion};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::from_zero(SECOND * u32::try_from(seconds).expect("a short test"))
}

fn sent(outputs: &[Output]) -> (RequestId, Request) {
    let sent = outputs.iter().find_map(|output| match output {
        Output::Send(id, request) => Some((*id, request.clone())),
        _ => None,
    });
    sent.expect("a request")
}

fn meta(version: &str, token: Option<&str>) -> ListMeta {
    ListMeta { version: Some(ResourceVersion::from(version)), continue_token: token.map(str::to_owned) }
}

fn streamed() -> ReflectorSettings {
    ReflectorSettings { streamed_lists: Some(true), ..ReflectorSettings::default() }
}

/// Creates a reflector that requested its first list at second 0, and returns its request.
fn listing(settings: ReflectorSettings) -> (Reflector, RequestId) {
    let mut reflector = Reflector::new(settings, 1);
    reflector.step(at(0), Input::Start);
    let (id, _) = sent(&reflector.step(at(0), Input::TransferGranted));
    (reflector, id)
}

fn end_of_initial_events(version: &str) -> Bookmark {
    Bookmark { version: version.into(), initial_events_end: true }
}

/// Creates a reflector with version 9 since second 0, and returns its watch.
pub(crate) fn watching() -> (Reflector, RequestId) {
    let (mut reflector, id) = listing(streamed());
    reflector.step(at(0), Input::Opened(id));
    reflector.record(at(0), id, Record::Bookmark(&end_of_initial_events("9")));
    (reflector, id)
}

/// Returns the reported age at `now`.
fn age(reflector: &Reflector, now: Instant) -> Duration {
    match reflector.evidence().at(now) {
        Freshness::Fresh { age, .. } => age,
        doubt => panic!("{doubt}"),
    }
}

#[test]
fn paged_list_proves_time_of_first_request() {
    let (mut reflector, mut id) =
        listing(ReflectorSettings { streamed_lists: Some(false), ..ReflectorSettings::default() });
    for page in 1..=3 {
        reflector.step(at(page * 25), Input::Opened(id));
        let identity = Identity { key: ObjectKey::cluster("a"), uid: "u".into(), version: "1".into() };
        reflector.list_item(at(page * 25), id, &identity);
        id = sent(&reflector.step(at(page * 25), Input::ListEnded(id, meta("100", Some(&format!("t{page}")))))).0;
    }
    reflector.step(at(90), Input::Opened(id));
    let (watch, request) = sent(&reflector.step(at(90), Input::ListEnded(id, meta("100", None))));
    assert!(matches!(request, Request::Watch { .. }), "{request:?}");
    // The pages of a list are from one snapshot, which may be as old as the first request.
    assert_eq!(age(&reflector, at(95)), SECOND * 95);
    // The proof is older than a period, so the reflector requests another proof at the start of the stream.
    reflector.step(at(96), Input::Opened(watch));
    assert_eq!(reflector.wake_at().map(|due| due <= at(96)), Some(true), "{:?}", reflector.wake_at());
}

#[test]
fn list_longer_than_two_periods_is_stale() {
    let (mut reflector, mut id) =
        listing(ReflectorSettings { streamed_lists: Some(false), ..ReflectorSettings::default() });
    for page in 1..=6 {
        id = sent(&reflector.step(at(page * 25), Input::ListEnded(id, meta("100", Some(&format!("t{page}")))))).0;
    }
    reflector.step(at(151), Input::ListEnded(id, meta("100", None)));
    assert_eq!(reflector.evidence().at(at(151)).name(), "stale");
}

#[test]
fn initial_events_prove_time_of_request() {
    let (mut reflector, id) = listing(streamed());
    reflector.step(at(3), Input::Opened(id));
    reflector.record(at(20), id, Record::Bookmark(&end_of_initial_events("9")));
    // The initial events are a consistent list at the time of the request (KEP-3157), not of the arrival.
    assert_eq!(age(&reflector, at(20)), SECOND * 20);
    let later = Bookmark { version: "10".into(), initial_events_end: false };
    reflector.record(at(21), id, Record::Bookmark(&later));
    assert_eq!(age(&reflector, at(21)), Duration::ZERO, "a later record of the stream proves its arrival time");
}

/// Lets `watch` expire at second 30, and requests a list that is not older than the cache. Returns the list and the time
/// of its request.
fn relist(reflector: &mut Reflector, watch: RequestId) -> (RequestId, Instant) {
    let expired = Status { code: 410, reason: "Expired".into(), ..Status::default() };
    reflector.record(at(30), watch, Record::Error(&expired));
    let due = reflector.wake_at().expect("a list");
    reflector.step(due, Input::Tick);
    let (list, request) = sent(&reflector.step(due, Input::TransferGranted));
    assert!(matches!(request, Request::StreamedList { from: ListFrom::NotOlderThan(_), .. }), "{request:?}");
    reflector.step(at(31), Input::Opened(list));
    (list, due)
}

/// A replica that lags may send a newer list that lacks changes from before the request.
#[test]
fn newer_list_after_break_is_no_proof() {
    let (mut reflector, watch) = watching();
    let (list, _) = relist(&mut reflector, watch);
    reflector.record(at(33), list, Record::Bookmark(&end_of_initial_events("12")));
    let state = reflector.evidence().at(at(33));
    let last_proof_age = state.doubt().and_then(|doubt| doubt.age);
    assert_eq!((state.name(), last_proof_age), ("resuming", Some(SECOND * 33)), "{state}");
    apply_event(&mut reflector, at(33), list, "13");
    assert_eq!(reflector.evidence().at(at(33)).name(), "resuming", "the replica may still lag");
    let due = reflector.wake_at().expect("a probe");
    assert!(due <= at(34), "{due}");
    let (probe, request) = sent(&reflector.step(due, Input::Tick));
    assert!(matches!(request, Request::Probe { .. }), "{request:?}");
    reflector.step(due, Input::Probed(probe, Some("14".into()), due));
    assert_eq!(reflector.evidence().at(due).name(), "resuming", "the cache lacks changes up to version 14");
    apply_event(&mut reflector, at(35), list, "14");
    assert_eq!(age(&reflector, at(35)), at(35).since(due), "the proof is as old as the probe");
}

/// A server that rejects probes permits no check, so its lists are proofs like its events.
#[test]
fn newer_list_without_probes_proves_time_of_request() {
    let (mut reflector, watch) = watching();
    let (probe, _) = sent(&reflector.step(at(1), Input::SeekProof));
    let denied = Status { code: 403, reason: "Forbidden".into(), ..Status::default() };
    reflector.step(at(1), Input::Failed(probe, Failure::from_status(&denied, None)));
    let (list, requested) = relist(&mut reflector, watch);
    reflector.record(at(33), list, Record::Bookmark(&end_of_initial_events("12")));
    assert_eq!(age(&reflector, at(33)), at(33).since(requested));
}

/// Applies an event of the watch at `version`.
fn apply_event(reflector: &mut Reflector, now: Instant, watch: RequestId, version: &str) {
    let identity = Identity { key: ObjectKey::cluster("a"), uid: "u".into(), version: version.into() };
    let action = reflector.record(now, watch, Record::Object(RecordKind::Modified, &identity));
    assert!(matches!(action, RecordAction::Apply), "{action:?}");
}

#[test]
fn event_after_freeze_is_no_proof() {
    let (mut reflector, watch) = watching();
    let outputs = reflector.step(at(30), Input::Frozen);
    assert!(outputs.is_empty(), "the stream may still be intact: {outputs:?}");
    // The event may have been in the socket's buffer since the start of the freeze.
    apply_event(&mut reflector, at(30), watch, "10");
    assert_eq!(age(&reflector, at(30)), SECOND * 30);
    let due = reflector.wake_at().expect("a probe");
    assert!(due <= at(31), "{due}");
    let (probe, request) = sent(&reflector.step(due, Input::Tick));
    assert!(matches!(request, Request::Probe { since } if since >= at(30)), "{request:?}");
    reflector.step(due, Input::Probed(probe, Some("12".into()), due));
    apply_event(&mut reflector, at(31), watch, "11");
    assert_eq!(age(&reflector, at(31)), SECOND * 31, "the watch has not reached the version of the probe");
    apply_event(&mut reflector, at(32), watch, "12");
    assert_eq!(age(&reflector, at(32)), at(32).since(due), "the proof is as old as the probe");
    apply_event(&mut reflector, at(33), watch, "13");
    assert_eq!(age(&reflector, at(33)), Duration::ZERO, "events are proofs again");
}

/// On a starved machine, each freeze cancelled the probe in flight, so that the cache was never fresh again.
#[test]
fn repeated_freezes_keep_probe_in_flight() {
    for version in ["9", "10"] {
        let (mut reflector, watch) = watching();
        reflector.step(at(30), Input::Frozen);
        let due = reflector.wake_at().expect("a probe");
        let (probe, _) = sent(&reflector.step(due, Input::Tick));
        let outputs = reflector.step(at(34), Input::Frozen);
        assert!(outputs.is_empty(), "{outputs:?}");
        reflector.step(at(35), Input::Probed(probe, Some(version.into()), due));
        if version == "10" {
            apply_event(&mut reflector, at(35), watch, version);
        }
        assert_eq!(age(&reflector, at(35)), at(35).since(due), "the proof is as old as the probe");
        apply_event(&mut reflector, at(36), watch, "11");
        assert_eq!(age(&reflector, at(36)), at(36).since(due), "the event may be as old as the second freeze");
    }
}

/// The proof of a state before the second freeze must not postpone the next probe.
#[test]
fn proof_before_freeze_leads_to_another_probe() {
    let (mut reflector, _) = watching();
    reflector.step(at(30), Input::Frozen);
    let due = reflector.wake_at().expect("a probe");
    let (probe, _) = sent(&reflector.step(due, Input::Tick));
    reflector.step(at(34), Input::Frozen);
    reflector.step(at(35), Input::Probed(probe, Some("9".into()), due));
    let (probe, request) = sent(&reflector.step(at(35), Input::Tick));
    assert!(matches!(request, Request::Probe { since } if since >= at(34)), "{request:?}");
    reflector.step(at(35), Input::Probed(probe, Some("9".into()), at(35)));
    assert_eq!(age(&reflector, at(35)), Duration::ZERO);
    assert!(reflector.wake_at().is_some_and(|due| due > at(90)), "the freeze is covered");
}

#[test]
fn freeze_longer_than_two_periods_is_stale() {
    let (mut reflector, watch) = watching();
    reflector.step(at(3600), Input::Frozen);
    apply_event(&mut reflector, at(3600), watch, "10");
    assert_eq!(reflector.evidence().at(at(3600)).name(), "stale");
}

/// The freeze has extended the short watch, so its duration proves nothing.
#[test]
fn freeze_cancels_short_watch() {
    let (mut reflector, watch) = watching();
    let (probe, _) = sent(&reflector.step(at(1), Input::SeekProof));
    let (short_watch, request) = sent(&reflector.step(at(1), Input::Probed(probe, Some("12".into()), at(1))));
    assert!(matches!(request, Request::ShortWatch { .. }), "{request:?}");
    reflector.step(at(1), Input::Opened(short_watch));
    let outputs = reflector.step(at(5), Input::Frozen);
    assert_eq!(outputs, [Output::Cancel(short_watch)]);
    reflector.step(at(5), Input::Ended(short_watch));
    assert_eq!(age(&reflector, at(5)), SECOND * 5);
    let due = reflector.wake_at().expect("another probe");
    assert!(due <= at(6), "{due}");
    let (_, request) = sent(&reflector.step(due, Input::Tick));
    assert!(matches!(request, Request::Probe { .. }), "{request:?}");
    // A stream that is reopened in the meantime is in doubt.
    let (watch, _) = sent(&reflector.step(due, Input::Ended(watch)));
    reflector.step(due, Input::Opened(watch));
    let state = reflector.evidence().at(due).to_string();
    assert!(state.starts_with("resuming") && state.contains("did not run"), "{state}");
}

#[test]
fn repeatedly_rejected_watches_are_one_doubt() {
    let (mut reflector, mut watch) = watching();
    let broken = Status { code: 500, reason: "InternalError".into(), ..Status::default() };
    let mut now = at(10);
    let start = now;
    reflector.record(now, watch, Record::Error(&broken));
    let mut opened = 0;
    while now < at(30) {
        now = reflector.wake_at().expect("the reflector has a next timer").max(now);
        let mut outputs = reflector.step(now, Input::Tick);
        if outputs.iter().any(|output| matches!(output, Output::AwaitTransfer)) {
            // The list that replaces the watches fails like them.
            let (list, _) = sent(&reflector.step(now, Input::TransferGranted));
            outputs = reflector.step(now, Input::Failed(list, Failure::from_status(&broken, None)));
        }
        for output in outputs {
            if let Output::Send(id, Request::Watch { .. }) = output {
                watch = id;
                opened += 1;
                reflector.step(now, Input::Opened(watch));
                let state = reflector.evidence().at(now);
                let doubt = state.doubt().unwrap_or_else(|| panic!("{state} without a proof"));
                assert_eq!((doubt.elapsed, doubt.age), (now.since(start), Some(now.since(at(0)))), "{state}");
                let action = reflector.record(now, watch, Record::Error(&broken));
                assert!(matches!(action, RecordAction::Perform(_)));
            }
        }
    }
    assert!(opened > 3, "{opened}");
    assert_eq!(reflector.evidence().at(now).name(), "stale");
}

#[test]
fn regular_end_keeps_last_proof() {
    let (mut reflector, watch) = watching();
    let (watch, _) = sent(&reflector.step(at(20), Input::Ended(watch)));
    assert_eq!(age(&reflector, at(21)), SECOND * 21);
    reflector.step(at(22), Input::Opened(watch));
    assert_eq!(age(&reflector, at(23)), SECOND * 23, "an open stream without a record is not a proof");
}

/// Regression: `audit_every(Duration::MAX)` and similar settings stopped the driver by an overflow.
#[test]
fn duration_max_settings_mean_never() {
    let max = Duration::MAX;
    let settings = ReflectorSettings {
        poll_every: Some(max),
        period: max,
        min_period: max,
        max_period: Some(max),
        audit_every: Some(max),
        paged_list_period: max,
        delta_timeout: max,
        list_stall_timeout: max,
        initial_events_timeout: max,
        stale_after: max,
        healthy_after: max,
        min_watch_duration: max,
        probe_deadline: max,
        short_watch_deadline: max,
        watch_timeout: max,
        relist_jitter: max,
        ..ReflectorSettings::default()
    };
    for streamed in [true, false] {
        let settings = ReflectorSettings { streamed_lists: Some(streamed), ..settings.clone() };
        let mut reflector = Reflector::new(settings, 1);
        reflector.step(at(0), Input::Start);
        let (list, _) = sent(&reflector.step(at(0), Input::TransferGranted));
        reflector.step(at(0), Input::Opened(list));
        let mut outputs = if streamed {
            drop(reflector.record(at(1), list, Record::Bookmark(&end_of_initial_events("9"))));
            Vec::new()
        } else {
            reflector.step(at(1), Input::ListEnded(list, meta("9", None)))
        };
        assert!(reflector.is_synced());
        let broken = Status { code: 403, reason: "Forbidden".into(), ..Status::default() };
        let mut now = at(1);
        for round in 0..200 {
            let watch = outputs.iter().find_map(|output| match output {
                Output::Send(id, _) => Some(*id),
                _ => None,
            });
            outputs = match watch {
                Some(id) if round % 3 == 0 => reflector.step(now, Input::Opened(id)),
                Some(id) => reflector.step(now, Input::Failed(id, Failure::from_status(&broken, None))),
                None if outputs.iter().any(|output| matches!(output, Output::AwaitTransfer)) => {
                    reflector.step(now, Input::TransferGranted)
                }
                None => {
                    reflector.step(now, Input::SeekProof);
                    let Some(due) = reflector.wake_at() else { break };
                    now = due.max(now);
                    reflector.step(now, Input::Tick)
                }
            };
        }
        assert!(reflector.evidence().at(now + max).to_string().len() > 3);
    }
}
