//! Shared helpers of several tests on the reference: definitions of kinds, and waits.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steadfast::{Cacheable, Freshness, Informer};
use steadfast_testing::TestError;
use steadfast_testing::reference::Reference;

/// Timeout for an expected event, on a busy machine.
pub(crate) const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the lists that replace a watch.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Group of the definitions in these tests.
pub(crate) const GROUP: &str = "hardships.steadfast.test";

pub(crate) fn kind_of(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Returns the definition of a kind without a schema. Each version is served, and one is stored.
pub(crate) fn definition(kind: &str, versions: &[(&str, bool)]) -> Value {
    let plural = kind_of(GROUP, "v1", kind).plural;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, stored)| {
            json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": schema}})
        })
        .collect();
    json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

/// Defines a resource, and waits until it is served.
pub(crate) async fn define(reference: &Reference, definition: Value) -> Result<(), TestError> {
    let client = reference.connection().await?.client();
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    let kind = kind_of(GROUP, "v1", &definition.spec.names.kind);
    Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &definition).await?;
    let api: Api<DynamicObject> = Api::all_with(client, &kind);
    let start = Instant::now();
    while let Err(error) = api.list(&ListParams::default()).await {
        if start.elapsed() > EVENT_TIMEOUT {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

pub(crate) async fn until_fresh<K: Cacheable>(informer: &Informer<K>) -> Result<(), TestError> {
    until("the informer is fresh", || informer.freshness().is_fresh()).await
}

/// Waits until the informer reports that it is fresh by lists alone, and returns the reason.
pub(crate) async fn until_polled<K: Cacheable>(informer: &Informer<K>) -> Result<String, TestError> {
    let reason = || match informer.freshness() {
        Freshness::Fresh { polled: Some(polled), .. } => Some(polled.reason.to_string()),
        _ => None,
    };
    until("the informer is fresh by lists", || reason().is_some()).await?;
    Ok(reason().unwrap_or_default())
}

pub(crate) async fn until(description: &str, condition: impl Fn() -> bool) -> Result<(), TestError> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > EVENT_TIMEOUT {
            return Err(format!("timeout after {EVENT_TIMEOUT:?} for the condition: {description}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
