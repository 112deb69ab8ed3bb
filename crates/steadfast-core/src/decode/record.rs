//! Decoding of framed records.

use bytes::Bytes;

use super::identity::version;
use super::{Encoding, ExpectedKind, PartialIdentity, RawObject, RecordError, RecordProblem, envelope};
use crate::frame::{Item, Overlong};
use crate::protobuf::{self, MessageType};
use crate::record::{Bookmark, RecordKind, Status};
use crate::scan::{Metadata, ObjectScan, RecordScan, RecordSpans, has_annotation};
use crate::version::ResourceVersion;

/// Annotation of the bookmark that ends a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// `type` of the record that ends a watch with a failure.
const ERROR: &str = "ERROR";

/// Record of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchRecord {
    /// Change of an object.
    Object {
        /// Kind of the change.
        kind: RecordKind,
        /// The object after the change; before the change, if it was deleted.
        object: RawObject,
    },
    /// The stream is complete up to this version.
    Bookmark(Bookmark),
    /// The server ends the stream with this status.
    Error(Status),
}

/// Decodes one record of a watch. `expected_kind` describes the requested objects.
///
/// # Errors
///
/// Returns an error for a record that cannot be understood. The stream can still be read, since it is already split
/// into records.
pub fn watch_record(
    encoding: Encoding,
    record: &Bytes,
    expected_kind: Option<&ExpectedKind>,
) -> Result<WatchRecord, RecordError> {
    match encoding {
        Encoding::Json => {
            let mut spans = RecordSpans::default();
            let scanned = spans.scan(record).map_err(RecordProblem::from);
            read_record(encoding, record, &spans.read(record), scanned, expected_kind)
        }
        Encoding::Protobuf => {
            let (scan, scanned) = protobuf::scan::record(record);
            read_record(encoding, record, &scan, scanned.map_err(RecordProblem::from), expected_kind)
        }
    }
}

/// Decodes one item of a list. `expected_kind` describes the requested objects.
///
/// # Errors
///
/// Returns an error for an item that cannot be understood. The list can still be read.
pub fn list_item(
    encoding: Encoding,
    item: &Item,
    expected_kind: Option<&ExpectedKind>,
) -> Result<RawObject, RecordError> {
    match encoding {
        Encoding::Json => match item.scan() {
            (scan, Ok(())) => read_object((encoding, None), item.bytes(), None, &scan, expected_kind),
            (scan, Err(fault)) => Err(record_error(None, &scan, fault.into(), expected_kind)),
        },
        Encoding::Protobuf => match protobuf::scan::scan_object_bytes(item.bytes()) {
            (scan, Ok(())) => read_object((encoding, item.message()), item.bytes(), None, &scan, expected_kind),
            (scan, Err(fault)) => Err(record_error(None, &scan, fault.into(), expected_kind)),
        },
    }
}

/// Decodes a record of a watch that exceeded the limit.
///
/// # Errors
///
/// Always returns an error, except for an `ERROR` record: such a record is a failure of the stream, independent of its
/// length.
pub fn overlong_record(record: &Overlong, expected_kind: Option<&ExpectedKind>) -> Result<WatchRecord, RecordError> {
    // An overlong error still ends the watch, so an `ERROR` must never be skipped.
    if record.found().kind.as_deref() == Some(ERROR) {
        return Ok(WatchRecord::Error(status_without_details("longer than the limit")));
    }
    Err(overlong(record, expected_kind))
}

/// Returns the error for a record or list item that exceeded the limit, with the known parts of its identity.
pub fn overlong(record: &Overlong, expected_kind: Option<&ExpectedKind>) -> RecordError {
    let RecordScan { kind, object } = record.found();
    let problem = RecordProblem::TooLarge { bytes: record.bytes(), limit: record.limit() };
    let kind_text = kind.as_deref();
    let kind = kind_text.and_then(record_kind);
    // Bookmarks and errors do not have the kind of the requested objects.
    record_error(kind, object, problem, expected_kind.filter(|_| kind_text.is_none() || kind.is_some()))
}

/// Status of an `ERROR` whose own status cannot be read.
///
/// An `ERROR` record is a failure of the stream, independent of the object in it (client-go: `apierrors.FromObject`).
/// This object is never an object of the resource, so its name and version are ignored.
fn status_without_details(reason: &str) -> Status {
    Status {
        message: format!("the server ended the watch with an ERROR without a readable Status: {reason}"),
        ..Status::default()
    }
}

fn record_kind(name: &str) -> Option<RecordKind> {
    match name {
        "ADDED" => Some(RecordKind::Added),
        "MODIFIED" => Some(RecordKind::Modified),
        "DELETED" => Some(RecordKind::Deleted),
        _ => None,
    }
}

