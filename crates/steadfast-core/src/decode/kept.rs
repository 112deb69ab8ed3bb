//! What is kept of an object is decided by the type that is requested.

use std::collections::BTreeMap;

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{DecodeError, DecodeOptions, Encoding, RawObject};
use crate::protobuf;

/// A form in which objects are kept.
///
/// Every [`kube::Resource`] that can be deserialized is one: the types of `k8s-openapi`, derived custom resources,
/// `DynamicObject`, `PartialObjectMeta<K>`, and a struct of one's own with just the fields one needs. Who an object is
/// never depends on the form: that is the [`RawObject`]'s.
pub trait Kept: Send + Sync + Sized + 'static {
    /// The form of `raw`.
    ///
    /// # Errors
    ///
    /// Where the object does not fit the form.
    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError>;

    /// Whether only the objects' metadata is requested.
    fn metadata_only() -> bool;

    /// The labels, for readers that select by them.
    fn labels(&self) -> Option<&BTreeMap<String, String>>;
}

impl<K> Kept for K
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        decoder.decode(raw)
    }

    fn metadata_only() -> bool {
        K::metadata_api()
    }

    fn labels(&self) -> Option<&BTreeMap<String, String>> {
        self.meta().labels.as_ref()
    }
}

/// Decodes objects one after the other, with one buffer for all.
#[derive(Default)]
pub struct Decoder {
    options: DecodeOptions,
    scratch: Vec<u8>,
}

/// What the buffer may hold on to: one large object must not cost its size for ever.
const SCRATCH: usize = 256 * 1024;

impl Decoder {
    /// A decoder with these options.
    pub fn new(options: DecodeOptions) -> Self {
        Self { options, scratch: Vec::new() }
    }

    /// What it decodes of objects.
    pub fn options(&self) -> DecodeOptions {
        self.options
    }

    /// Decodes `raw`, without its `managedFields` unless they are to be kept.
    ///
    /// # Errors
    ///
    /// Where the object does not fit `T`, or its JSON is not UTF-8.
    pub fn decode<T: DeserializeOwned>(&mut self, raw: &RawObject) -> Result<T, DecodeError> {
        match raw.encoding {
            Encoding::Json => {
                self.scratch.clear();
                self.scratch.shrink_to(SCRATCH);
                let text = raw.compact(self.options, &mut self.scratch);
                json(text).map_err(|error| {
                    let at = offset(text, &error);
                    let cut = raw.managed_fields.as_ref().is_some_and(|cut| at > cut.start);
                    let offset = if cut { at + raw.bytes.len() - text.len() } else { at };
                    DecodeError::of_json(&raw.identity, offset, &error)
                })
            }
            Encoding::Protobuf => {
                let message = raw.message.ok_or_else(|| DecodeError::of_unknown_kind(&raw.identity))?;
                // What is not kept is passed over, and need not be cut out.
                protobuf::decode(message, &raw.bytes, self.options.keep_managed_fields)
                    .map_err(|error| DecodeError::of_protobuf(&raw.identity, &error))
            }
        }
    }
}

/// Reads `text`, of which all has to be UTF-8, also where `T` does not look.
fn json<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    match str::from_utf8(text) {
        // Looked at in one go: `serde_json` would do so string by string, which is an eighth of its work.
        Ok(text) => serde_json::from_str(text),
        // The type that looks everywhere finds the place.
        Err(error) => serde_json::from_slice::<Value>(text).and_then(|_| Err(serde::de::Error::custom(error))),
    }
}

/// Where in `text` the error arose: `serde_json` counts lines and, in bytes, columns.
fn offset(text: &[u8], error: &serde_json::Error) -> usize {
    let line = match error.line() {
        0 | 1 => 0,
        line => memchr::memchr_iter(b'\n', text).nth(line - 2).map_or(0, |end| end + 1),
    };
    line + error.column()
}
