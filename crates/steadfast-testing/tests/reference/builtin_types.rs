//! The embedded server must document the built-in types, their fields and their merge strategies as a real server does.
//!
//! Both servers document them in `OpenAPI`. The embedded server generates its documents from the table with which it
//! serves, checks and merges objects. `conformance/types/generate` regenerates the table. Without the reference, the
//! test is skipped.

use std::collections::BTreeMap;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value};
use steadfast_apiserver::ApiServer;
use steadfast_testing::reference::Reference;
use steadfast_testing::{TestError, connection};

#[tokio::test(flavor = "multi_thread")]
async fn builtin_types_match_real_server() -> Result<(), TestError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let theirs = reference.connection().await?.client();
    let embedded = ApiServer::builder().start().await?;
    let ours = connection(&embedded).await?.client();
    let mut compared_types = BTreeMap::new();
    for path in get(&ours, "/openapi/v3").await?["paths"].as_object().ok_or("no documents")?.keys() {
        let (ours, theirs) = (schemas(&ours, path).await?, schemas(&theirs, path).await?);
        for (name, schema) in ours {
            let real = theirs.get(&name).map(|schema| normalised(schema.clone()));
            let own_schema = normalised(schema);
            if real.as_ref() != Some(&own_schema) {
                return Err(difference(&name, &own_schema, &real.unwrap_or_default()).into());
            }
            compared_types.insert(name, own_schema);
        }
    }
    assert!(compared_types.len() > 300, "only {} types are documented", compared_types.len());
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value, TestError> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
}

/// Returns the schemas of the document of a group and version.
async fn schemas(client: &Client, path: &str) -> Result<Map<String, Value>, TestError> {
    let mut document = get(client, &format!("/openapi/v3/{path}")).await?;
    match document.pointer_mut("/components/schemas").map(Value::take) {
        Some(Value::Object(schemas)) => Ok(schemas),
        _ => Err(format!("{path} has no schemas").into()),
    }
}

/// Returns a schema without the parts that the embedded server omits and that affect nothing, and with references in
/// one canonical form.
fn normalised(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let omitted = ["x-kubernetes-group-version-kind", "x-kubernetes-unions"];
            let is_kept = |(key, value): &(String, Value)| {
                !(omitted.contains(&key.as_str()) || key == "description" && value.is_string())
            };
            let mut fields: Map<String, Value> =
                fields.into_iter().filter(is_kept).map(|(key, value)| (key, normalised(value))).collect();
            if let Some(Value::Array(names)) = fields.get_mut("required") {
                names.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            }
            if let Some(reference) = fields.get("allOf").and_then(|all| all.get(0)?.get("$ref")).cloned() {
                fields.remove("allOf");
                fields.insert("$ref".to_owned(), reference);
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.into_iter().map(normalised).collect(),
        other => other,
    }
}

/// Describes the first difference of two schemas, as short as possible.
fn difference(name: &str, ours: &Value, theirs: &Value) -> String {
    if let (Value::Object(one), Value::Object(other)) = (ours, theirs) {
        let mut keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
        if let Some(key) = keys.find(|key| one.get(*key) != other.get(*key)) {
            let value_of = |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
            return difference(&format!("{name} {key}"), &value_of(one), &value_of(other));
        }
    }
    format!("{name}: {ours} on the embedded server, {theirs} on a real one")
}
