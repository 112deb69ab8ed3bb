//! Endpoints of services with a selector: one `EndpointSlice` for each service.

use serde_json::{Value, json};

use super::context::Context;
use super::kind::Kind;
use super::plan::Plan;
use super::template;
use super::view::{Key, controller_uid, text};
use crate::metadata;

const SERVICE: &str = "kubernetes.io/service-name";

/// Maximum number of endpoints of a slice, as in the API's validation. Further endpoints are omitted.
const MAX_ENDPOINTS: usize = 1000;

pub(super) fn reconcile(context: &Context<'_>, key: &Key, service: &Value, plan: &mut Plan) {
    let Some(selector) = service["spec"]["selector"].as_object().filter(|selector| !selector.is_empty()) else {
        return;
    };
    let is_selected =
        |pod: &Value| selector.iter().all(|(label, value)| pod["metadata"]["labels"].get(label) == Some(value));
    let pods = context
        .view
        .in_namespace(Kind::Pod, &key.namespace)
        .filter(|(_, pod)| is_selected(pod) && template::is_active(pod) && !text(pod, "/status/podIP").is_empty());
    let mut endpoints = Vec::new();
    let mut first = None;
    for (pod_key, pod) in pods.take(MAX_ENDPOINTS) {
        first.get_or_insert(pod);
        let is_ready = template::is_ready(pod);
        endpoints.push(json!({
            "addresses": [pod["status"]["podIP"]],
            "conditions": {"ready": is_ready, "serving": is_ready, "terminating": false},
            "nodeName": pod["spec"]["nodeName"],
            "targetRef": {
                "kind": "Pod", "name": pod_key.name, "namespace": pod_key.namespace, "uid": metadata::text(pod, "uid"),
            },
        }));
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> = ports.map(|port| endpoint_port(port, first.map(AsRef::as_ref))).collect();
    let uid = metadata::text(service, "uid");
    let slices = context.view.dependents(uid).filter(|(key, _)| key.kind() == Some(Kind::EndpointSlice));
    let own = slices.into_iter().find(|(_, slice)| controller_uid(slice) == Some(uid));
    match own {
        Some((slice_key, slice)) => plan.patch(slice_key, slice, json!({"endpoints": endpoints, "ports": ports})),
        None => plan.create(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "generateName": format!("{}-", key.name), "namespace": key.namespace,
                "labels": {SERVICE: key.name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
                "ownerReferences": [template::controller_reference(Kind::Service, service)],
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        })),
    }
}

/// Returns the port of the pods for a port of the service. A name is looked up among the container ports of `pod`.
fn endpoint_port(port: &Value, pod: Option<&Value>) -> Value {
    let number = match &port["targetPort"] {
        Value::Null => port["port"].clone(),
        Value::String(name) => pod.and_then(|pod| named_port(pod, name)).unwrap_or(Value::Null),
        number => number.clone(),
    };
    json!({
        "name": port["name"].as_str().unwrap_or_default(),
        "port": number,
        "protocol": port["protocol"].as_str().unwrap_or("TCP"),
    })
}

fn named_port(pod: &Value, name: &str) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array()?;
    let mut ports = containers.iter().filter_map(|container| container["ports"].as_array()).flatten();
    ports.find(|port| port["name"] == name).map(|port| port["containerPort"].clone())
}
