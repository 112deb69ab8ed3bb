//! Custom resource definitions of random shapes, and random objects of them.

use std::time::Duration;

use kube::Client;
use serde_json::{Map, Value, json};
use steadfast::unstable::random::Random;
use steadfast_testing::TestError;
use tokio::time::{sleep, timeout};

use crate::transitions::send;

const ESTABLISHED_TIMEOUT: Duration = Duration::from_secs(60);
const FIELD_NAMES: [&str; 8] = ["size", "mode", "rules", "limits", "host", "a-b", "x.y/z", "phase"];

/// A custom resource definition, and its object `sample`.
pub(crate) struct CustomKind {
    random: Random,
    plural: String,
    spec_schema: Value,
    has_columns: bool,
}

impl CustomKind {
    /// Generates a definition from a seed.
    pub(crate) fn generate(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let spec_schema = object_schema(&mut random, 3);
        let has_columns = random.below(2) == 0;
        Self { random, plural: format!("shapes{seed}"), spec_schema, has_columns }
    }

    /// Name of the resource, with its group.
    pub(crate) fn resource(&self) -> String {
        format!("{}.example.com", self.plural)
    }

    /// Creates the definition, waits until it is served, and creates the object.
    pub(crate) async fn create(&mut self, client: &Client) -> Result<(), TestError> {
        let kind = self.plural.replace("shapes", "Shape");
        let condition = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let status = json!({"type": "object", "properties": {"conditions": {"type": "array", "items": condition}}});
        let properties = json!({"spec": self.spec_schema, "status": status});
        let column = json!({"name": "Size", "type": "string", "jsonPath": ".spec.size"});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.resource()},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": self.plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                    "additionalPrinterColumns": if self.has_columns { json!([column]) } else { json!([]) },
                }],
            },
        });
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        send(client, "POST", definitions, &definition).await?;
        let object = json!({
            "apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "sample"}, "spec": self.random_spec(),
        });
        // The server accepts objects some time after it has accepted the definition.
        let created = async {
            while send(client, "POST", &self.collection(), &object).await.is_err() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(ESTABLISHED_TIMEOUT, created).await.map_err(|_| format!("{definition:#} is not served"))?;
        Ok(())
    }

    /// Replaces the specification, or sets the status of a condition. Returns whether this changes the object.
    pub(crate) async fn update(&mut self, client: &Client) -> Result<bool, TestError> {
        let path = format!("{}/sample", self.collection());
        let old = send(client, "GET", &path, &Value::Null).await?;
        let new = if self.random.below(4) == 0 {
            let status = if self.random.below(2) == 0 { "True" } else { "False" };
            let conditions = json!([{"type": "Ready", "status": status, "reason": "Chosen"}]);
            send(client, "PATCH", &format!("{path}/status"), &json!({"status": {"conditions": conditions}})).await?
        } else {
            let mut object = old.clone();
            object["spec"] = self.random_spec();
            send(client, "PUT", &path, &object).await?
        };
        Ok(old["metadata"]["resourceVersion"] != new["metadata"]["resourceVersion"])
    }

    fn collection(&self) -> String {
        format!("/apis/example.com/v1/namespaces/default/{}", self.plural)
    }

    fn random_spec(&mut self) -> Value {
        instance(&self.spec_schema, &mut self.random)
    }
}

/// Generates the schema of an object with some of the field names.
fn object_schema(random: &mut Random, depth: u32) -> Value {
    let mut properties = Map::new();
    for name in FIELD_NAMES {
        if random.below(3) > 0 {
            properties.insert(name.to_owned(), schema(random, depth));
        }
    }
    json!({"type": "object", "properties": properties})
}

/// Generates a schema that is nested at most `depth` levels.
fn schema(random: &mut Random, depth: u32) -> Value {
    match random.below(if depth == 0 { 5 } else { 10 }) {
        0 => json!({"type": "string"}),
        1 => json!({"type": "integer", "format": "int64"}),
        2 => json!({"type": "boolean"}),
        3 => json!({"x-kubernetes-int-or-string": true}),
        4 => json!({"type": "number", "nullable": true}),
        5 => json!({"type": "array", "items": schema(random, depth - 1)}),
        6 => json!({"type": "object", "additionalProperties": schema(random, depth - 1)}),
        7 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        8 => {
            let mut items = object_schema(random, depth - 1);
            items["properties"]["name"] = json!({"type": "string"});
            items["required"] = json!(["name"]);
            json!({
                "type": "array", "items": items,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            })
        }
        _ => object_schema(random, depth - 1),
    }
}

/// Generates a value that conforms to a schema of [`schema`].
fn instance(schema: &Value, random: &mut Random) -> Value {
    if schema["x-kubernetes-int-or-string"] == true {
        return if random.below(2) == 0 { json!(random.below(3)) } else { json!("50%") };
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return json!({"any": [random.below(2), {"deep": random.below(2) == 0}], "name": random.below(3).to_string()});
    }
    match schema["type"].as_str() {
        Some("string") => json!(["", "a", "b c", "\u{1b}[2J", "ü"][random.below(5) as usize]),
        Some("integer") => json!(random.below(3)),
        Some("boolean") => json!(random.below(2) == 0),
        // The server removes a null value of a field that is not nullable, and keeps this one.
        Some("number") => [json!(0.5), json!(2), Value::Null][random.below(3) as usize].clone(),
        Some("array") => {
            let count = random.below(4);
            let mut elements: Vec<Value> = (0..count).map(|_| instance(&schema["items"], random)).collect();
            if schema["x-kubernetes-list-type"] == "map" {
                for (position, element) in elements.iter_mut().enumerate() {
                    element["name"] = json!(format!("n{}", (position as u64 + count) % 4));
                }
            }
            json!(elements)
        }
        _ => {
            let mut fields = Map::new();
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                if random.below(3) > 0 {
                    fields.insert(name.clone(), instance(field, random));
                }
            }
            if let Some(values) = schema.get("additionalProperties") {
                for name in ["k", "example.com/key", "Z"] {
                    if random.below(2) == 0 {
                        fields.insert(name.to_owned(), instance(values, random));
                    }
                }
            }
            Value::Object(fields)
        }
    }
}
