//! The servers, and what scripts expect to be there.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{WorldError, connection};

use crate::execute::Site;

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
        let site = Site { client: connection(&server).await?.client() };
        prepare(&site).await?;
        Ok(Self { _server: server, site })
    }
}

/// Defines the custom resource and waits until it is served.
pub async fn prepare(site: &Site) -> Result<(), WorldError> {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.differential.steadfast.dev"},
        "spec": {
            "group": "differential.steadfast.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                      "shortNames": ["wg"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let body = definition.to_string().into_bytes();
    let request = Request::post(path).header("content-type", "application/json").body(Body::from(body))?;
    let response = site.client.send(request).await?;
    if response.status() != 201 {
        let body = response.into_body().collect().await?.to_bytes();
        return Err(format!("the definition is refused: {}", String::from_utf8_lossy(&body)).into());
    }
    for _ in 0..300 {
        let request = Request::get("/apis/differential.steadfast.dev/v1/widgets").body(Body::empty())?;
        let response = site.client.send(request).await?;
        let served = response.status() == 200;
        let discovered = discovered(site).await?;
        if served && discovered {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err("the custom resource is not served".into())
}

async fn discovered(site: &Site) -> Result<bool, WorldError> {
    let request = Request::get("/apis/differential.steadfast.dev/v1").body(Body::empty())?;
    let body = site.client.send(request).await?.into_body().collect().await?.to_bytes();
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    Ok(list["resources"].as_array().is_some_and(|resources| resources.len() == 2))
}
