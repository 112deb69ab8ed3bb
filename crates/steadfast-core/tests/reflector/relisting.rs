//! Causes of relists.

use steadfast_core::record::Status;
use steadfast_core::reflector::{Diagnostic, Output, Record, RecordAction, RelistCause};

use crate::proofs::{at, watching};

/// Returns the cause of the relist after this `ERROR` event of a watch, if it causes one.
fn cause_after(status: &Status) -> Option<RelistCause> {
    let (mut reflector, watch) = watching();
    let RecordAction::Perform(outputs) = reflector.record(at(30), watch, Record::Error(status)) else { return None };
    outputs.iter().find_map(|output| match output {
        Output::Diagnostic(Diagnostic::Relisting { cause, .. }) => Some(*cause),
        _ => None,
    })
}

#[test]
fn relist_cause_is_independent_of_message() {
    let status = |code, reason: &str| Status {
        code,
        reason: reason.into(),
        message: "the version was compacted".into(),
        ..Status::default()
    };
    for expired in [status(410, ""), status(410, "Expired"), status(0, "Gone"), status(0, "Expired")] {
        assert_eq!(cause_after(&expired), Some(RelistCause::Expired), "{expired:?}");
    }
    assert_eq!(cause_after(&status(422, "Invalid")), Some(RelistCause::VersionRejected));
    assert_eq!(cause_after(&Status { message: "410 Gone".into(), ..status(500, "") }), None);
}
