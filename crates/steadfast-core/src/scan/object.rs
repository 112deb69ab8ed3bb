//! Who an object is, as its JSON says it.

use std::borrow::Cow;
use std::ops::Range;

/// What was found of a watch record. What was found before a fault stays.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct RecordScan<'a> {
    /// Its `type`.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// Its `object`.
    pub(crate) object: ObjectScan<'a>,
}

/// What was found of an object. What was found before a fault stays.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectScan<'a> {
    /// Where it lies; none where it is missing or did not end.
    pub(crate) span: Option<Range<usize>>,
    /// Its `apiVersion`.
    pub(crate) api_version: Option<Cow<'a, str>>,
    /// Its `kind`.
    pub(crate) kind: Option<Cow<'a, str>>,
    /// Its `metadata`; what there is of them only once they ended, lest a key is taken for another's without its
    /// namespace.
    pub(crate) metadata: Metadata<'a>,
}

/// What a cache has to know of an object's metadata. As in `serde_json`, the last of several members of one name counts.
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
    /// What to cut out of the text so that it has no `metadata.managedFields`: the member and one comma beside it.
    pub(crate) managed_fields: Option<Range<usize>>,
    /// Where `metadata.annotations` lies: they are read only where they matter.
    pub(crate) annotations: Option<Range<usize>>,
}
