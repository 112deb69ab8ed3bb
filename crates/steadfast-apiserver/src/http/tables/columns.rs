//! Columns of each kind.

use super::column::Cell::{Age, Count, Created, Flag, Made, Name, Number, Text};
use super::column::{Cell, Column};
use super::{cells, pods};

const fn text(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", wide: false, cell }
}

const fn typed(name: &'static str, kind: &'static str, cell: Cell) -> Column {
    Column { name, kind, wide: false, cell }
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", wide: true, cell }
}

const NAME: Column = text("Name", Name);
const AGE: Column = text("Age", Age);
const CONTAINERS: Column = wide("Containers", Made(cells::containers));
const IMAGES: Column = wide("Images", Made(cells::images));
const SELECTOR: Column = wide("Selector", Made(cells::selector));
const NONE: &str = "<none>";
const UNSET: &str = "<unset>";
const UNKNOWN: &str = "<unknown>";

/// Columns of custom resources that declare no columns.
pub(super) const CUSTOM: &[Column] = &[NAME, typed("Age", "date", Age)];

/// Columns of kinds without columns of their own.
const PLAIN: &[Column] = &[NAME, typed("Created At", "date", Created)];

const SCALE: &[Column] = &[
    NAME,
    typed("Desired", "integer", Number("/spec/replicas")),
    typed("Available", "integer", Number("/status/replicas")),
    AGE,
];

/// Returns the columns of a built-in kind.
pub(super) fn of(group: &str, kind: &str) -> &'static [Column] {
    match group {
        "" => core(kind),
        "apps" | "batch" | "autoscaling" | "policy" => workloads(kind),
        "events.k8s.io" => EVENT,
        _ => cluster(kind),
    }
}

const EVENT: &[Column] = &[
    text("Last Seen", Made(cells::last_seen)),
    text("Type", Text("/type", "")),
    text("Reason", Text("/reason", "")),
    text("Object", Made(cells::event_object)),
    wide("Subobject", Made(cells::event_field)),
    wide("Source", Made(cells::event_source)),
    text("Message", Made(cells::event_message)),
    wide("First Seen", Made(cells::first_seen)),
    wide("Count", Made(cells::event_count)),
    wide("Name", Name),
];

const NODE: &[Column] = &[
    NAME,
    text("Status", Made(cells::node_status)),
    text("Roles", Made(cells::node_roles)),
    AGE,
    text("Version", Text("/status/nodeInfo/kubeletVersion", "")),
    wide("Internal-IP", Made(|row| cells::node_address(row, "InternalIP"))),
    wide("External-IP", Made(|row| cells::node_address(row, "ExternalIP"))),
    wide("OS-Image", Text("/status/nodeInfo/osImage", UNKNOWN)),
    wide("Kernel-Version", Text("/status/nodeInfo/kernelVersion", UNKNOWN)),
    wide("Container-Runtime", Text("/status/nodeInfo/containerRuntimeVersion", UNKNOWN)),
];

const POD: &[Column] = &[
    NAME,
    text("Ready", Made(pods::ready)),
    text("Status", Made(pods::status)),
    text("Restarts", Made(pods::restarts)),
    AGE,
    wide("IP", Made(pods::address)),
    wide("Node", Text("/spec/nodeName", NONE)),
    wide("Nominated Node", Text("/status/nominatedNodeName", NONE)),
    wide("Readiness Gates", Made(pods::readiness_gates)),
];

const SERVICE: &[Column] = &[
    NAME,
    text("Type", Text("/spec/type", "ClusterIP")),
    text("Cluster-IP", Text("/spec/clusterIP", NONE)),
    text("External-IP", Made(cells::external_address)),
    text("Port(s)", Made(cells::service_ports)),
    AGE,
    wide("Selector", Made(cells::service_selector)),
];

const CLAIM: &[Column] = &[
    NAME,
    text("Status", Made(cells::volume_phase)),
    text("Volume", Text("/spec/volumeName", "")),
    text("Capacity", Made(cells::claim_capacity)),
    text("Access Modes", Made(cells::claim_modes)),
    text("StorageClass", Text("/spec/storageClassName", "")),
    text("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", UNSET)),
    AGE,
    wide("VolumeMode", Text("/spec/volumeMode", UNSET)),
];

