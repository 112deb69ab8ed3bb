//! Durations in human-readable form.

use std::borrow::Cow;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

/// Longest duration in a configuration: ten years. The sum of such a duration and a time cannot overflow.
pub const MAX_CONFIG_DURATION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Duration: `500ms`, `10s`, `1h 30m`. At most ten years.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigDuration(pub Duration);

impl<'de> Deserialize<'de> for ConfigDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = String::deserialize(deserializer)?;
        let syntax_error =
            || D::Error::custom(format!("{written:?} is not a valid duration; write `500ms`, `10s` or `1h 30m`"));
        let duration: SignedDuration = written.parse().map_err(|_| syntax_error())?;
        let duration = Duration::try_from(duration).map_err(|_| syntax_error())?;
        if duration > MAX_CONFIG_DURATION {
            return Err(D::Error::custom(format!(
                "{written:?} is longer than ten years (87600h), the longest duration"
            )));
        }
        Ok(Self(duration))
    }
}

impl JsonSchema for ConfigDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Duration: `500ms`, `10s`, `1h 30m`.",
        })
    }
}
