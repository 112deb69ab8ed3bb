//! Envelope of a standalone object: a magic prefix, and a `runtime.Unknown` with the kind.

use std::borrow::Cow;

use super::text::lossy_text;
use super::wire::{Reader, WireError};

/// Magic prefix of every standalone object. No Kubernetes message starts with these bytes, which would denote a group.
pub(crate) const MAGIC_PREFIX: &[u8] = b"k8s\0";

/// `apiVersion` and `kind` of an object.
#[derive(Clone, Copy, Default)]
pub(crate) struct TypeMeta<'a> {
    pub(crate) api_version: &'a [u8],
    pub(crate) kind: &'a [u8],
}

/// Opens an optional envelope. Returns the type in the envelope, if one exists, and the message.
pub(crate) fn open_envelope(reader: Reader<'_>) -> Result<(Option<TypeMeta<'_>>, Reader<'_>), WireError> {
    if !reader.rest().starts_with(MAGIC_PREFIX) {
        return Ok((None, reader));
    }
    let mut envelope = reader;
    envelope.seek(reader.at() + MAGIC_PREFIX.len());
    let (mut types, mut message) = (TypeMeta::default(), envelope.empty());
    while let Some(tag) = envelope.tag()? {
        let at = envelope.at();
        match tag.number {
            1 => types = type_meta(envelope.delimited(tag.wire)?)?,
            2 => message = envelope.delimited(tag.wire)?,
            // Content encoding, such as gzip; no server sets it.
            3 if !envelope.delimited(tag.wire)?.rest().is_empty() => return Err(WireError { at }),
            4 => {
                let content_type = envelope.delimited(tag.wire)?.rest();
                if !matches!(content_type, b"" | b"application/vnd.kubernetes.protobuf") {
                    return Err(WireError { at });
                }
            }
            3 => {}
            _ => envelope.skip(tag.wire)?,
        }
    }
    Ok((Some(types), message))
}

/// Reads `apiVersion` and `kind` of a `runtime.TypeMeta`.
pub(crate) fn types(message: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), WireError> {
    let TypeMeta { api_version, kind } = type_meta(Reader::new(message))?;
    Ok((lossy_text(api_version), lossy_text(kind)))
}

fn type_meta(mut message: Reader<'_>) -> Result<TypeMeta<'_>, WireError> {
    let mut types = TypeMeta::default();
    while let Some(tag) = message.tag()? {
        match tag.number {
            1 => types.api_version = message.delimited(tag.wire)?.rest(),
            2 => types.kind = message.delimited(tag.wire)?.rest(),
            _ => message.skip(tag.wire)?,
        }
    }
    Ok(types)
}
