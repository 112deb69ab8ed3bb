//! JSON within a message: extensions and `managedFields` contain JSON in protobuf, too.

use serde_json::Deserializer;
use serde_json::de::SliceRead;

use super::error::{Error, Reason};
use super::wire::Reader;

/// Deserializes the JSON text `json` by `read`.
pub(crate) fn embedded<'de, T>(
    json: Reader<'de>,
    read: impl FnOnce(&mut Deserializer<SliceRead<'de>>) -> serde_json::Result<T>,
) -> Result<T, Error> {
    let mut text = Deserializer::from_slice(json.rest());
    let value = read(&mut text).and_then(|value| text.end().map(|()| value));
    value.map_err(|error| {
        let message = error.to_string();
        let reason = match error.classify() {
            serde_json::error::Category::Data => Reason::InvalidValue(message),
            _ if message.starts_with("recursion limit exceeded") => Reason::TooDeep,
            _ => Reason::Malformed,
        };
        Error::new(reason, json.at())
    })
}
