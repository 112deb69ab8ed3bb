//! Table of the built-in kinds.

/// Built-in resource.
#[allow(clippy::struct_excessive_bools, reason = "a row of independent traits")]
pub(super) struct Builtin {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) short_names: &'static [&'static str],
    pub(super) namespaced: bool,
    /// True if `status` is a subresource.
    pub(super) has_status: bool,
    /// True if `metadata.generation` counts changes of the spec.
    pub(super) counts_generation: bool,
    /// True if `kubectl get all` lists the resource.
    pub(super) is_in_all: bool,
    /// Selectable fields in addition to the name and the namespace.
    pub(super) selectable: &'static [&'static str],
}

const NAMESPACED: u8 = 1;
const STATUS: u8 = 2;
const GENERATION: u8 = 4;
const ALL: u8 = 8;

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    traits: u8,
    selectable: &'static [&'static str],
) -> Builtin {
    Builtin {
        group,
        version,
        kind,
        plural,
        short_names,
        namespaced: traits & NAMESPACED != 0,
        has_status: traits & STATUS != 0,
        counts_generation: traits & GENERATION != 0,
        is_in_all: traits & ALL != 0,
        selectable,
    }
}

const N: u8 = NAMESPACED;
const NS: u8 = NAMESPACED | STATUS;
const NSG: u8 = NAMESPACED | STATUS | GENERATION;
const NSA: u8 = NAMESPACED | STATUS | ALL;
const NSGA: u8 = NAMESPACED | STATUS | GENERATION | ALL;

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
/// Selectable fields in the names of the newer API.
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];

/// Returns the versions of a resource that are served after the preferred one.
pub(super) fn older_versions(builtin: &Builtin) -> &'static [&'static str] {
    match (builtin.group, builtin.kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => &["v1"],
        _ => &[],
    }
}

pub(super) const BUILTIN: &[Builtin] = &[
    row("", "v1", "ConfigMap", "configmaps", &["cm"], N, &[]),
    row("", "v1", "Endpoints", "endpoints", &["ep"], N, &[]),
    row("", "v1", "Event", "events", &["ev"], N, EVENT_FIELDS),
    row("", "v1", "LimitRange", "limitranges", &["limits"], N, &[]),
    row("", "v1", "Namespace", "namespaces", &["ns"], STATUS, &["status.phase"]),
    row("", "v1", "Node", "nodes", &["no"], STATUS, &["spec.unschedulable"]),
    row("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], NS, &[]),
    row("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], STATUS, &[]),
    row("", "v1", "Pod", "pods", &["po"], NSGA, POD_FIELDS),
    row("", "v1", "PodTemplate", "podtemplates", &[], N | GENERATION, &[]),
    row("", "v1", "ReplicationController", "replicationcontrollers", &["rc"], NSGA, &["status.replicas"]),
    row("", "v1", "ResourceQuota", "resourcequotas", &["quota"], NS, &[]),
    row("", "v1", "Secret", "secrets", &[], N, &["type"]),
    row("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], N, &[]),
    row("", "v1", "Service", "services", &["svc"], NSA, &["spec.clusterIP", "spec.type"]),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        &[],
        GENERATION,
        &[],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        &[],
        GENERATION,
        &[],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        &[],
        GENERATION,
        &[],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        &[],
        STATUS | GENERATION,
        &[],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        &[],
        GENERATION,
        &[],
    ),
    row(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        &[],
        GENERATION,
        &[],
    ),
    row(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        &["crd", "crds"],
        STATUS | GENERATION,
        &[],
    ),
    row("apiregistration.k8s.io", "v1", "APIService", "apiservices", &[], STATUS, &[]),
    row("apps", "v1", "ControllerRevision", "controllerrevisions", &[], N, &[]),
    row("apps", "v1", "DaemonSet", "daemonsets", &["ds"], NSGA, &[]),
    row("apps", "v1", "Deployment", "deployments", &["deploy"], NSGA, &[]),
    row("apps", "v1", "ReplicaSet", "replicasets", &["rs"], NSGA, &[]),
    row("apps", "v1", "StatefulSet", "statefulsets", &["sts"], NSGA, &[]),
    row("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], NSGA, &[]),
    row("batch", "v1", "CronJob", "cronjobs", &["cj"], NSGA, &[]),
    row("batch", "v1", "Job", "jobs", &[], NSGA, &["status.successful"]),
    row(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        &["csr"],
        STATUS,
        &["spec.signerName"],
    ),
    row("coordination.k8s.io", "v1", "Lease", "leases", &[], N, &[]),
    row("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], N | GENERATION, &[]),
    row("events.k8s.io", "v1", "Event", "events", &["ev"], N, NEW_EVENT_FIELDS),
    row("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", &[], STATUS | GENERATION, &[]),
    row(
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        &[],
        STATUS | GENERATION,
        &[],
    ),
    row("networking.k8s.io", "v1", "IngressClass", "ingressclasses", &[], GENERATION, &[]),
    row("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], NSG, &[]),
    row("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], N | GENERATION, &[]),
    row("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", &[], 0, &[]),
    row("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], NSG, &[]),
    row("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], 0, &[]),
    row("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], 0, &[]),
    row("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], N, &[]),
    row("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], N, &[]),
    row("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], GENERATION, &[]),
    row("storage.k8s.io", "v1", "CSIDriver", "csidrivers", &[], 0, &[]),
    row("storage.k8s.io", "v1", "CSINode", "csinodes", &[], 0, &[]),
    row("storage.k8s.io", "v1", "StorageClass", "storageclasses", &["sc"], 0, &[]),
    row("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", &[], STATUS, &[]),
];
