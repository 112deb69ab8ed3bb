//! Serialization of durations as whole nanoseconds, which is short and exact.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // More than 500 years do not occur in a trace.
    serializer.serialize_u64(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_nanos)
}
