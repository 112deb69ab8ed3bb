//! From one framed record to what it says.

use std::borrow::Cow;

use bytes::Bytes;

use super::{Encoding, RawObject, Wanted, envelope};
use crate::frame::Overlong;
use crate::key::ObjectKey;
use crate::record::{Bookmark, Identity, RecordKind, Status};
use crate::scan::object::has_annotation;
use crate::scan::{Fault, Metadata, ObjectScan, RecordScan};
use crate::uid::Uid;
use crate::version::ResourceVersion;

/// The annotation of the bookmark that closes a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The longest UID or version that is taken for one, in bytes: a server's have 36 and 20, and both are for it alone to make.
pub(crate) const LONGEST_MARK: usize = 1024;

/// A record of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchRecord {
    /// Something happened to an object.
    Object {
        /// What.
        kind: RecordKind,
        /// The object afterwards; before it, where it was deleted.
        object: RawObject,
    },
    /// The stream is complete up to here.
    Bookmark(Bookmark),
    /// The server ends the stream, and says why.
    Error(Status),
}

/// A record that cannot be understood, with what could be recognised of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{identity}: {problem}")]
pub struct RecordError {
    /// What happened to its object; none where that is unknown, and for a list's item.
    pub kind: Option<RecordKind>,
    /// Who its object is, as far as that is known.
    pub identity: PartialIdentity,
    /// What is wrong with it.
    pub problem: RecordProblem,
}

/// What is wrong with a record. It says where, never what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// It is not the JSON it should be.
    #[error("malformed JSON at byte {offset} of the record")]
    Malformed {
        /// Where in the record.
        offset: usize,
    },
    /// It is longer than the limit.
    #[error("{bytes} bytes, longer than the limit of {limit} bytes")]
    TooLarge {
        /// Its length, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: usize,
    },
    /// It has no `type`, or one that is not known.
    #[error("unknown type of watch record {name:?}")]
    UnknownType {
        /// The type, cut off where it is overlong; empty where there is none.
        name: String,
    },
    /// It has no `object`.
    #[error("a watch record without an object")]
    NoObject,
    /// Its object cannot be told from others.
    #[error("an object without {missing}")]
    NoIdentity {
        /// The path that has no value.
        missing: &'static str,
    },
    /// Its object is none of those that were asked for, but of another sort.
    #[error("a {told}, not the {wanted} that was asked for")]
    OtherKind {
        /// What it says it is.
        told: String,
        /// What it was to be.
        wanted: String,
    },
    /// It is an `ERROR` whose object is no `Status`.
    #[error("an ERROR without a Status")]
    NoStatus,
}

/// What is known of who an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialIdentity {
    /// Where it is found.
    pub key: Option<ObjectKey>,
    /// Its UID, or what stands for it where the object has a name and no UID.
    pub uid: Option<Uid>,
    /// Its version, or what stands for it where the object has a name and no version.
    pub version: Option<ResourceVersion>,
}

impl std::fmt::Display for PartialIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.key {
            Some(key) => write!(f, "{key}")?,
            None => f.write_str("an object without a known name")?,
        }
        match &self.version {
            Some(version) if version.is_given() => write!(f, " at version {version}"),
            _ => Ok(()),
        }
    }
}

impl PartialIdentity {
    /// Who the object of `metadata` is. Where it has no version, `made` stands for it.
    fn of(metadata: &Metadata<'_>, made: impl FnOnce() -> ResourceVersion) -> Self {
        let key = present(metadata.name.as_ref()).map(|name| match present(metadata.namespace.as_ref()) {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        });
        // Who has neither name nor UID is nobody; whose UID is longer than any has one that cannot be kept.
        let uid = match present(metadata.uid.as_ref()) {
            Some(uid) => Some(uid).filter(|uid| uid.len() <= LONGEST_MARK).map(Uid::from),
            None => key.as_ref().map(Uid::by_name),
        };
        let version = match present(metadata.version.as_ref()) {
            Some(_) => version(metadata),
            None => key.is_some().then(made),
        };
        Self { key, uid, version }
    }

    /// The whole identity, or the path that it lacks.
    fn whole(self) -> Result<Identity, (Self, &'static str)> {
        match self {
            Self { key: Some(key), uid: Some(uid), version: Some(version) } => Ok(Identity { key, uid, version }),
            Self { key: None, .. } => Err((self, "metadata.name")),
            Self { uid: None, .. } => Err((self, "metadata.uid")),
            Self { version: None, .. } => Err((self, "metadata.resourceVersion")),
        }
    }
}

/// An empty string says as little as none: Go writes one for the other.
fn present<'a>(text: Option<&'a Cow<'_, str>>) -> Option<&'a str> {
    text.map(AsRef::as_ref).filter(|text: &&str| !text.is_empty())
}

/// The version; none where it is longer than any, which would be asked for and told of again and again.
fn version(metadata: &Metadata<'_>) -> Option<ResourceVersion> {
    present(metadata.version.as_ref()).filter(|version| version.len() <= LONGEST_MARK).map(ResourceVersion::from)
}

/// Reads one record of a watch of what is `wanted`.
///
/// # Errors
///
/// Where it cannot be understood; the stream can be read on, for its records are lines.
pub fn watch_record(encoding: Encoding, record: &Bytes, wanted: Option<&Wanted>) -> Result<WatchRecord, RecordError> {
    match encoding {
        Encoding::Json => json_watch_record(record, wanted),
    }
}

