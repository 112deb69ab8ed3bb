//! Compares objects decoded from protobuf with those decoded from JSON. The API server's own Go packages write random
//! objects of each built-in kind in both encodings.
//!
//! `conformance/reference/build` builds the program that writes them. Without it, the tests are skipped.
//! `STEADFAST_SEED=17` selects other objects.

mod sample;
mod served;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;

use kube::core::{DynamicObject, ObjectMeta};
use sample::{Error, Sample};
use serde::Deserialize;
use serde_json::Value;
use steadfast_core::protobuf::decode;
use steadfast_testing::reference::{program, skip};

/// Returns the output of the program.
fn program_output(arguments: &[&str]) -> Result<Option<String>, Error> {
    let Some(program) = program("STEADFAST_PROTOBUF_SAMPLER", "messages")? else {
        skip("the protobuf sample program is not built; run conformance/reference/build, which needs Go")?;
        return Ok(None);
    };
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(Some(String::from_utf8(output.stdout)?))
}

/// Returns the path at which two values differ.
fn difference(path: &str, actual: &Value, expected: &Value) -> String {
    let inner_difference = |name: &str, actual: Option<&Value>, expected: Option<&Value>| {
        let (actual, expected) = (actual.cloned().unwrap_or("none".into()), expected.cloned().unwrap_or("none".into()));
        difference(&format!("{path}.{name}"), &actual, &expected)
    };
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            let mut names = actual.keys().chain(expected.keys());
            let name = names.find(|name| actual.get(*name) != expected.get(*name));
            name.map_or_else(|| path.to_owned(), |name| inner_difference(name, actual.get(name), expected.get(name)))
        }
        (Value::Array(actual), Value::Array(expected)) => {
            let index = (0..actual.len().max(expected.len())).find(|index| actual.get(*index) != expected.get(*index));
            index.map_or_else(
                || path.to_owned(),
                |index| inner_difference(&index.to_string(), actual.get(index), expected.get(index)),
            )
        }
        _ => format!("{path}: {actual} and {expected}"),
    }
}

/// Projection of a few fields: some in embedded messages, one with any values, and one that is a map.
#[derive(Debug, Deserialize, PartialEq)]
struct Projection {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    #[serde(default)]
    volumes: Option<Vec<Value>>,
    replicas: Option<i32>,
}

#[test]
fn protobuf_table_matches_go_types() -> Result<(), Error> {
    let Some(go_table) = program_output(&["table"])? else { return Ok(()) };
    let own_table = include_str!("../../../steadfast-core/src/protobuf/table.txt");
    let lines = go_table.lines().zip(own_table.lines()).enumerate();
    for (number, (go_line, own_line)) in lines {
        assert_eq!(
            own_line,
            go_line,
            "line {} of the table differs; conformance/reference/README.md describes how to regenerate it",
            number + 1
        );
    }
    assert_eq!(own_table.len(), go_table.len());
    Ok(())
}

#[test]
fn each_kind_decodes_equally_from_both_encodings() -> Result<(), Error> {
    let seed = env::var("STEADFAST_SEED").unwrap_or_else(|_| "1".to_owned());
    let Some(corpus) = program_output(&["corpus", "-seed", &seed, "-each", "16"])? else { return Ok(()) };
    let (mut kinds, mut dynamic_count) = (BTreeSet::new(), 0);
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        kinds.insert(sample.kind);
        let expected: Value = serde_json::from_str(sample.json)?;
        let actual: Value = decode(sample.id, &sample.protobuf, true)?;
        assert!(actual == expected, "{}", difference(&format!("{:?}", sample.kind), &actual, &expected));
        dynamic_count += usize::from(sample.compare::<DynamicObject>()?);
        sample.compare::<Projection>()?;
    }
    assert!(kinds.len() > 300, "only {} kinds", kinds.len());
    assert!(dynamic_count > 1000, "only {dynamic_count} are top-level objects");
    Ok(())
}

#[test]
fn each_typed_kind_decodes_equally() -> Result<(), Error> {
    let Some(corpus) = program_output(&["corpus", "-seed", "2", "-each", "8"])? else { return Ok(()) };
    let types = types::all();
    let mut decoded_counts = BTreeMap::new();
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        if let Some(compare) = types.get(&sample.kind) {
            *decoded_counts.entry(sample.kind).or_insert(0) += usize::from(compare(&sample)?);
        }
    }
    for kind in types.keys() {
        assert!(
            decoded_counts.get(kind).is_some_and(|count| *count > 0),
            "no sample of {kind:?} is valid for its type"
        );
    }
    Ok(())
}
