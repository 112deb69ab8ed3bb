//! The embedded server's encoder and decoder must match those of Go's own packages.

use std::collections::BTreeSet;

use serde_json::Value;
use steadfast_apiserver::protobuf;
use steadfast_core::protobuf::decode;

use crate::protobuf_types::difference;
use crate::protobuf_types::program_output;
use crate::protobuf_types::sample::{Error, Sample};

/// Removes null values. In JSON, null is equivalent to a missing field: Go writes null for a pointer to the zero time,
/// and for a nil pointer.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let without_null = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(without_null.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn embedded_protobuf_matches_go() -> Result<(), Error> {
    let Some(corpus) = program_output(&["corpus", "-seed", "3", "-each", "16"])? else { return Ok(()) };
    let (mut kinds, mut same_bytes_count) = (BTreeSet::new(), 0);
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        let expected: Value = serde_json::from_str(sample.json)?;
        // The server has no alpha kinds, and few beta kinds.
        let Some(encoded) = protobuf::encode(&expected) else { continue };
        kinds.insert(sample.kind);
        same_bytes_count += usize::from(encoded == sample.protobuf);
        let without_null = without_nulls(expected);
        let actual = without_nulls(decode(sample.id, &encoded, true)?);
        assert!(
            actual == without_null,
            "written: {}",
            difference(&format!("{:?}", sample.kind), &actual, &without_null)
        );
        let decoded = protobuf::decode(&sample.protobuf).map_err(|error| format!("{sample}: {error}"))?;
        let encoded_again = protobuf::encode(&decoded).ok_or("the decoded object cannot be encoded")?;
        let actual = without_nulls(decode(sample.id, &encoded_again, true)?);
        assert!(actual == without_null, "read: {}", difference(&format!("{:?}", sample.kind), &actual, &without_null));
    }
    // The bytes differ if a string is not valid UTF-8, or if JSON has another order.
    assert!(same_bytes_count > 500, "only {same_bytes_count} objects have the same bytes as Go's");
    assert!(kinds.len() > 120, "only {} kinds", kinds.len());
    Ok(())
}
