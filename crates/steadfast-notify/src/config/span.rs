//! How long something takes, as people write it.

use std::borrow::Cow;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

/// A stretch of time: `500ms`, `10s`, `1h 30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom(format!("{written:?} is no stretch of time, as `500ms`, `10s` or `1h 30m` is"));
        let read: SignedDuration = written.parse().map_err(|_| wrong())?;
        Duration::try_from(read).map(Self).map_err(|_| wrong())
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A stretch of time: `500ms`, `10s`, `1h 30m`.",
        })
    }
}
