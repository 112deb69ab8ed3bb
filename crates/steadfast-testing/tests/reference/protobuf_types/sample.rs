//! One object in both encodings.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use steadfast_core::protobuf::{MessageType, decode};

/// Error of a test.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Object in both encodings.
pub(crate) struct Sample<'a> {
    pub(crate) kind: (&'a str, &'a str),
    pub(crate) id: MessageType,
    pub(crate) protobuf: Vec<u8>,
    pub(crate) json: &'a str,
}

impl<'a> Sample<'a> {
    pub(crate) fn read(line: &'a str) -> Result<Self, Error> {
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().ok_or("a line of the corpus is incomplete");
        let (api_version, kind, protobuf, json) = (next()?, next()?, next()?, next()?);
        let id = MessageType::of_kind(api_version, kind).ok_or_else(|| format!("{api_version} has no {kind}"))?;
        Ok(Self { kind: (api_version, kind), id, protobuf: STANDARD.decode(protobuf)?, json })
    }

    /// Returns `true` if the JSON is a valid `T`. Returns an error if the protobuf yields another value.
    pub(crate) fn compare<T: DeserializeOwned + PartialEq>(&self) -> Result<bool, Error> {
        let json: Result<T, _> = serde_json::from_str(self.json);
        let protobuf: Result<T, _> = decode(self.id, &self.protobuf, true);
        match (json, protobuf) {
            (Ok(json), Ok(protobuf)) if json == protobuf => Ok(true),
            (Err(_), Err(_)) => Ok(false),
            (Ok(_), Ok(_)) => Err(format!("{self}: a different {}", std::any::type_name::<T>()).into()),
            (Err(json), Ok(_)) => Err(format!("{self}: decodes only from protobuf; JSON error: {json}").into()),
            (Ok(_), Err(protobuf)) => Err(format!("{self}: decodes only from JSON; protobuf error: {protobuf}").into()),
        }
    }
}

impl fmt::Display for Sample<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (api_version, kind) = self.kind;
        write!(f, "{kind} of {api_version}, {} as JSON", self.json)
    }
}
