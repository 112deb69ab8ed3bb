//! Columns of each kind.

use super::column::Cell::{Age, Computed, Count, Created, Flag, Name, Number, Text};
use super::column::{Cell, Column};
use super::{cells, pods};

const fn text(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", is_wide: false, cell }
}

const fn typed(name: &'static str, kind: &'static str, cell: Cell) -> Column {
    Column { name, kind, is_wide: false, cell }
}

const fn wide(name: &'static str, cell: Cell) -> Column {
    Column { name, kind: "string", is_wide: true, cell }
}

const NAME: Column = text("Name", Name);
const AGE: Column = text("Age", Age);
const CONTAINERS: Column = wide("Containers", Computed(cells::containers));
const IMAGES: Column = wide("Images", Computed(cells::images));
const SELECTOR: Column = wide("Selector", Computed(cells::selector));
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
pub(super) fn for_kind(group: &str, kind: &str) -> &'static [Column] {
    match group {
        "" => core(kind),
        "apps" | "batch" | "autoscaling" | "policy" => workloads(kind),
        "events.k8s.io" => EVENT,
        _ => cluster(kind),
    }
}

const EVENT: &[Column] = &[
    text("Last Seen", Computed(cells::last_seen)),
    text("Type", Text("/type", "")),
    text("Reason", Text("/reason", "")),
    text("Object", Computed(cells::event_object)),
    wide("Subobject", Computed(cells::event_field)),
    wide("Source", Computed(cells::event_source)),
    text("Message", Computed(cells::event_message)),
    wide("First Seen", Computed(cells::first_seen)),
    wide("Count", Computed(cells::event_count)),
    wide("Name", Name),
];

const NODE: &[Column] = &[
    NAME,
    text("Status", Computed(cells::node_status)),
    text("Roles", Computed(cells::node_roles)),
    AGE,
    text("Version", Text("/status/nodeInfo/kubeletVersion", "")),
    wide("Internal-IP", Computed(|row| cells::node_address(row, "InternalIP"))),
    wide("External-IP", Computed(|row| cells::node_address(row, "ExternalIP"))),
    wide("OS-Image", Text("/status/nodeInfo/osImage", UNKNOWN)),
    wide("Kernel-Version", Text("/status/nodeInfo/kernelVersion", UNKNOWN)),
    wide("Container-Runtime", Text("/status/nodeInfo/containerRuntimeVersion", UNKNOWN)),
];

const POD: &[Column] = &[
    NAME,
    text("Ready", Computed(pods::ready)),
    text("Status", Computed(pods::status)),
    text("Restarts", Computed(pods::restarts)),
    AGE,
    wide("IP", Computed(pods::address)),
    wide("Node", Text("/spec/nodeName", NONE)),
    wide("Nominated Node", Text("/status/nominatedNodeName", NONE)),
    wide("Readiness Gates", Computed(pods::readiness_gates)),
];

const SERVICE: &[Column] = &[
    NAME,
    text("Type", Text("/spec/type", "ClusterIP")),
    text("Cluster-IP", Text("/spec/clusterIP", NONE)),
    text("External-IP", Computed(cells::external_address)),
    text("Port(s)", Computed(cells::service_ports)),
    AGE,
    wide("Selector", Computed(cells::service_selector)),
];

const CLAIM: &[Column] = &[
    NAME,
    text("Status", Computed(cells::volume_phase)),
    text("Volume", Text("/spec/volumeName", "")),
    text("Capacity", Computed(cells::claim_capacity)),
    text("Access Modes", Computed(cells::claim_modes)),
    text("StorageClass", Text("/spec/storageClassName", "")),
    text("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", UNSET)),
    AGE,
    wide("VolumeMode", Text("/spec/volumeMode", UNSET)),
];

const VOLUME: &[Column] = &[
    NAME,
    text("Capacity", Text("/spec/capacity/storage", "0")),
    text("Access Modes", Computed(cells::volume_modes)),
    text("Reclaim Policy", Text("/spec/persistentVolumeReclaimPolicy", "")),
    text("Status", Computed(cells::volume_phase)),
    text("Claim", Computed(cells::volume_claim)),
    text("StorageClass", Text("/spec/storageClassName", "")),
    text("VolumeAttributesClass", Text("/spec/volumeAttributesClassName", UNSET)),
    text("Reason", Text("/status/reason", "")),
    AGE,
    wide("VolumeMode", Text("/spec/volumeMode", UNSET)),
];

