//! The collections that scripts write to.

use serde_json::{Value, json};

use crate::differential::rng::SeededRng;

/// Collection that scripts write to.
#[allow(clippy::struct_field_names, reason = "the term of the API")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Path before the namespace.
    pub root: &'static str,
    /// API version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Plural name.
    pub plural: &'static str,
    /// True if the kind is a custom resource.
    pub is_custom: bool,
    /// True if the kind is namespaced.
    pub is_namespaced: bool,
}

impl Kind {
    /// Returns `true` if real servers set default fields.
    pub fn has_server_defaults(&self) -> bool {
        !self.is_custom && !matches!(self.kind, "ConfigMap" | "Secret" | "Lease")
    }
}

/// Creates a built-in namespaced kind.
pub const fn built_in(root: &'static str, api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { root, api_version, kind, plural, is_custom: false, is_namespaced: true }
}

const fn cluster_scoped(
    root: &'static str,
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind { root, api_version, kind, plural, is_custom: false, is_namespaced: false }
}

/// Creates a namespaced kind of a definition.
pub const fn custom(root: &'static str, api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { root, api_version, kind, plural, is_custom: true, is_namespaced: true }
}

/// Custom resource with a status and without a schema.
pub const WIDGET: Kind =
    custom("/apis/differential.steadfast.dev/v1", "differential.steadfast.dev/v1", "Widget", "widgets");

/// Cluster-scoped custom resource without a schema.
const PLANET: Kind = Kind {
    is_namespaced: false,
    ..custom(
        "/apis/cluster.differential.steadfast.dev/v1",
        "cluster.differential.steadfast.dev/v1",
        "Planet",
        "planets",
    )
};

