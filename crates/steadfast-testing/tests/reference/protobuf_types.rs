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
fn difference(path: &str, one: &Value, other: &Value) -> String {
    let inside = |name: &str, one: Option<&Value>, other: Option<&Value>| {
        let (one, other) = (one.cloned().unwrap_or("none".into()), other.cloned().unwrap_or("none".into()));
        difference(&format!("{path}.{name}"), &one, &other)
    };
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names = one.keys().chain(other.keys());
            let name = names.find(|name| one.get(*name) != other.get(*name));
            name.map_or_else(|| path.to_owned(), |name| inside(name, one.get(name), other.get(name)))
        }
        (Value::Array(one), Value::Array(other)) => {
            let index = (0..one.len().max(other.len())).find(|index| one.get(*index) != other.get(*index));
            index.map_or_else(|| path.to_owned(), |index| inside(&index.to_string(), one.get(index), other.get(index)))
        }
        _ => format!("{path}: {one} and {other}"),
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
    let Some(printed) = program_output(&["table"])? else { return Ok(()) };
    let ours = include_str!("../../../steadfast-core/src/protobuf/table.txt");
    let lines = printed.lines().zip(ours.lines()).enumerate();
    for (number, (printed, ours)) in lines {
        assert_eq!(
            ours,
            printed,
            "line {} of the table differs; conformance/reference/README.md describes how to regenerate it",
            number + 1
        );
    }
    assert_eq!(ours.len(), printed.len());
    Ok(())
}

#[test]
fn each_kind_decodes_equally_from_both_encodings() -> Result<(), Error> {
    let seed = env::var("STEADFAST_SEED").unwrap_or_else(|_| "1".to_owned());
    let Some(corpus) = program_output(&["corpus", "-seed", &seed, "-each", "16"])? else { return Ok(()) };
    let (mut kinds, mut dynamic) = (BTreeSet::new(), 0);
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        kinds.insert(sample.kind);
        let wanted: Value = serde_json::from_str(sample.json)?;
        let found: Value = decode(sample.id, &sample.protobuf, true)?;
        assert!(found == wanted, "{}", difference(&format!("{:?}", sample.kind), &found, &wanted));
        dynamic += usize::from(sample.compare::<DynamicObject>()?);
        sample.compare::<Projection>()?;
    }
    assert!(kinds.len() > 300, "only {} kinds", kinds.len());
    assert!(dynamic > 1000, "only {dynamic} are top-level objects");
    Ok(())
}

#[test]
fn each_typed_kind_decodes_equally() -> Result<(), Error> {
    let Some(corpus) = program_output(&["corpus", "-seed", "2", "-each", "8"])? else { return Ok(()) };
    let types = types::all();
    let mut decoded = BTreeMap::new();
    for line in corpus.lines() {
        let sample = Sample::read(line)?;
        if let Some(compare) = types.get(&sample.kind) {
            *decoded.entry(sample.kind).or_insert(0) += usize::from(compare(&sample)?);
        }
    }
    for kind in types.keys() {
        assert!(decoded.get(kind).is_some_and(|count| *count > 0), "no sample of {kind:?} is valid for its type");
    }
    Ok(())
}
