//! What the embedded server says of the built-in types, their fields and how each is merged, is what a real server says.
//!
//! Both say it in their `OpenAPI` documents. The embedded server serves, checks and merges by the same table from which it
//! writes them, which `conformance/types/generate` writes anew. Without the reference this is skipped.

use std::collections::BTreeMap;

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Map, Value};
use steadfast_apiserver::ApiServer;
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, connection};

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_types_are_those_of_a_real_server() -> Result<(), WorldError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let theirs = reference.connection().await?.client();
    let embedded = ApiServer::builder().start().await?;
    let ours = connection(&embedded).await?.client();
    let mut compared = BTreeMap::new();
    for path in get(&ours, "/openapi/v3").await?["paths"].as_object().ok_or("no documents")?.keys() {
        let (ours, theirs) = (schemas(&ours, path).await?, schemas(&theirs, path).await?);
        for (name, schema) in ours {
            let real = theirs.get(&name).map(|schema| plain(schema.clone()));
            let own = plain(schema);
            if real.as_ref() != Some(&own) {
                return Err(difference(&name, &own, &real.unwrap_or_default()).into());
            }
            compared.insert(name, own);
        }
    }
    assert!(compared.len() > 300, "only {} types are told", compared.len());
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value, WorldError> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
}

/// The schemas of the document of a group and version.
async fn schemas(client: &Client, path: &str) -> Result<Map<String, Value>, WorldError> {
    let mut document = get(client, &format!("/openapi/v3/{path}")).await?;
    match document.pointer_mut("/components/schemas").map(Value::take) {
        Some(Value::Object(schemas)) => Ok(schemas),
        _ => Err(format!("{path} has no schemas").into()),
    }
}

/// A schema without what the embedded server leaves out, which nothing is decided by, and in one of the ways in which a
/// reference may be written.
fn plain(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let left_out = ["x-kubernetes-group-version-kind", "x-kubernetes-unions"];
            let is_told = |(key, value): &(String, Value)| {
                !(left_out.contains(&key.as_str()) || key == "description" && value.is_string())
            };
            let mut fields: Map<String, Value> =
                fields.into_iter().filter(is_told).map(|(key, value)| (key, plain(value))).collect();
            if let Some(Value::Array(names)) = fields.get_mut("required") {
                names.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
            }
            if let Some(reference) = fields.get("allOf").and_then(|all| all.get(0)?.get("$ref")).cloned() {
                fields.remove("allOf");
                fields.insert("$ref".to_owned(), reference);
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => other,
    }
}

/// Where two schemas differ, as short as can be.
fn difference(name: &str, ours: &Value, theirs: &Value) -> String {
    if let (Value::Object(one), Value::Object(other)) = (ours, theirs) {
        let mut keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
        if let Some(key) = keys.find(|key| one.get(*key) != other.get(*key)) {
            let side = |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
            return difference(&format!("{name} {key}"), &side(one), &side(other));
        }
    }
    format!("{name}: the embedded server says {ours}, a real one {theirs}")
}
