//! Identity of an object in its JSON.

use std::borrow::Cow;
use std::ops::Range;

/// Result of a scan of a watch record. If an error occurs, the parts that were scanned before it are kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct RecordScan<'a> {
    /// `type` of the record.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// `object` of the record.
    pub(crate) object: ObjectScan<'a>,
}

/// Result of a scan of an object. If an error occurs, the parts that were scanned before it are kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectScan<'a> {
    /// Range of the object; `None` if it is missing or incomplete.
    pub(crate) span: Option<Range<usize>>,
    /// `apiVersion` of the object.
    pub(crate) api_version: Option<Cow<'a, str>>,
    /// `kind` of the object.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// `metadata` of the object. They are set only after their end: a key without its namespace would denote another
    /// object.
    pub(crate) metadata: Metadata<'a>,
}

/// Metadata that a cache needs. As in `serde_json`, the last of several members with one name counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Metadata<'a> {
    /// `metadata.namespace`.
    pub(crate) namespace: Option<Cow<'a, str>>,
    /// `metadata.name`.
    pub(crate) name: Option<Cow<'a, str>>,
    /// `metadata.uid`.
    pub(crate) uid: Option<Cow<'a, str>>,
    /// `metadata.resourceVersion`.
    pub(crate) version: Option<Cow<'a, str>>,
    /// Range to remove for a text without `metadata.managedFields`: the member and one adjacent comma.
    pub(crate) managed_fields: Option<Range<usize>>,
    /// Range of `metadata.annotations`, which are read only if needed.
    pub(crate) annotations: Option<Range<usize>>,
}
