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
    _server: ApiServer,
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
        Ok(Self { _server: server, site })
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
    define(&session, "differential.steadfast.dev", "Widget", "Namespaced").await?;
    define(&session, "cluster.differential.steadfast.dev", "Planet", "Cluster").await?;
    for _ in 0..300 {
        let mut served = discovered(&session).await?;
        for path in ["differential.steadfast.dev/v1/widgets", "cluster.differential.steadfast.dev/v1/planets"] {
            served &= session.send("GET", &format!("/apis/{path}"), &[], String::new()).await?.status() == 200;
        }
        if served {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the custom resources are not served".into())
}

async fn define(session: &Session, group: &str, kind: &str, scope: &str) -> Result<(), WorldError> {
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
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope, "versions": [version],
            "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List"),
                      "shortNames": [&singular[..2]], "categories": ["all"]},
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let headers = [("content-type", "application/json")];
    let response = session.send("POST", path, &headers, definition.to_string()).await?;
    if response.status() != 201 {
        let body = response.into_body().collect().await?.to_bytes();
        return Err(format!("the definition of {kind} is refused: {}", String::from_utf8_lossy(&body)).into());
    }
    Ok(())
}

async fn discovered(session: &Session) -> Result<bool, WorldError> {
    let response = session.send("GET", "/apis/differential.steadfast.dev/v1", &[], String::new()).await?;
    let body = response.into_body().collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(list["resources"].as_array().is_some_and(|resources| resources.len() == 2))
}
