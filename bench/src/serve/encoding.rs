//! The two encodings of lists and watches: the bytes around the objects.
//!
//! Protobuf is written by hand, with the field numbers of the API's published definitions: `k8s.io/apimachinery`'s
//! `runtime` and `meta/v1`, and `k8s.io/api`'s `core/v1`. In JSON, the text of each object is copied into the message.

use std::io::Write;

use super::collection::Collection;
use super::records::{ObjectValues, VERSION_DIGITS};

/// Kind of the collection. The same objects are served as a built-in type, as a custom resource, or as the metadata
/// of either. The metadata come first in each generated object, so that a prefix of its bytes is the metadata object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CollectionKind {
    Pods,
    Widgets,
    Metadata,
}

/// Encoding of a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json(CollectionKind),
    Protobuf(CollectionKind),
}

/// Prefix of every protobuf object in the API.
const MAGIC: &[u8] = b"k8s\0";

const EXPIRED_MESSAGE: &str = "too old resource version";

impl Encoding {
    /// Returns the `Content-Type` of a list or of a watch.
    pub(super) fn content_type(self, watch: bool) -> &'static str {
        match (self, watch) {
            (Self::Json(_), _) => "application/json",
            (Self::Protobuf(_), false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf(_), true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    /// Returns the part of a list before its objects. `objects` contains the indexes of the objects in the list.
    pub(super) fn list_start(
        self,
        collection: &Collection,
        version: u64,
        next_token: Option<&str>,
        objects: impl Iterator<Item = usize>,
    ) -> Vec<u8> {
        match self {
            // Custom resources are unstructured in Go, where JSON has sorted keys: `apiVersion`, `items`, `kind`,
            // `metadata`.
            Self::Json(CollectionKind::Widgets) => br#"{"apiVersion":"bench.steadfast.dev/v1","items":["#.to_vec(),
            Self::Json(kind) => {
                let (api_version, name, meta) = (kind.api_version(), kind.name(), json_meta(version, next_token));
                format!(r#"{{"kind":"{name}List","apiVersion":"{api_version}","metadata":{meta},"items":["#)
                    .into_bytes()
            }
            Self::Protobuf(kind) => {
                let mut meta = Vec::new();
                // `ListMeta`: `resourceVersion` is field 2, and `continue` is field 3.
                append_field(&mut meta, 2, version.to_string().as_bytes());
                if let Some(next) = next_token {
                    append_field(&mut meta, 3, next.as_bytes());
                }
                let lengths = objects.map(|index| kind.length(collection, index));
                // The length of the list precedes its items, so that all sizes must be known before the first byte.
                let items: usize = lengths.map(|length| 1 + varint_length(length) + length).sum();
                let list = format!("{}List", kind.name());
                let mut list_start =
                    envelope_start(kind.api_version(), &list, 1 + varint_length(meta.len()) + meta.len() + items);
                append_field(&mut list_start, 1, &meta);
                list_start
            }
        }
    }

    /// Appends one object of a list.
    pub(super) fn append_item(
        self,
        into: &mut Vec<u8>,
        collection: &Collection,
        index: usize,
        values: ObjectValues,
        is_first: bool,
    ) {
        match self {
            Self::Json(kind) => {
                if !is_first {
                    into.push(b',');
                }
                match kind {
                    CollectionKind::Pods => collection.json.append(into, index, 0, values),
                    CollectionKind::Widgets | CollectionKind::Metadata => {
                        self.json_object(into, collection, index, values);
                    }
                }
            }
            Self::Protobuf(kind) => {
                append_tag(into, 2, kind.length(collection, index));
                kind.append_protobuf(into, collection, index, values);
            }
        }
    }

    /// Returns the part of a list after its objects.
    pub(super) fn list_end(self, version: u64, next_token: Option<&str>) -> Vec<u8> {
        match self {
            Self::Json(CollectionKind::Widgets) => {
                format!(r#"],"kind":"WidgetList","metadata":{}}}"#, json_meta(version, next_token)).into_bytes()
            }
            Self::Json(_) => b"]}\n".to_vec(),
            Self::Protobuf(_) => Vec::new(),
        }
    }

    /// Appends one event with an object.
    pub(super) fn append_event(
        self,
        into: &mut Vec<u8>,
        collection: &Collection,
        event_type: &str,
        index: usize,
        values: ObjectValues,
    ) {
        match self {
            Self::Json(_) => {
                let _ = write!(into, r#"{{"type":"{event_type}","object":"#);
                self.json_object(into, collection, index, values);
                into.extend_from_slice(b"}\n");
            }
            Self::Protobuf(kind) => {
                append_event_start(into, event_type, (kind.api_version(), kind.name()), kind.length(collection, index));
                kind.append_protobuf(into, collection, index, values);
            }
        }
    }

    /// Returns a bookmark. With `initial_events_end`, it is the end of the initial events.
    pub(super) fn bookmark(self, version: u64, initial_events_end: bool) -> Vec<u8> {
        let mut event = Vec::new();
        match self {
            Self::Json(kind) => {
                let type_meta = kind.type_meta();
                let annotations =
                    if initial_events_end { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
                let _ = writeln!(
                    event,
                    r#"{{"type":"BOOKMARK","object":{{{type_meta}"metadata":{{"resourceVersion":"{version}","creationTimestamp":null{annotations}}}}}}}"#
                );
            }
            Self::Protobuf(kind) => {
                let (mut annotation, mut meta, mut pod) = (Vec::new(), Vec::new(), Vec::new());
                append_field(&mut annotation, 1, b"k8s.io/initial-events-end");
                append_field(&mut annotation, 2, b"true");
                // `ObjectMeta`: `resourceVersion` is field 6, and `annotations` is field 12.
                append_field(&mut meta, 6, version.to_string().as_bytes());
                if initial_events_end {
                    append_field(&mut meta, 12, &annotation);
                }
                append_field(&mut pod, 1, &meta);
                append_event_start(&mut event, "BOOKMARK", (kind.api_version(), kind.name()), pod.len());
                event.extend_from_slice(&pod);
            }
        }
        event
    }

    /// Returns the error event for an expired version.
    pub(super) fn expired_event(self) -> Vec<u8> {
        let mut event = Vec::new();
        match self {
            Self::Json(_) => {
                let _ = writeln!(
                    event,
                    r#"{{"type":"ERROR","object":{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{EXPIRED_MESSAGE}","reason":"Expired","code":410}}}}"#
                );
            }
            Self::Protobuf(_) => {
                let mut status = Vec::new();
                // `metav1.Status`: status 2, message 3, reason 4, code 6. The code is a varint.
                append_field(&mut status, 2, b"Failure");
                append_field(&mut status, 3, EXPIRED_MESSAGE.as_bytes());
                append_field(&mut status, 4, b"Expired");
                status.push(6 << 3);
                append_varint(&mut status, 410);
                append_event_start(&mut event, "ERROR", ("v1", "Status"), status.len());
                event.extend_from_slice(&status);
            }
        }
        event
    }

    /// Appends an object together with its kind, which generated objects do not contain.
    fn json_object(self, into: &mut Vec<u8>, collection: &Collection, index: usize, values: ObjectValues) {
        let Self::Json(kind) = self else { return };
        // The first byte of the object, its opening brace, is skipped: the new head replaces the brace.
        into.push(b'{');
        into.extend_from_slice(kind.type_meta().as_bytes());
        if kind == CollectionKind::Metadata {
            collection.json.append_metadata(into, index, 1, values);
            into.push(b'}');
        } else {
            collection.json.append(into, index, 1, values);
        }
    }
}

impl CollectionKind {
    fn type_meta(self) -> &'static str {
        match self {
            Self::Pods => r#""kind":"Pod","apiVersion":"v1","#,
            Self::Widgets => r#""apiVersion":"bench.steadfast.dev/v1","kind":"Widget","#,
            Self::Metadata => r#""kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","#,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Pods => "Pod",
            Self::Widgets => "Widget",
            Self::Metadata => "PartialObjectMetadata",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Pods => "v1",
            Self::Widgets => "bench.steadfast.dev/v1",
            Self::Metadata => "meta.k8s.io/v1",
        }
    }

    /// Returns the size of the protobuf of the object `index`.
    fn length(self, collection: &Collection, index: usize) -> usize {
        if self == Self::Metadata {
            collection.protobuf.metadata_length(index)
        } else {
            collection.protobuf.length(index)
        }
    }

    fn append_protobuf(self, into: &mut Vec<u8>, collection: &Collection, index: usize, values: ObjectValues) {
        if self == Self::Metadata {
            collection.protobuf.append_metadata(into, index, 0, values);
        } else {
            collection.protobuf.append(into, index, 0, values);
        }
    }
}

/// Returns the metadata of a list in JSON.
fn json_meta(version: u64, next_token: Option<&str>) -> String {
    debug_assert_eq!(version.to_string().len(), VERSION_DIGITS);
    match next_token {
        None => format!(r#"{{"resourceVersion":"{version}"}}"#),
        Some(next) => format!(r#"{{"resourceVersion":"{version}","continue":"{next}"}}"#),
    }
}

fn append_varint(into: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn varint_length(number: usize) -> usize {
    // `| 1` makes the length of zero one byte.
    (usize::BITS - (number | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends the tag of a field with `length` bytes.
fn append_tag(into: &mut Vec<u8>, number: u8, length: usize) {
    into.push(number << 3 | 2);
    append_varint(into, length);
}

fn append_field(into: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    append_tag(into, number, bytes.len());
    into.extend_from_slice(bytes);
}

/// Returns the envelope of an object: its kind, and the length of the object.
fn envelope_start(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut meta = Vec::new();
    append_field(&mut meta, 1, api_version.as_bytes());
    append_field(&mut meta, 2, kind.as_bytes());
    let mut envelope = MAGIC.to_vec();
    // `runtime.Unknown`: the type is field 1, and the raw object is field 2.
    append_field(&mut envelope, 1, &meta);
    append_tag(&mut envelope, 2, length);
    envelope
}

/// Appends the part of an event before its object with `length` bytes: the total length, the type, and the envelope.
fn append_event_start(into: &mut Vec<u8>, event_type: &str, (api_version, kind): (&str, &str), length: usize) {
    let unknown = envelope_start(api_version, kind, length);
    let raw = unknown.len() + length;
    let extension = 1 + varint_length(raw) + raw;
    let message_bytes = 2 + event_type.len() + 1 + varint_length(extension) + extension;
    // Streamed messages have a length of four bytes in big-endian order, which is not part of protobuf.
    into.extend_from_slice(&(message_bytes as u32).to_be_bytes());
    append_field(into, 1, event_type.as_bytes());
    append_tag(into, 2, extension);
    append_tag(into, 1, raw);
    into.extend_from_slice(&unknown);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varint_has_the_computed_length() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 1 << 30] {
            let mut bytes = Vec::new();
            append_varint(&mut bytes, number);
            assert_eq!(bytes.len(), varint_length(number), "{number}");
        }
    }

    #[test]
    fn event_has_the_length_of_its_prefix() {
        let pods = Encoding::Protobuf(CollectionKind::Pods);
        for event in [pods.expired_event(), pods.bookmark(1_000_000_001, false), pods.bookmark(1_000_000_001, true)] {
            let length = u32::from_be_bytes([event[0], event[1], event[2], event[3]]) as usize;
            assert_eq!(length, event.len() - 4);
        }
    }
}