const VOLUME: &[Column] = &[
    NAME,
    text("Capacity", Text("/spec/capacity/storage", "0")),
    text("Access Modes", Made(cells::volume_modes)),
    text("Reclaim Policy", Text("/spec/persistentVolumeReclaimPolicy", "")),
    text("Status", Made(cells::volume_phase)),
    text("Claim", Made(cells::volume_claim)),
    text("StorageClass", Text("/spec/storageClassName", "")),
    text("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", UNSET)),
    text("Reason", Text("/status/reason", "")),
    AGE,
    wide("VolumeMode", Text("/spec/volumeMode", UNSET)),
];

const REPLICAS: &[Column] = &[
    NAME,
    typed("Desired", "integer", Made(cells::wanted_replicas)),
    typed("Current", "integer", Number("/status/replicas")),
    typed("Ready", "integer", Number("/status/readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn core(kind: &str) -> &'static [Column] {
    match kind {
        "ConfigMap" => const { &[NAME, text("Data", Made(cells::data_count)), AGE] },
        "Endpoints" => const { &[NAME, text("Endpoints", Made(cells::endpoints)), AGE] },
        "Event" => EVENT,
        "Namespace" => const { &[NAME, text("Status", Text("/status/phase", "")), AGE] },
        "Node" => NODE,
        "PersistentVolume" => VOLUME,
        "PersistentVolumeClaim" => CLAIM,
        "Pod" => POD,
        "ReplicationController" => REPLICAS,
        "ResourceQuota" => {
            const {
                &[
                    NAME,
                    text("Request", Made(|row| cells::quota(row, false))),
                    text("Limit", Made(|row| cells::quota(row, true))),
                    AGE,
                ]
            }
        }
        "Secret" => const { &[NAME, text("Type", Text("/type", "")), text("Data", Count("/data")), AGE] },
        "Service" => SERVICE,
        "ServiceAccount" => const { &[NAME, AGE] },
        _ => PLAIN,
    }
}

fn workloads(kind: &str) -> &'static [Column] {
    match kind {
        "ControllerRevision" => {
            const { &[NAME, text("Controller", Made(cells::controller)), text("Revision", Number("/revision")), AGE] }
        }
        "CronJob" => {
            const {
                &[
                    NAME,
                    text("Schedule", Text("/spec/schedule", "")),
                    text("Timezone", Text("/spec/timeZone", NONE)),
                    typed("Suspend", "boolean", Made(cells::suspended)),
                    typed("Active", "integer", Count("/status/active")),
                    text("Last Schedule", Made(cells::last_schedule)),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "DaemonSet" => {
            const {
                &[
                    NAME,
                    typed("Desired", "integer", Number("/status/desiredNumberScheduled")),
                    typed("Current", "integer", Number("/status/currentNumberScheduled")),
                    typed("Ready", "integer", Number("/status/numberReady")),
                    typed("Up-to-date", "integer", Number("/status/updatedNumberScheduled")),
                    typed("Available", "integer", Number("/status/numberAvailable")),
                    text("Node Selector", Made(cells::node_selector)),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "Deployment" => {
            const {
                &[
                    NAME,
                    text("Ready", Made(cells::ready_replicas)),
                    text("Up-to-date", Number("/status/updatedReplicas")),
                    text("Available", Number("/status/availableReplicas")),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "Scale" => SCALE,
        "HorizontalPodAutoscaler" => {
            const {
                &[
                    NAME,
                    text("Reference", Made(cells::scaled)),
                    text("Targets", Made(cells::targets)),
                    text("MinPods", Text("/spec/minReplicas", UNSET)),
                    text("MaxPods", Number("/spec/maxReplicas")),
                    text("Replicas", Number("/status/currentReplicas")),
                    AGE,
                ]
            }
        }
        "Job" => {
            const {
                &[
                    NAME,
                    text("Status", Made(cells::job_status)),
                    text("Completions", Made(cells::completions)),
                    text("Duration", Made(cells::duration)),
                    AGE,
                    CONTAINERS,
                    IMAGES,
                    SELECTOR,
                ]
            }
        }
        "PodDisruptionBudget" => {
            const {
                &[
                    NAME,
                    text("Min Available", Text("/spec/minAvailable", "N/A")),
                    text("Max Unavailable", Text("/spec/maxUnavailable", "N/A")),
                    typed("Allowed Disruptions", "integer", Number("/status/disruptionsAllowed")),
                    AGE,
                ]
            }
        }
        "ReplicaSet" => REPLICAS,
        "StatefulSet" => const { &[NAME, text("Ready", Made(cells::ready_replicas)), AGE, CONTAINERS, IMAGES] },
        _ => PLAIN,
    }
}

const WEBHOOKS: &[Column] = &[NAME, typed("Webhooks", "integer", Count("/webhooks")), AGE];

const BINDING: &[Column] = &[
    NAME,
    text("Role", Made(cells::role)),
    AGE,
    wide("Users", Made(|row| cells::subjects(row, "User"))),
    wide("Groups", Made(|row| cells::subjects(row, "Group"))),
    wide("ServiceAccounts", Made(|row| cells::subjects(row, "ServiceAccount"))),
];

fn cluster(kind: &str) -> &'static [Column] {
    match kind {
        "APIService" => {
            const { &[NAME, text("Service", Made(cells::api_service)), text("Available", Made(cells::available)), AGE] }
        }
        "CSINode" => const { &[NAME, typed("Drivers", "integer", Count("/spec/drivers")), AGE] },
        "ClusterRoleBinding" | "RoleBinding" => BINDING,
        "CustomResourceDefinition" => {
            const {
                &[
                    NAME,
                    text("Scope", Text("/spec/scope", "")),
                    text("Versions", Made(cells::versions)),
                    typed("Created At", "date", Created),
                    wide("Group", Text("/spec/group", "")),
                    wide("Kind", Text("/spec/names/kind", "")),
                    wide("ShortNames", Made(cells::short_names)),
                    Column { name: "Established", kind: "boolean", wide: true, cell: Made(cells::established) },
                ]
            }
        }
        "EndpointSlice" => {
            const {
                &[
                    NAME,
                    text("AddressType", Text("/addressType", "")),
                    text("Ports", Made(cells::slice_ports)),
                    text("Endpoints", Made(cells::slice_endpoints)),
                    AGE,
                ]
            }
        }
        "Ingress" => {
            const {
                &[
                    NAME,
                    text("Class", Text("/spec/ingressClassName", NONE)),
                    text("Hosts", Made(cells::hosts)),
                    text("Address", Made(cells::balancer)),
                    text("Ports", Made(cells::ingress_ports)),
                    AGE,
                ]
            }
        }
        "IngressClass" => {
            const {
                &[
                    NAME,
                    text("Controller", Text("/spec/controller", "")),
                    text("Parameters", Made(cells::parameters)),
                    AGE,
                ]
            }
        }
        "Lease" => const { &[NAME, text("Holder", Text("/spec/holderIdentity", "")), AGE] },
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "NetworkPolicy" => const { &[NAME, text("Pod-Selector", Made(cells::pod_selector)), AGE] },
        "PriorityClass" => {
            const {
                &[
                    NAME,
                    typed("Value", "integer", Number("/value")),
                    typed("Global-Default", "boolean", Flag("/globalDefault")),
                    AGE,
                    text("PreemptionPolicy", Text("/preemptionPolicy", "PreemptLowerPriority")),
                ]
            }
        }
        "RuntimeClass" => const { &[NAME, text("Handler", Text("/handler", "")), AGE] },
        "StorageClass" => {
            const {
                &[
                    text("Name", Made(cells::class_name)),
                    text("Provisioner", Text("/provisioner", "")),
                    text("ReclaimPolicy", Text("/reclaimPolicy", "Delete")),
                    text("VolumeBindingMode", Text("/volumeBindingMode", "Immediate")),
                    text("AllowVolumeExpansion", Flag("/allowVolumeExpansion")),
                    AGE,
                ]
            }
        }
        "VolumeAttachment" => {
            const {
                &[
                    NAME,
                    text("Attacher", Text("/spec/attacher", "")),
                    text("PV", Text("/spec/source/persistentVolumeName", "")),
                    text("Node", Text("/spec/nodeName", "")),
                    typed("Attached", "boolean", Flag("/status/attached")),
                    AGE,
                ]
            }
        }
        _ => PLAIN,
    }
}