/// Number of the kinds that most scripts write to.
pub const COMMON_KINDS: usize = 4;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// All kinds. Most scripts write to the first `COMMON_KINDS`.
pub const KINDS: &[Kind] = &[
    built_in("/api/v1", "v1", "ConfigMap", "configmaps"),
    built_in("/api/v1", "v1", "Secret", "secrets"),
    built_in("/apis/coordination.k8s.io/v1", "coordination.k8s.io/v1", "Lease", "leases"),
    WIDGET,
    built_in("/api/v1", "v1", "Pod", "pods"),
    built_in("/api/v1", "v1", "Service", "services"),
    built_in("/api/v1", "v1", "ServiceAccount", "serviceaccounts"),
    built_in("/api/v1", "v1", "PodTemplate", "podtemplates"),
    built_in("/apis/apps/v1", "apps/v1", "Deployment", "deployments"),
    built_in("/apis/apps/v1", "apps/v1", "StatefulSet", "statefulsets"),
    built_in("/apis/apps/v1", "apps/v1", "ReplicaSet", "replicasets"),
    built_in("/apis/batch/v1", "batch/v1", "CronJob", "cronjobs"),
    built_in("/apis/networking.k8s.io/v1", "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    built_in("/apis/discovery.k8s.io/v1", "discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    built_in("/apis/policy/v1", "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    // Two versions of one collection.
    built_in("/apis/autoscaling/v1", "autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    built_in("/apis/autoscaling/v2", "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    built_in(RBAC, "rbac.authorization.k8s.io/v1", "Role", "roles"),
    cluster_scoped(RBAC, "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
    cluster_scoped("/apis/scheduling.k8s.io/v1", "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses"),
    cluster_scoped("/apis/storage.k8s.io/v1", "storage.k8s.io/v1", "StorageClass", "storageclasses"),
    cluster_scoped("/apis/networking.k8s.io/v1", "networking.k8s.io/v1", "IngressClass", "ingressclasses"),
    cluster_scoped("/apis/node.k8s.io/v1", "node.k8s.io/v1", "RuntimeClass", "runtimeclasses"),
    PLANET,
];

/// Returns `true` if the kind accepts only names without dots.
pub fn requires_dns_label(kind: &Kind) -> bool {
    matches!(kind.kind, "Pod" | "Service" | "Deployment" | "ReplicaSet" | "StatefulSet" | "CronJob")
}

/// Returns valid fields of an object, apart from kind and metadata. Fields with random values are mutable, so that an
/// update can change them.
pub fn fields(kind: &Kind, rng: &mut SeededRng) -> Value {
    let text = rng.pick(&["one", "two", "three"]);
    let number = rng.below(4);
    let labels = json!({"app": "template"});
    let selector = json!({"matchLabels": labels});
    let pod = json!({"containers": [{"name": "main", "image": text}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [rng.pick(&["get", "list"])]}]);
    match kind.kind {
        "ConfigMap" => json!({"data": {"text": text, "more": "x"}}),
        "Secret" => json!({"data": {"key": "c2VjcmV0"}}),
        "Lease" => json!({"spec": {"holderIdentity": text, "leaseDurationSeconds": 15}}),
        "Pod" => json!({"spec": pod}),
        "Service" => {
            let ports = json!([{"name": "web", "port": 80 + number, "protocol": "TCP"}]);
            json!({"spec": {"clusterIP": "None", "selector": {"app": text}, "ports": ports}})
        }
        "ServiceAccount" => json!({"imagePullSecrets": [{"name": text}]}),
        "PodTemplate" => json!({"template": template}),
        "Deployment" | "ReplicaSet" => {
            json!({"spec": {"replicas": number, "selector": selector, "template": template}})
        }
        "StatefulSet" => {
            json!({"spec": {"replicas": number, "selector": selector, "template": template, "serviceName": "s"}})
        }
        "CronJob" => {
            let job =
                json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": pod["containers"]}}}});
            json!({"spec": {"schedule": format!("{number} * * * *"), "jobTemplate": job}})
        }
        "NetworkPolicy" => json!({"spec": {"podSelector": {"matchLabels": {"app": text}}, "policyTypes": ["Ingress"]}}),
        "EndpointSlice" => {
            let endpoints = json!([{"addresses": [format!("10.0.0.{number}")], "conditions": {"ready": true}}]);
            json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "web", "port": 80}]})
        }
        "PodDisruptionBudget" => json!({"spec": {"maxUnavailable": number, "selector": selector}}),
        "HorizontalPodAutoscaler" => json!({"spec": autoscaler(kind, number, text)}),
        "Role" | "ClusterRole" => json!({"rules": rules}),
        "PriorityClass" => json!({"value": 10, "description": text, "preemptionPolicy": "Never"}),
        "StorageClass" => json!({"provisioner": "example.com/none", "allowVolumeExpansion": number > 1}),
        "IngressClass" => json!({"spec": {"controller": "example.com/none"}}),
        "RuntimeClass" => json!({"handler": "none"}),
        _ => json!({"spec": {"color": text, "size": number, "parts": ["p", "q"]}}),
    }
}

/// Returns the specification of an autoscaler in the version of `kind`.
fn autoscaler(kind: &Kind, number: usize, text: &str) -> Value {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": text});
    let bounds = (1 + number, 9);
    if kind.api_version == "autoscaling/v1" {
        return json!({"scaleTargetRef": target, "minReplicas": bounds.0, "maxReplicas": bounds.1,
            "targetCPUUtilizationPercentage": 50 + number});
    }
    let utilization = json!({"type": "Utilization", "averageUtilization": 60 + number});
    let average = json!({"type": "AverageValue", "averageValue": format!("{}m", 100 + number)});
    let value = json!({"type": "Value", "value": format!("{}k", 1 + number)});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let metrics = [
        json!({"type": "Resource", "resource": {"name": "cpu", "target": utilization}}),
        json!({"type": "Pods", "pods": {"metric": {"name": "queue"}, "target": average}}),
        json!({"type": "External", "external": {"metric": {"name": "lag"}, "target": value}}),
        json!({"type": "Object", "object": {"metric": {"name": "rate"}, "describedObject": object, "target": value}}),
    ];
    json!({"scaleTargetRef": target, "minReplicas": bounds.0, "maxReplicas": bounds.1, "metrics": metrics[number..]})
}