/// Reads one item of a list of what is `wanted`.
///
/// # Errors
///
/// Where it cannot be understood; the list can be read on.
pub fn list_item(encoding: Encoding, item: &Bytes, wanted: Option<&Wanted>) -> Result<RawObject, RecordError> {
    match encoding {
        Encoding::Json => {
            let mut scan = ObjectScan::default();
            if let Err(fault) = scan.scan(item) {
                return Err(failed(None, &scan, fault.into(), wanted));
            }
            json_object(item, None, &scan, wanted)
        }
    }
}

/// What is known of a record of a stream, or of an item of a list, that was longer than the limit.
pub fn overlong(record: &Overlong, wanted: Option<&Wanted>) -> RecordError {
    let RecordScan { kind, object } = record.found();
    let problem = RecordProblem::TooLarge { bytes: record.bytes(), limit: record.limit() };
    let said = kind.as_deref();
    let kind = said.and_then(record_kind);
    // Bookmarks and errors are of no object that was wanted.
    failed(kind, object, problem, wanted.filter(|_| said.is_none() || kind.is_some()))
}

fn record_kind(name: &str) -> Option<RecordKind> {
    match name {
        "ADDED" => Some(RecordKind::Added),
        "MODIFIED" => Some(RecordKind::Modified),
        "DELETED" => Some(RecordKind::Deleted),
        _ => None,
    }
}

fn json_watch_record(record: &Bytes, wanted: Option<&Wanted>) -> Result<WatchRecord, RecordError> {
    let mut scan = RecordScan::default();
    let scanned = scan.scan(record);
    let name = scan.kind.as_deref().unwrap_or_default();
    let kind = record_kind(name);
    let fail = |problem| Err(failed(kind, &scan.object, problem, wanted.filter(|_| kind.is_some())));
    if let Err(fault) = scanned {
        return fail(fault.into());
    }
    let Some(range) = scan.object.span.clone() else { return fail(RecordProblem::NoObject) };
    match (kind, name) {
        (Some(kind), _) => {
            json_object(record, Some(kind), &scan.object, wanted).map(|object| WatchRecord::Object { kind, object })
        }
        (None, "BOOKMARK") => match bookmark(record, &scan.object.metadata) {
            Ok(bookmark) => Ok(WatchRecord::Bookmark(bookmark)),
            Err(problem) => fail(problem),
        },
        (None, "ERROR") => match envelope::status(Encoding::Json, &record[range]) {
            Some(status) => Ok(WatchRecord::Error(status)),
            None => fail(RecordProblem::NoStatus),
        },
        (None, name) => fail(RecordProblem::UnknownType { name: name.chars().take(32).collect() }),
    }
}

fn json_object(
    text: &Bytes,
    kind: Option<RecordKind>,
    scan: &ObjectScan<'_>,
    wanted: Option<&Wanted>,
) -> Result<RawObject, RecordError> {
    let Some(range) = scan.span.clone() else { return Err(failed(kind, scan, RecordProblem::NoObject, wanted)) };
    if let Some(problem) = contradiction(scan, wanted) {
        return Err(RecordError { kind, identity: known(&scan.metadata, &problem), problem });
    }
    // All of its bytes: what changes in any of them is another state.
    let made = || ResourceVersion::made_of(&text[range.clone()]);
    let identity = PartialIdentity::of(&scan.metadata, made).whole().map_err(|(identity, missing)| RecordError {
        kind,
        identity,
        problem: RecordProblem::NoIdentity { missing },
    })?;
    let cut = scan.metadata.managed_fields.as_ref();
    Ok(RawObject {
        identity,
        managed_fields: cut.map(|cut| cut.start - range.start..cut.end - range.start),
        bytes: text.slice(range),
        encoding: Encoding::Json,
    })
}

fn bookmark(record: &[u8], metadata: &Metadata<'_>) -> Result<Bookmark, RecordProblem> {
    let Some(version) = version(metadata) else {
        return Err(RecordProblem::NoIdentity { missing: "metadata.resourceVersion" });
    };
    let initial_events_end = match metadata.annotations.clone() {
        Some(span) => has_annotation(&record[span.clone()], INITIAL_EVENTS_END, "true")
            .map_err(|fault| RecordProblem::from(fault.after(span.start)))?,
        None => false,
    };
    Ok(Bookmark { version, initial_events_end })
}

/// What there is to say of a record with this `problem`: that its object is none of those wanted says more.
fn failed(
    kind: Option<RecordKind>,
    object: &ObjectScan<'_>,
    problem: RecordProblem,
    wanted: Option<&Wanted>,
) -> RecordError {
    let problem = contradiction(object, wanted).unwrap_or(problem);
    RecordError { kind, identity: known(&object.metadata, &problem), problem }
}

/// What is known of who an object is that has this `problem`: nothing else is told of its state, so that stands for its
/// version where it has none.
fn known(metadata: &Metadata<'_>, problem: &RecordProblem) -> PartialIdentity {
    PartialIdentity::of(metadata, || ResourceVersion::made_of(problem.to_string().as_bytes()))
}

/// What an object says that contradicts what was wanted.
fn contradiction(object: &ObjectScan<'_>, wanted: Option<&Wanted>) -> Option<RecordProblem> {
    wanted?.takes(object.api_version.as_deref(), object.kind.as_deref()).err()
}

impl From<Fault> for RecordProblem {
    fn from(fault: Fault) -> Self {
        let Fault::Malformed { at } = fault;
        Self::Malformed { offset: at }
    }
}
