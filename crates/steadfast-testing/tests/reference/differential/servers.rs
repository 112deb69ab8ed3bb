//! The servers, and the objects that scripts expect.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{TestError, kube_config};

use crate::differential::CONCURRENT_SCRIPTS;
use crate::differential::client::{Session, TestServer};

/// Minimum number of revisions before the scripts start, so that versions are not small numbers.
const MIN_REVISIONS: usize = 1500;

/// Embedded server that is ready for scripts.
pub struct Embedded {
    server: ApiServer,
    /// Address and credentials.
    pub test_server: TestServer,
}

impl Embedded {
    /// Starts a server with its own seed.
    pub async fn start(seed: u64) -> Result<Self, TestError> {
        let server = ApiServer::builder().seed(seed).start().await?;
        for _ in 0..MIN_REVISIONS / 2 {
            let filler = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                "metadata": {"name": "filler", "namespace": "default"}});
            server.create(&filler)?;
            server.delete(&filler)?;
        }
        let test_server = TestServer::from_config(&kube_config(&server).await?)?;
        prepare(&test_server).await?;
        Ok(Self { server, test_server })
    }

    /// Compacts the server to its current state, and restarts its cache.
    pub fn compact_and_restart_cache(&self) {
        self.server.compact();
        self.server.faults().restart();
    }
}

/// Creates the same number of revisions on a server without direct access to its store.
pub async fn fill(test_server: &TestServer) -> Result<(), TestError> {
    let session = test_server.open().await?;
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
    stream::iter((0..MIN_REVISIONS / 2).map(write)).buffer_unordered(CONCURRENT_SCRIPTS).try_collect::<()>().await
}

/// Defines the custom resources, and waits until they are served.
pub async fn prepare(test_server: &TestServer) -> Result<(), TestError> {
    let session = test_server.open().await?;
    define(&session, &definition("differential.steadfast.dev", "Widget", "Namespaced")).await?;
    define(&session, &definition("cluster.differential.steadfast.dev", "Planet", "Cluster")).await
}

/// Creates a definition, and waits until it is served.
pub async fn define(session: &Session, definition: &Value) -> Result<(), TestError> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let headers = [("content-type", "application/json")];
    let response = session.send("POST", path, &headers, definition.to_string()).await?;
    if response.status() != 201 {
        let body = response.into_body().collect().await?.to_bytes();
        return Err(format!("the definition was rejected: {}", String::from_utf8_lossy(&body)).into());
    }
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = format!("/apis/{}/{}", text("/spec/group"), text("/spec/versions/0/name"));
    let collection = format!("{version}/{}", text("/spec/names/plural"));
    let resources = if definition.pointer("/spec/versions/0/subresources").is_some() { 2 } else { 1 };
    for _ in 0..300 {
        let response = session.send("GET", &collection, &[], String::new()).await?;
        // Independent controllers update the handler and the discovery, so either may be late.
        if response.status() == 200 && resource_count(session, &version).await? == resources {
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

/// Returns the number of resources of a version, including subresources.
async fn resource_count(session: &Session, version: &str) -> Result<usize, TestError> {
    let response = session.send("GET", version, &[], String::new()).await?;
    let body = response.into_body().collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(list["resources"].as_array().map_or(0, Vec::len))
}
