//! Positions of an object's identity in its JSON, found without decoding.

use std::borrow::Cow;
use std::ops::Range;

use super::cursor::{Cursor, RawString};
use super::object::{Metadata, ObjectScan, RecordScan};
use super::value_skipper::ScanError;

/// Range of a string with its quotes; empty if the string is missing or another value.
type StringRange = Range<usize>;

/// Positions in a watch record. If an error occurs, the parts that were scanned before it are kept.
#[derive(Clone, Default)]
pub(crate) struct RecordSpans {
    kind: StringRange,
    object: ObjectSpans,
}

/// Positions in an object. If an error occurs, the parts that were scanned before it are kept.
#[derive(Clone, Default)]
pub(crate) struct ObjectSpans {
    span: Option<Range<usize>>,
    api_version: StringRange,
    kind: StringRange,
    metadata: MetadataSpans,
}

#[derive(Clone, Default)]
struct MetadataSpans {
    namespace: StringRange,
    name: StringRange,
    uid: StringRange,
    version: StringRange,
    managed_fields: Option<Range<usize>>,
    annotations: Option<Range<usize>>,
}

/// Relevant members of an object.
enum ObjectMember {
    ApiVersion,
    Kind,
    Metadata,
}

/// Relevant members of metadata.
enum MetadataMember {
    Namespace,
    Name,
    Uid,
    Version,
    ManagedFields,
    Annotations,
}

impl RecordSpans {
    /// Scans the watch record `bytes`.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        let mut cursor = Cursor::new(bytes);
        cursor.members(|cursor, member| {
            let is_object = member.name.parse_with(|name| match name {
                b"type" => Some(false),
                b"object" => Some(true),
                _ => None,
            });
            match is_object {
                Some(true) => {
                    // For duplicate members, the last value counts.
                    self.object = ObjectSpans::default();
                    self.object.walk(cursor)?;
                }
                Some(false) => self.kind = cursor.string_range()?,
                None => _ = cursor.skip()?,
            }
            Ok(())
        })?;
        cursor.end()
    }

    /// Returns the values at these positions. `bytes` must be the scanned bytes.
    pub(crate) fn read<'a>(&self, bytes: &'a [u8]) -> RecordScan<'a> {
        RecordScan { kind: read(bytes, &self.kind), object: self.object.read(bytes) }
    }
}

impl ObjectSpans {
    /// Scans the object `bytes`.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> Result<(), ScanError> {
        let mut cursor = Cursor::new(bytes);
        self.walk(&mut cursor)?;
        cursor.end()
    }

    /// Scans the object at the start of `bytes` and returns its length; `None` if it is incomplete or invalid.
    pub(crate) fn scan_first(bytes: &[u8]) -> Option<(usize, Self)> {
        let mut found = Self::default();
        found.walk(&mut Cursor::new(bytes)).ok()?;
        found.span.as_ref().map(|span| span.end).map(|length| (length, found))
    }

    /// Returns the values at these positions. `bytes` must be the scanned bytes.
    pub(crate) fn read<'a>(&self, bytes: &'a [u8]) -> ObjectScan<'a> {
        ObjectScan {
            span: self.span.clone(),
            api_version: read(bytes, &self.api_version),
            kind: read(bytes, &self.kind),
            metadata: self.metadata.read(bytes),
        }
    }

    fn walk(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ScanError> {
        let span = cursor.members(|cursor, member| {
            match member.name.parse_with(ObjectMember::of) {
                Some(ObjectMember::Metadata) => {
                    self.metadata = MetadataSpans::default();
                    self.metadata = MetadataSpans::walk(cursor)?;
                }
                Some(ObjectMember::ApiVersion) => self.api_version = cursor.string_range()?,
                Some(ObjectMember::Kind) => self.kind = cursor.string_range()?,
                None => _ = cursor.skip()?,
            }
            Ok(())
        })?;
        self.span = Some(span);
        Ok(())
    }
}

impl MetadataSpans {
    fn walk(cursor: &mut Cursor<'_>) -> Result<Self, ScanError> {
        let mut found = Self::default();
        cursor.members(|cursor, member| {
            match member.name.parse_with(MetadataMember::of) {
                Some(MetadataMember::Namespace) => found.namespace = cursor.string_range()?,
                Some(MetadataMember::Name) => found.name = cursor.string_range()?,
                Some(MetadataMember::Uid) => found.uid = cursor.string_range()?,
                Some(MetadataMember::Version) => found.version = cursor.string_range()?,
                Some(MetadataMember::ManagedFields) => {
                    let value = cursor.skip()?;
                    // The cut includes an adjacent comma, so that the rest stays valid JSON.
                    found.managed_fields = Some(match member.comma {
                        Some(comma) => comma..value.end,
                        None if cursor.peek() == Some(b',') => member.start..cursor.next_offset() + 1,
                        None => member.start..value.end,
                    });
                }
                Some(MetadataMember::Annotations) => found.annotations = Some(cursor.skip()?),
                None => _ = cursor.skip()?,
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn read<'a>(&self, bytes: &'a [u8]) -> Metadata<'a> {
        Metadata {
            namespace: read(bytes, &self.namespace),
            name: read(bytes, &self.name),
            uid: read(bytes, &self.uid),
            version: read(bytes, &self.version),
            managed_fields: self.managed_fields.clone(),
            annotations: self.annotations.clone(),
        }
    }
}

impl ObjectMember {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"apiVersion" => Self::ApiVersion,
            b"kind" => Self::Kind,
            b"metadata" => Self::Metadata,
            _ => return None,
        })
    }
}

impl MetadataMember {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"namespace" => Self::Namespace,
            b"name" => Self::Name,
            b"uid" => Self::Uid,
            b"resourceVersion" => Self::Version,
            b"managedFields" => Self::ManagedFields,
            b"annotations" => Self::Annotations,
            _ => return None,
        })
    }
}

/// Returns the value of the string at `written` in `bytes`.
fn read<'a>(bytes: &'a [u8], written: &StringRange) -> Option<Cow<'a, str>> {
    if written.is_empty() { None } else { RawString::new(&bytes[written.clone()]).read() }
}

/// Returns whether `annotations`, an object in JSON, contains `name` with the value `value`.
pub(crate) fn has_annotation(annotations: &[u8], name: &str, value: &str) -> Result<bool, ScanError> {
    let mut found = 0..0;
    Cursor::new(annotations).members(|cursor, member| {
        match member.name.parse_with(|text| (text == name.as_bytes()).then_some(())) {
            Some(()) => found = cursor.string_range()?,
            None => _ = cursor.skip()?,
        }
        Ok(())
    })?;
    Ok(read(annotations, &found).is_some_and(|read| read == value))
}