const REPLICAS: &[Column] = &[
    NAME,
    typed("Desired", "integer", Computed(cells::desired_replicas)),
    typed("Current", "integer", Number("/status/replicas")),
    typed("Ready", "integer", Number("/status/readyReplicas")),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn core(kind: &str) -> &'static [Column] {
    match kind {
        "ConfigMap" => const { &[NAME, text("Data", Computed(cells::data_count)), AGE] },
        "Endpoints" => const { &[NAME, text("Endpoints", Computed(cells::endpoints)), AGE] },
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
                    text("Request", Computed(|row| cells::quota(row, false))),
                    text("Limit", Computed(|row| cells::quota(row, true))),
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
            const { &[NAME, text("Controller", Computed(cells::controller)), text("Revision", Number("/revision")), AGE] }
        }
        "CronJob" => {
            const {
                &[
                    NAME,
                    text("Schedule", Text("/spec/schedule", "")),
                    text("Timezone", Text("/spec/timeZone", NONE)),
                    typed("Suspend", "boolean", Computed(cells::suspended)),
                    typed("Active", "integer", Count("/status/active")),
                    text("Last Schedule", Computed(cells::last_schedule)),
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
                    text("Node Selector", Computed(cells::node_selector)),
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
                    text("Ready", Computed(cells::ready_replicas)),
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
                    text("Reference", Computed(cells::scale_target)),
                    text("Targets", Computed(cells::targets)),
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
                    text("Status", Computed(cells::job_status)),
                    text("Completions", Computed(cells::completions)),
                    text("Duration", Computed(cells::duration)),
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
        "StatefulSet" => const { &[NAME, text("Ready", Computed(cells::ready_replicas)), AGE, CONTAINERS, IMAGES] },
        _ => PLAIN,
    }
}

const WEBHOOKS: &[Column] = &[NAME, typed("Webhooks", "integer", Count("/webhooks")), AGE];

const BINDING: &[Column] = &[
    NAME,
    text("Role", Computed(cells::role)),
    AGE,
    wide("Users", Computed(|row| cells::subjects(row, "User"))),
    wide("Groups", Computed(|row| cells::subjects(row, "Group"))),
    wide("ServiceAccounts", Computed(|row| cells::subjects(row, "ServiceAccount"))),
];

const API_SERVICE: &[Column] =
    &[NAME, text("Service", Computed(cells::api_service)), text("Available", Computed(cells::available)), AGE];

fn cluster(kind: &str) -> &'static [Column] {
    match kind {
        "APIService" => API_SERVICE,
        "CSINode" => const { &[NAME, typed("Drivers", "integer", Count("/spec/drivers")), AGE] },
        "ClusterRoleBinding" | "RoleBinding" => BINDING,
        "CustomResourceDefinition" => {
            const {
                &[
                    NAME,
                    text("Scope", Text("/spec/scope", "")),
                    text("Versions", Computed(cells::versions)),
                    typed("Created At", "date", Created),
                    wide("Group", Text("/spec/group", "")),
                    wide("Kind", Text("/spec/names/kind", "")),
                    wide("ShortNames", Computed(cells::short_names)),
                    Column { name: "Established", kind: "boolean", is_wide: true, cell: Computed(cells::established) },
                ]
            }
        }
        "EndpointSlice" => {
            const {
                &[
                    NAME,
                    text("AddressType", Text("/addressType", "")),
                    text("Ports", Computed(cells::slice_ports)),
                    text("Endpoints", Computed(cells::slice_endpoints)),
                    AGE,
                ]
            }
        }
        "Ingress" => {
            const {
                &[
                    NAME,
                    text("Class", Text("/spec/ingressClassName", NONE)),
                    text("Hosts", Computed(cells::hosts)),
                    text("Address", Computed(cells::balancer)),
                    text("Ports", Computed(cells::ingress_ports)),
                    AGE,
                ]
            }
        }
        "IngressClass" => {
            const {
                &[
                    NAME,
                    text("Controller", Text("/spec/controller", "")),
                    text("Parameters", Computed(cells::parameters)),
                    AGE,
                ]
            }
        }
        "Lease" => const { &[NAME, text("Holder", Text("/spec/holderIdentity", "")), AGE] },
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => WEBHOOKS,
        "NetworkPolicy" => const { &[NAME, text("Pod-Selector", Computed(cells::pod_selector)), AGE] },
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
                    text("Name", Computed(cells::class_name)),
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
