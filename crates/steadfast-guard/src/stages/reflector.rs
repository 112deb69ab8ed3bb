//! Interpretation of records by the reflector.

use steadfast_core::record::{Bookmark, RecordKind};
use steadfast_core::reflector::{Input, Output, Record, RecordAction, Reflector, ReflectorSettings, RequestId};
use steadfast_core::time::Instant;

use super::store::identity;
use crate::meter::Meter;

/// Version at the start of the watch, below all versions of the sample.
const START_VERSION: &str = "999999999";

/// Returns a reflector with an open watch, and the watch's request.
pub(super) fn watching() -> (Reflector, RequestId) {
    let mut reflector =
        // The setting is explicit, because the default depends on the encoding.
        Reflector::new(ReflectorSettings { streamed_lists: Some(true), ..ReflectorSettings::default() }, 1);
    reflector.step(Instant::ZERO, Input::Start);
    let outputs = reflector.step(Instant::ZERO, Input::TransferGranted);
    let sent = outputs.iter().find_map(|output| match output {
        Output::Send(id, _) => Some(*id),
        _ => None,
    });
    let id = sent.expect("a streamed list");
    reflector.step(Instant::ZERO, Input::Opened(id));
    let end = Bookmark { version: START_VERSION.into(), initial_events_end: true };
    reflector.record(Instant::ZERO, id, Record::Bookmark(&end));
    (reflector, id)
}

pub(super) fn record(meter: &mut Meter, count: usize) {
    let (mut reflector, watch) = watching();
    for version in 1..=count {
        let identity = identity(version, version);
        let record = Record::Object(RecordKind::Modified, &identity);
        assert_eq!(meter.count(|| reflector.record(Instant::ZERO, watch, record)), RecordAction::Apply);
    }
}
