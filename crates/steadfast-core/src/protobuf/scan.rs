//! Identity of an object in its protobuf, found without decoding.

use std::borrow::Cow;
use std::ops::Range;

use super::envelope::open_envelope;
use super::text::lossy_text;
use super::wire::{Reader, Tag, WireError};
use crate::scan::{Metadata, ObjectScan, RecordScan};

/// Field number of `metadata` in every object and list.
pub(crate) const METADATA: u32 = 1;

/// Field numbers of the identity in `meta.v1.ObjectMeta`, and of two more fields.
pub(crate) mod numbers {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const NAMESPACE: u32 = 3;
    pub(crate) const UID: u32 = 5;
    pub(crate) const VERSION: u32 = 6;
    pub(crate) const ANNOTATIONS: u32 = 12;
    pub(crate) const MANAGED_FIELDS: u32 = 17;
}

/// Scans the object `bytes`, with or without its envelope. If an error occurs, the parts that were scanned before it
/// are still returned.
pub(crate) fn scan_object_bytes(bytes: &[u8]) -> (ObjectScan<'_>, Result<(), WireError>) {
    let mut found = ObjectScan::default();
    let scanned = scan_object(Reader::new(bytes), &mut found);
    (found, scanned)
}

fn scan_object<'a>(encoded: Reader<'a>, found: &mut ObjectScan<'a>) -> Result<(), WireError> {
    let (types, mut message) = open_envelope(encoded)?;
    if let Some(types) = types {
        found.api_version = Some(lossy_text(types.api_version));
        found.kind = Some(lossy_text(types.kind));
    }
    let mut seen = false;
    while let Some(tag) = message.tag()? {
        if tag.number != METADATA {
            message.skip(tag.wire)?;
            continue;
        }
        if std::mem::replace(&mut seen, true) {
            // The decoder rejects repeated metadata, too.
            return Err(WireError { at: message.at() });
        }
        found.metadata = metadata(message.delimited(tag.wire)?)?;
    }
    found.span = Some(encoded.at()..encoded.at() + encoded.rest().len());
    Ok(())
}

fn metadata(mut message: Reader<'_>) -> Result<Metadata<'_>, WireError> {
    let mut found = Metadata::default();
    loop {
        let offset = message.at();
        let Some(Tag { number, wire }) = message.tag()? else { return Ok(found) };
        match number {
            numbers::NAME => set_once(&mut found.name, message.delimited(wire)?)?,
            numbers::NAMESPACE => set_once(&mut found.namespace, message.delimited(wire)?)?,
            numbers::UID => set_once(&mut found.uid, message.delimited(wire)?)?,
            numbers::VERSION => set_once(&mut found.version, message.delimited(wire)?)?,
            numbers::ANNOTATIONS => store_range(&mut found.annotations, offset, &mut message, number)?,
            numbers::MANAGED_FIELDS => store_range(&mut found.managed_fields, offset, &mut message, number)?,
            _ => message.skip(wire)?,
        }
    }
}

fn set_once<'a>(text: &mut Option<Cow<'a, str>>, found: Reader<'a>) -> Result<(), WireError> {
    match text.replace(lossy_text(found.rest())) {
        None => Ok(()),
        Some(_) => Err(WireError { at: found.at() }),
    }
}

/// Skips the fields with the number `number`, and stores their position in `range`. Returns an error if they are not
/// adjacent.
fn store_range(
    range: &mut Option<Range<usize>>,
    offset: usize,
    message: &mut Reader<'_>,
    number: u32,
) -> Result<(), WireError> {
    message.seek(offset);
    message.skip_all(number)?;
    match range.replace(offset..message.at()) {
        None => Ok(()),
        Some(_) => Err(WireError { at: offset }),
    }
}

/// Scans the watch record `frame`, a `meta.v1.WatchEvent`. If an error occurs, the parts that were scanned before it
/// are still returned.
pub(crate) fn record(frame: &[u8]) -> (RecordScan<'_>, Result<(), WireError>) {
    let mut found = RecordScan::default();
    let scanned = scan_record(frame, &mut found);
    (found, scanned)
}

fn scan_record<'a>(frame: &'a [u8], found: &mut RecordScan<'a>) -> Result<(), WireError> {
    let (mut event, mut object) = (Reader::new(frame), None);
    while let Some(tag) = event.tag()? {
        match tag.number {
            1 => set_once(&mut found.kind, event.delimited(tag.wire)?)?,
            2 => {
                // The object is within a `runtime.RawExtension`.
                let mut extension = event.delimited(tag.wire)?;
                while let Some(tag) = extension.tag()? {
                    match tag.number {
                        1 => object = Some(extension.delimited(tag.wire)?),
                        _ => extension.skip(tag.wire)?,
                    }
                }
            }
            _ => event.skip(tag.wire)?,
        }
    }
    match object {
        Some(encoded) => scan_object(encoded, &mut found.object),
        None => Ok(()),
    }
}

/// Returns whether the encoded map entries `annotations` contain `name` with the value `value`. If a name occurs
/// several times, its last value counts.
pub(crate) fn has_annotation(annotations: &[u8], name: &str, value: &str) -> Result<bool, WireError> {
    let (mut reader, mut has) = (Reader::new(annotations), false);
    while let Some(tag) = reader.tag()? {
        let mut entry = reader.delimited(tag.wire)?;
        let (mut key, mut text) = (entry.empty(), entry.empty());
        while let Some(tag) = entry.tag()? {
            match tag.number {
                1 => key = entry.delimited(tag.wire)?,
                2 => text = entry.delimited(tag.wire)?,
                _ => entry.skip(tag.wire)?,
            }
        }
        // For duplicate keys, the last value counts, as in a Go map.
        if key.rest() == name.as_bytes() {
            has = text.rest() == value.as_bytes();
        }
    }
    Ok(has)
}

/// Content of a `meta.v1.ListMeta`.
#[derive(Default)]
pub(crate) struct ListMetaFields<'a> {
    /// `resourceVersion` of the list.
    pub(crate) version: Option<Cow<'a, str>>,
    /// `continue` token of the list.
    pub(crate) token: Option<Cow<'a, str>>,
}

/// Reads the `meta.v1.ListMeta` in `message`.
pub(crate) fn list_meta_fields(message: &[u8]) -> Result<ListMetaFields<'_>, WireError> {
    let (mut reader, mut found) = (Reader::new(message), ListMetaFields::default());
    while let Some(tag) = reader.tag()? {
        match tag.number {
            2 => set_once(&mut found.version, reader.delimited(tag.wire)?)?,
            3 => set_once(&mut found.token, reader.delimited(tag.wire)?)?,
            _ => reader.skip(tag.wire)?,
        }
    }
    Ok(found)
}
