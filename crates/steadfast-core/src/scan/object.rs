//! Who an object is, found in its JSON without decoding it.

use std::borrow::Cow;
use std::ops::Range;

use super::cursor::Cursor;
use super::skim::Fault;

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

impl<'a> RecordScan<'a> {
    /// Scans the watch record `bytes`.
    pub(crate) fn scan(&mut self, bytes: &'a [u8]) -> Result<(), Fault> {
        let mut cursor = Cursor::new(bytes);
        cursor.members(|cursor, member| {
            if member.name.is("type") {
                self.kind = cursor.string()?;
            } else if member.name.is("object") {
                self.object = ObjectScan::default();
                self.object.walk(cursor)?;
            } else {
                cursor.skip()?;
            }
            Ok(())
        })?;
        cursor.end()
    }
}

impl<'a> ObjectScan<'a> {
    /// Scans the object `bytes`.
    pub(crate) fn scan(&mut self, bytes: &'a [u8]) -> Result<(), Fault> {
        let mut cursor = Cursor::new(bytes);
        self.walk(&mut cursor)?;
        cursor.end()
    }

    fn walk(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Fault> {
        let span = cursor.members(|cursor, member| {
            if member.name.is("metadata") {
                self.metadata = Metadata::default();
                self.metadata = Metadata::walk(cursor)?;
            } else if member.name.is("apiVersion") {
                self.api_version = cursor.string()?;
            } else if member.name.is("kind") {
                self.kind = cursor.string()?;
            } else {
                cursor.skip()?;
            }
            Ok(())
        })?;
        self.span = Some(span);
        Ok(())
    }
}

impl<'a> Metadata<'a> {
    fn walk(cursor: &mut Cursor<'a>) -> Result<Self, Fault> {
        let mut found = Self::default();
        cursor.members(|cursor, member| {
            if member.name.is("namespace") {
                found.namespace = cursor.string()?;
            } else if member.name.is("name") {
                found.name = cursor.string()?;
            } else if member.name.is("uid") {
                found.uid = cursor.string()?;
            } else if member.name.is("resourceVersion") {
                found.version = cursor.string()?;
            } else if member.name.is("managedFields") {
                let value = cursor.skip()?;
                found.managed_fields = Some(match member.comma {
                    Some(comma) => comma..value.end,
                    None if cursor.peek() == Some(b',') => member.start..cursor.place() + 1,
                    None => member.start..value.end,
                });
            } else if member.name.is("annotations") {
                found.annotations = Some(cursor.skip()?);
            } else {
                cursor.skip()?;
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// Whether `annotations`, an object's JSON, has `name` with the value `value`.
pub(crate) fn has_annotation(annotations: &[u8], name: &str, value: &str) -> Result<bool, Fault> {
    let mut has = false;
    Cursor::new(annotations).members(|cursor, member| {
        if member.name.is(name) {
            has = cursor.string()?.is_some_and(|read| read == value);
        } else {
            cursor.skip()?;
        }
        Ok(())
    })?;
    Ok(has)
}
