//! What the embedded server writes and reads is what Go's own packages write and read.

use std::collections::BTreeSet;

use serde_json::Value;
use steadfast_apiserver::protobuf;
use steadfast_core::protobuf::decode;

use crate::difference;
use crate::sample::{Error, Sample};
use crate::told;

/// A value without what is null, which in JSON means what nothing means: a pointer to Go's zero time is no other than none
/// for whoever reads its JSON.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let told = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(told.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[test]
fn the_embedded_server_writes_and_reads_protobuf_as_go_does() -> Result<(), Error> {
    let Some(corpus) = told(&["corpus", "-seed", "3", "-each", "16"])? else { return Ok(()) };
    let (mut kinds, mut same_bytes) = (BTreeSet::new(), 0);
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        let wanted: Value = serde_json::from_str(sample.json)?;
        // It has no kinds in alpha and few in beta.
        let Some(written) = protobuf::encode(&wanted) else { continue };
        kinds.insert(sample.kind);
        same_bytes += usize::from(written == sample.protobuf);
        let told = without_nulls(wanted);
        let found = without_nulls(decode(sample.id, &written, true)?);
        assert!(found == told, "written: {}", difference(&format!("{:?}", sample.kind), &found, &told));
        let read = protobuf::decode(&sample.protobuf).map_err(|error| format!("{sample}: {error}"))?;
        let again = protobuf::encode(&read).ok_or("what was read cannot be written")?;
        let found = without_nulls(decode(sample.id, &again, true)?);
        assert!(found == told, "read: {}", difference(&format!("{:?}", sample.kind), &found, &told));
    }
    // Where text is no UTF-8, or JSON stands in another order, the bytes are other ones.
    assert!(same_bytes > 500, "only {same_bytes} objects are byte for byte what Go writes");
    assert!(kinds.len() > 120, "only {} kinds", kinds.len());
    Ok(())
}
