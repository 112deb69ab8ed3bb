//! Small objects for tests.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec};
use kube::core::ObjectMeta;
use serde_json::{Value, json};

/// Returns a config map `name` in `default` with `value`.
pub fn config_map(name: &str, value: &str) -> ConfigMap {
    config_map_in("default", name, value)
}

/// Returns a config map `name` in `namespace` with `value`.
pub fn config_map_in(namespace: &str, name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: meta(namespace, name),
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Returns a config map `name` in `default` with one label.
pub fn labelled_config_map(name: &str, value: &str, label: (&str, &str)) -> ConfigMap {
    let mut config_map = config_map(name, value);
    config_map.metadata.labels = Some(BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]));
    config_map
}

/// Returns a pod `name` in `default` on `node`.
pub fn pod(name: &str, node: &str) -> Pod {
    let container = Container { name: "main".to_owned(), image: Some("app:1".to_owned()), ..Container::default() };
    Pod {
        metadata: meta("default", name),
        spec: Some(PodSpec { node_name: Some(node.to_owned()), containers: vec![container], ..PodSpec::default() }),
        ..Pod::default()
    }
}

/// Returns the definition of a namespaced custom resource `widgets` in `group`. It serves the version `v1` and accepts
/// any content.
pub fn widget_definition(group: &str) -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("widgets.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() }
}