fn read_record(
    encoding: Encoding,
    record: &Bytes,
    scan: &RecordScan<'_>,
    scanned: Result<(), RecordProblem>,
    expected_kind: Option<&ExpectedKind>,
) -> Result<WatchRecord, RecordError> {
    let name = scan.kind.as_deref().unwrap_or_default();
    let kind = record_kind(name);
    let fail = |problem| Err(record_error(kind, &scan.object, problem, expected_kind.filter(|_| kind.is_some())));
    if name == ERROR {
        // The watch has ended even if the status cannot be decoded.
        let status = scan.object.span.clone().and_then(|range| envelope::status(encoding, &record[range]));
        return Ok(WatchRecord::Error(status.unwrap_or_else(|| {
            status_without_details(match scanned {
                Ok(()) => "the object is of another kind",
                Err(_) => "the record is malformed",
            })
        })));
    }
    if let Err(problem) = scanned {
        return fail(problem);
    }
    if scan.object.span.is_none() {
        return fail(RecordProblem::NoObject);
    }
    match (kind, name) {
        (Some(kind), _) => {
            let message = match (encoding, &scan.object) {
                // A protobuf object can only be decoded with the message of its kind.
                (Encoding::Protobuf, ObjectScan { api_version: Some(api_version), kind: Some(kind), .. }) => {
                    MessageType::of_kind(api_version, kind)
                }
                _ => None,
            };
            let object = read_object((encoding, message), record, Some(kind), &scan.object, expected_kind);
            object.map(|object| WatchRecord::Object { kind, object })
        }
        (None, "BOOKMARK") => match bookmark(encoding, record, &scan.object.metadata) {
            Ok(bookmark) => Ok(WatchRecord::Bookmark(bookmark)),
            Err(problem) => fail(problem),
        },
        (None, name) => fail(RecordProblem::UnknownType { name: name.chars().take(32).collect() }),
    }
}

fn read_object(
    (encoding, message): (Encoding, Option<MessageType>),
    text: &Bytes,
    kind: Option<RecordKind>,
    scan: &ObjectScan<'_>,
    expected_kind: Option<&ExpectedKind>,
) -> Result<RawObject, RecordError> {
    let Some(range) = scan.span.clone() else {
        return Err(record_error(kind, scan, RecordProblem::NoObject, expected_kind));
    };
    if let Some(problem) = contradiction(scan, expected_kind) {
        return Err(RecordError { kind, identity: Box::new(known_identity(&scan.metadata, &problem)), problem });
    }
    // A substitute for a missing version is a hash of all bytes, since any change in them is another state.
    let substitute = || ResourceVersion::substitute_for(&text[range.clone()]);
    let identity = PartialIdentity::of(&scan.metadata, substitute).complete().map_err(|(identity, missing)| {
        RecordError { kind, identity, problem: RecordProblem::NoIdentity { missing } }
    })?;
    let cut = scan.metadata.managed_fields.as_ref();
    Ok(RawObject {
        identity,
        // Relative to the object, since `bytes` lacks the record around the object.
        managed_fields: cut.map(|cut| cut.start - range.start..cut.end - range.start),
        bytes: text.slice(range),
        encoding,
        message,
    })
}

fn bookmark(encoding: Encoding, record: &[u8], metadata: &Metadata<'_>) -> Result<Bookmark, RecordProblem> {
    let Some(version) = version(metadata) else {
        return Err(RecordProblem::NoIdentity { missing: "metadata.resourceVersion" });
    };
    let initial_events_end = match metadata.annotations.clone() {
        Some(span) => {
            let written = &record[span.clone()];
            match encoding {
                Encoding::Json => has_annotation(written, INITIAL_EVENTS_END, "true")
                    .map_err(|fault| RecordProblem::from(fault.offset_by(span.start)))?,
                Encoding::Protobuf => protobuf::scan::has_annotation(written, INITIAL_EVENTS_END, "true")?,
            }
        }
        None => false,
    };
    Ok(Bookmark { version, initial_events_end })
}

/// Creates the error of a record with this `problem`. If the object has a kind that was not requested, the error
/// reports the kind instead.
fn record_error(
    kind: Option<RecordKind>,
    object: &ObjectScan<'_>,
    problem: RecordProblem,
    expected_kind: Option<&ExpectedKind>,
) -> RecordError {
    let problem = contradiction(object, expected_kind).unwrap_or(problem);
    RecordError { kind, identity: Box::new(known_identity(&object.metadata, &problem)), problem }
}

/// Returns the known identity of an object with this `problem`. A substitute for a missing version is derived from the
/// problem, since nothing else is known of the state.
fn known_identity(metadata: &Metadata<'_>, problem: &RecordProblem) -> PartialIdentity {
    PartialIdentity::of(metadata, || ResourceVersion::substitute_for(problem.to_string().as_bytes()))
}

/// Returns the contradiction between an object and the requested kind, if any.
fn contradiction(object: &ObjectScan<'_>, expected_kind: Option<&ExpectedKind>) -> Option<RecordProblem> {
    expected_kind?.check(object.api_version.as_deref(), object.kind.as_deref()).err()
}
