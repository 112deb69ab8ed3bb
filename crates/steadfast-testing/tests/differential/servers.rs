//! The servers, and what scripts expect to be there.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{WorldError, kube_config};

use crate::AT_ONCE;
use crate::client::{Session, Site};

/// So many revisions there are at the least before scripts begin: versions are to be no small numbers.
const REVISIONS: usize = 1500;

/// An embedded server, ready for scripts.
pub struct Embedded {
    server: ApiServer,
    /// How it is reached.
    pub site: Site,
}

impl Embedded {
    /// A server with a seed of its own.
    pub async fn start(seed: u64) -> Result<Self, WorldError> {
        let server = ApiServer::builder().seed(seed).start().await?;
        for _ in 0..REVISIONS / 2 {
            let filler = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                "metadata": {"name": "filler", "namespace": "default"}});
            server.create(&filler)?;
            server.delete(&filler)?;
        }
        let site = Site::of(&kube_config(&server).await?)?;
        prepare(&site).await?;
        Ok(Self { server, site })
    }

    /// Forgets all versions but the present ones, and begins its cache anew.
    pub fn forget(&self) {
        self.server.compact();
        self.server.faults().restart();
    }
}

/// Makes as many revisions on a server that cannot be written to directly.
pub async fn fill(site: &Site) -> Result<(), WorldError> {
    let session = site.open().await?;
    let write = |number: usize| {
        let session = session.clone();
        async move {
            let filler =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("filler-{number}")}});
            let headers = [("content-type", "application/json")];
            let collection = "/api/v1/namespaces/default/configmaps";
            session.send("POST", collection, &headers, filler.to_string()).await?;
            let path = format!("{collection}/filler-{number}");
            session.send("DELETE", &path, &[], String::new()).await.map(drop)
        }
    };
    stream::iter((0..REVISIONS / 2).map(write)).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

/// Defines the custom resources and waits until they are served.
pub async fn prepare(site: &Site) -> Result<(), WorldError> {
    let session = site.open().await?;
    define(&session, &definition("differential.steadfast.dev", "Widget", "Namespaced")).await?;
    define(&session, &definition("cluster.differential.steadfast.dev", "Planet", "Cluster")).await
}

/// Creates a definition and waits until it is served.
pub async fn define(session: &Session, definition: &Value) -> Result<(), WorldError> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let headers = [("content-type", "application/json")];
    let response = session.send("POST", path, &headers, definition.to_string()).await?;
    if response.status() != 201 {
        let body = response.into_body().collect().await?.to_bytes();
        return Err(format!("the definition is refused: {}", String::from_utf8_lossy(&body)).into());
    }
    let text = |place: &str| definition.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let version = format!("/apis/{}/{}", text("/spec/group"), text("/spec/versions/0/name"));
    let collection = format!("{version}/{}", text("/spec/names/plural"));
    let resources = if definition.pointer("/spec/versions/0/subresources").is_some() { 2 } else { 1 };
    for _ in 0..300 {
        let response = session.send("GET", &collection, &[], String::new()).await?;
        if response.status() == 200 && discovered(session, &version).await? == resources {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the custom resources are not served".into())
}

fn definition(group: &str, kind: &str, scope: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let mut version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
    });
    if kind == "Widget" {
        version["subresources"] = json!({"status": {}});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "versions": [version],
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List"),
                      "shortNames": [&singular[..2]], "categories": ["all"]},
        },
    })
}

/// How many resources a version has, subresources among them.
async fn discovered(session: &Session, version: &str) -> Result<usize, WorldError> {
    let response = session.send("GET", version, &[], String::new()).await?;
    let body = response.into_body().collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(list["resources"].as_array().map_or(0, Vec::len))
}
