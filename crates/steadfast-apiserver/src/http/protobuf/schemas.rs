//! The numbers and types of the fields, for the kinds that clients create in protobuf.

/// A field of a message.
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) presence: Presence,
    pub(super) holds: Holds,
}

/// How a field is there or not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// Always written; its zero value means nothing.
    Plain,
    /// Only written where it is meant.
    Pointer,
    /// Written once for each item.
    List,
}

/// What a field holds.
pub(super) enum Holds {
    Text,
    Bool,
    Integer,
    Time,
    MicroTime,
    IntOrString,
    TextMap,
    BytesMap,
    Message(&'static [Field]),
}

use Holds::{Bool, BytesMap, IntOrString, Integer, Message, MicroTime, Text, TextMap, Time};

const fn plain(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, presence: Presence::Plain, holds }
}

const fn pointer(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, presence: Presence::Pointer, holds }
}

const fn list(number: u64, name: &'static str, holds: Holds) -> Field {
    Field { number, name, presence: Presence::List, holds }
}

/// The schema of a kind.
pub(super) fn of_kind(kind: &str) -> Option<&'static [Field]> {
    Some(match kind {
        "ConfigMap" => CONFIG_MAP,
        "Secret" => SECRET,
        "Namespace" => NAMESPACE,
        "ServiceAccount" => SERVICE_ACCOUNT,
        "Service" => SERVICE,
        "Pod" => POD,
        "Deployment" => DEPLOYMENT,
        "Job" => JOB,
        "Role" | "ClusterRole" => ROLE,
        "RoleBinding" | "ClusterRoleBinding" => ROLE_BINDING,
        "Lease" => LEASE,
        "DeleteOptions" => DELETE_OPTIONS,
        _ => return None,
    })
}

static OBJECT_META: &[Field] = &[
    plain(1, "name", Text),
    plain(2, "generateName", Text),
    plain(3, "namespace", Text),
    plain(5, "uid", Text),
    plain(6, "resourceVersion", Text),
    plain(7, "generation", Integer),
    plain(8, "creationTimestamp", Time),
    plain(9, "deletionTimestamp", Time),
    pointer(10, "deletionGracePeriodSeconds", Integer),
    plain(11, "labels", TextMap),
    plain(12, "annotations", TextMap),
    list(13, "ownerReferences", Message(OWNER_REFERENCE)),
    list(14, "finalizers", Text),
];
static OWNER_REFERENCE: &[Field] = &[
    plain(1, "kind", Text),
    plain(3, "name", Text),
    plain(4, "uid", Text),
    plain(5, "apiVersion", Text),
    pointer(6, "controller", Bool),
    pointer(7, "blockOwnerDeletion", Bool),
];
static CONFIG_MAP: &[Field] = &[
    plain(1, "metadata", Message(OBJECT_META)),
    plain(2, "data", TextMap),
    plain(3, "binaryData", BytesMap),
    pointer(4, "immutable", Bool),
];
static SECRET: &[Field] = &[
    plain(1, "metadata", Message(OBJECT_META)),
    plain(2, "data", BytesMap),
    plain(3, "type", Text),
    plain(4, "stringData", TextMap),
    pointer(5, "immutable", Bool),
];
static NAMESPACE: &[Field] = &[
    plain(1, "metadata", Message(OBJECT_META)),
    plain(2, "spec", Message(NAMESPACE_SPEC)),
    plain(3, "status", Message(NAMESPACE_STATUS)),
];
static NAMESPACE_SPEC: &[Field] = &[list(1, "finalizers", Text)];
static NAMESPACE_STATUS: &[Field] = &[plain(1, "phase", Text)];
static LEASE: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), plain(2, "spec", Message(LEASE_SPEC))];
static LEASE_SPEC: &[Field] = &[
    pointer(1, "holderIdentity", Text),
    pointer(2, "leaseDurationSeconds", Integer),
    pointer(3, "acquireTime", MicroTime),
    pointer(4, "renewTime", MicroTime),
    pointer(5, "leaseTransitions", Integer),
    pointer(6, "strategy", Text),
    pointer(7, "preferredHolder", Text),
];
static NAMED: &[Field] = &[plain(1, "name", Text)];
static SERVICE_ACCOUNT: &[Field] = &[
    plain(1, "metadata", Message(OBJECT_META)),
    list(3, "imagePullSecrets", Message(NAMED)),
    pointer(4, "automountServiceAccountToken", Bool),
];
static SERVICE: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), plain(2, "spec", Message(SERVICE_SPEC))];
static SERVICE_SPEC: &[Field] = &[
    list(1, "ports", Message(SERVICE_PORT)),
    plain(2, "selector", TextMap),
    plain(3, "clusterIP", Text),
    plain(4, "type", Text),
    list(5, "externalIPs", Text),
    plain(7, "sessionAffinity", Text),
    plain(8, "loadBalancerIP", Text),
    plain(10, "externalName", Text),
];
static SERVICE_PORT: &[Field] = &[
    plain(1, "name", Text),
    plain(2, "protocol", Text),
    plain(3, "port", Integer),
    plain(4, "targetPort", IntOrString),
    plain(5, "nodePort", Integer),
    pointer(6, "appProtocol", Text),
];
static POD: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), plain(2, "spec", Message(POD_SPEC))];
static POD_TEMPLATE: &[Field] = POD;
static POD_SPEC: &[Field] = &[
    list(2, "containers", Message(CONTAINER)),
    plain(3, "restartPolicy", Text),
    pointer(4, "terminationGracePeriodSeconds", Integer),
    pointer(5, "activeDeadlineSeconds", Integer),
    plain(6, "dnsPolicy", Text),
    plain(7, "nodeSelector", TextMap),
    plain(8, "serviceAccountName", Text),
    plain(9, "serviceAccount", Text),
    plain(10, "nodeName", Text),
    plain(11, "hostNetwork", Bool),
    list(15, "imagePullSecrets", Message(NAMED)),
    plain(16, "hostname", Text),
    plain(17, "subdomain", Text),
    plain(19, "schedulerName", Text),
];
static CONTAINER: &[Field] = &[
    plain(1, "name", Text),
    plain(2, "image", Text),
    list(3, "command", Text),
    list(4, "args", Text),
    plain(5, "workingDir", Text),
    list(6, "ports", Message(CONTAINER_PORT)),
    list(7, "env", Message(ENVIRONMENT_VARIABLE)),
    plain(13, "terminationMessagePath", Text),
    plain(14, "imagePullPolicy", Text),
    plain(16, "stdin", Bool),
    plain(17, "stdinOnce", Bool),
    plain(18, "tty", Bool),
    plain(20, "terminationMessagePolicy", Text),
];
static CONTAINER_PORT: &[Field] = &[
    plain(1, "name", Text),
    plain(2, "hostPort", Integer),
    plain(3, "containerPort", Integer),
    plain(4, "protocol", Text),
    plain(5, "hostIP", Text),
];
static ENVIRONMENT_VARIABLE: &[Field] = &[plain(1, "name", Text), plain(2, "value", Text)];
static LABEL_SELECTOR: &[Field] =
    &[plain(1, "matchLabels", TextMap), list(2, "matchExpressions", Message(LABEL_REQUIREMENT))];
