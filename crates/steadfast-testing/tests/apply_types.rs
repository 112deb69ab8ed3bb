//! The table by which the embedded server merges what is applied is what a real server's `OpenAPI` documents say.
//!
//! Where they have moved on, `STEADFAST_WRITE_TYPES=1` writes the table anew. Without the reference this is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::{env, fs};

use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_testing::reference::Reference;
use steadfast_testing::{WorldError, connection};

const TABLE: &str = include_str!("../../steadfast-apiserver/src/apply/types.txt");
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../steadfast-apiserver/src/apply/types.txt");

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_types_is_what_a_real_server_says() -> Result<(), WorldError> {
    let Some(reference) = Reference::start().await? else { return Ok(()) };
    let theirs = reference.connection().await?.client();
    let embedded = ApiServer::builder().start().await?;
    let ours = connection(&embedded).await?.client();
    let table = table(&ours, &theirs).await?;
    if env::var_os("STEADFAST_WRITE_TYPES").is_some() {
        fs::write(PLACE, &table)?;
        return Ok(());
    }
    let (known, real): (BTreeSet<&str>, BTreeSet<&str>) = (TABLE.lines().collect(), table.lines().collect());
    let missing: Vec<_> = real.difference(&known).collect();
    let wrong: Vec<_> = known.difference(&real).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "types.txt lacks {missing:#?}\nand should not have {wrong:#?}");
    assert!(known.len() > 200, "there are so many types: {}", known.len());
    Ok(())
}

async fn get(client: &Client, path: &str) -> Result<Value, WorldError> {
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    Ok(serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?)
}

/// The groups and versions that the embedded server has, by their paths, and their kinds.
async fn kinds(client: &Client) -> Result<BTreeMap<String, BTreeSet<String>>, WorldError> {
    let mut paths = vec!["api/v1".to_owned()];
    for group in get(client, "/apis").await?["groups"].as_array().into_iter().flatten() {
        for version in group["versions"].as_array().into_iter().flatten() {
            paths.push(format!("apis/{}", text(version, "groupVersion")));
        }
    }
    let mut kinds = BTreeMap::new();
    for path in paths {
        let resources = get(client, &format!("/{path}")).await?;
        let own = resources["resources"].as_array().into_iter().flatten();
        let own = own.filter(|resource| !text(resource, "name").contains('/')).map(|resource| text(resource, "kind"));
        kinds.insert(path, own.map(str::to_owned).collect());
    }
    Ok(kinds)
}

async fn table(ours: &Client, theirs: &Client) -> Result<String, WorldError> {
    let mut writer = Writer::default();
    for (path, kinds) in kinds(ours).await? {
        let document = get(theirs, &format!("/openapi/v3/{path}")).await?;
        let schemas = document["components"]["schemas"].as_object().ok_or("a document without schemas")?;
        let schemas: BTreeMap<&str, &Value> = schemas.iter().map(|(name, of)| (name.as_str(), of)).collect();
        let version = path.split_once('/').map_or("", |(_, version)| version);
        for kind in kinds {
            let root = schemas.iter().find(|(_, schema)| {
                let named = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
                named.into_iter().any(|named| {
                    let (group, number) = (text(named, "group"), text(named, "version"));
                    let api_version = if group.is_empty() { number.to_owned() } else { format!("{group}/{number}") };
                    api_version == version && text(named, "kind") == kind
                })
            });
            let (name, _) = root.ok_or_else(|| format!("the real server has no {kind} in {version}"))?;
            writer.lines.insert(format!("= {version} {kind} {}", short(name)));
            writer.visit(name, &schemas);
        }
    }
    Ok(writer.lines.into_iter().map(|line| line + "\n").collect())
}

#[derive(Default)]
struct Writer {
    lines: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Writer {
    /// Writes a struct, and those that it consists of.
    fn visit(&mut self, name: &str, schemas: &BTreeMap<&str, &Value>) {
        if !self.seen.insert(name.to_owned()) {
            return;
        }
        let schema = schemas[name];
        let mark = if text(schema, "x-kubernetes-map-type") == "atomic" { "!" } else { "" };
        let mut words = vec![format!("{}{mark}", short(name))];
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (field, of) in schema["properties"].as_object().into_iter().flatten() {
            let written = self.written(of, schemas);
            let always = match of.get("default") {
                Some(Value::Object(_)) if written.starts_with('@') => "+".to_owned(),
                Some(default) if !default.is_object() => format!("={default}"),
                _ if required.contains(&field.as_str()) && written.starts_with(['[', '{', '@']) => "-".to_owned(),
                _ => String::new(),
            };
            words.push(format!("{field}{always}:{written}"));
        }
        self.lines.insert(words.join(" "));
    }

    fn written(&mut self, schema: &Value, schemas: &BTreeMap<&str, &Value>) -> String {
        let whole = if text(schema, "x-kubernetes-map-type") == "atomic" { "!" } else { "" };
        let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
        if let Some(name) = reference.and_then(|path| path.rsplit('/').next()) {
            if name.ends_with(".RawExtension") {
                return "?".to_owned();
            }
            let of = schemas[name];
            if of.get("properties").is_none() {
                return self.written(of, schemas);
            }
            self.visit(name, schemas);
            return format!("@{}{whole}", short(name));
        }
        match text(schema, "type") {
            "string" if matches!(text(schema, "format"), "" | "byte") => "s".to_owned(),
            "string" => "u".to_owned(),
            "integer" | "number" => "n".to_owned(),
            "boolean" => "b".to_owned(),
            "object" => match schema.get("additionalProperties") {
                Some(of @ Value::Object(_)) => format!("{{{}}}{whole}", self.written(of, schemas)),
                _ => format!("{{*}}{whole}"),
            },
            "array" => format!("[{}]{}", self.written(&schema["items"], schemas), merging(schema)),
            _ if schema.get("oneOf").is_some() => "u".to_owned(),
            _ => "*".to_owned(),
        }
    }
}

/// How a list is merged: an older way to say so counts where the newer one is missing.
fn merging(schema: &Value) -> String {
    let keys = || {
        let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut keys: Vec<&str> = keys.collect();
        keys.sort_unstable();
        keys.join(",")
    };
    match (text(schema, "x-kubernetes-list-type"), text(schema, "x-kubernetes-patch-strategy")) {
        ("map", _) => keys(),
        ("set", _) => "#".to_owned(),
        ("", "merge" | "merge,retainKeys") => match text(schema, "x-kubernetes-patch-merge-key") {
            "" => "#".to_owned(),
            key => key.to_owned(),
        },
        _ => String::new(),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The last three parts of a name: `core.v1.Pod`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplitn(4, '.').take(3).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(".")
}