static LABEL_REQUIREMENT: &[Field] = &[plain(1, "key", Text), plain(2, "operator", Text), list(3, "values", Text)];
static DEPLOYMENT: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), plain(2, "spec", Message(DEPLOYMENT_SPEC))];
static DEPLOYMENT_SPEC: &[Field] = &[
    pointer(1, "replicas", Integer),
    pointer(2, "selector", Message(LABEL_SELECTOR)),
    plain(3, "template", Message(POD_TEMPLATE)),
    plain(4, "strategy", Message(DEPLOYMENT_STRATEGY)),
    plain(5, "minReadySeconds", Integer),
    pointer(6, "revisionHistoryLimit", Integer),
    plain(7, "paused", Bool),
    pointer(9, "progressDeadlineSeconds", Integer),
];
static DEPLOYMENT_STRATEGY: &[Field] = &[plain(1, "type", Text)];
static JOB: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), plain(2, "spec", Message(JOB_SPEC))];
static JOB_SPEC: &[Field] = &[
    pointer(1, "parallelism", Integer),
    pointer(2, "completions", Integer),
    pointer(3, "activeDeadlineSeconds", Integer),
    pointer(4, "selector", Message(LABEL_SELECTOR)),
    pointer(5, "manualSelector", Bool),
    plain(6, "template", Message(POD_TEMPLATE)),
    pointer(7, "backoffLimit", Integer),
    pointer(8, "ttlSecondsAfterFinished", Integer),
];
static ROLE: &[Field] = &[plain(1, "metadata", Message(OBJECT_META)), list(2, "rules", Message(POLICY_RULE))];
static POLICY_RULE: &[Field] = &[
    list(1, "verbs", Text),
    list(2, "apiGroups", Text),
    list(3, "resources", Text),
    list(4, "resourceNames", Text),
    list(5, "nonResourceURLs", Text),
];
static ROLE_BINDING: &[Field] = &[
    plain(1, "metadata", Message(OBJECT_META)),
    list(2, "subjects", Message(SUBJECT)),
    plain(3, "roleRef", Message(ROLE_REFERENCE)),
];
static SUBJECT: &[Field] =
    &[plain(1, "kind", Text), plain(2, "apiGroup", Text), plain(3, "name", Text), plain(4, "namespace", Text)];
static ROLE_REFERENCE: &[Field] = &[plain(1, "apiGroup", Text), plain(2, "kind", Text), plain(3, "name", Text)];
static DELETE_OPTIONS: &[Field] = &[
    pointer(1, "gracePeriodSeconds", Integer),
    pointer(2, "preconditions", Message(PRECONDITIONS)),
    pointer(3, "orphanDependents", Bool),
    pointer(4, "propagationPolicy", Text),
    list(5, "dryRun", Text),
];
static PRECONDITIONS: &[Field] = &[pointer(1, "uid", Text), pointer(2, "resourceVersion", Text)];
