//! Kinds that the controllers read and write.

use crate::resources::GroupResource;

/// A built-in kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DaemonSet,
    Deployment,
    EndpointSlice,
    Job,
    Node,
    PersistentVolumeClaim,
    Pod,
    ReplicaSet,
    Service,
    StatefulSet,
}

/// Kinds with their names, API groups and plural names.
const KINDS: [(Kind, &str, &str, &str); 10] = [
    (Kind::DaemonSet, "DaemonSet", "apps", "daemonsets"),
    (Kind::Deployment, "Deployment", "apps", "deployments"),
    (Kind::EndpointSlice, "EndpointSlice", "discovery.k8s.io", "endpointslices"),
    (Kind::Job, "Job", "batch", "jobs"),
    (Kind::Node, "Node", "", "nodes"),
    (Kind::PersistentVolumeClaim, "PersistentVolumeClaim", "", "persistentvolumeclaims"),
    (Kind::Pod, "Pod", "", "pods"),
    (Kind::ReplicaSet, "ReplicaSet", "apps", "replicasets"),
    (Kind::Service, "Service", "", "services"),
    (Kind::StatefulSet, "StatefulSet", "apps", "statefulsets"),
];

impl Kind {
    /// Returns the kind of a resource; `None` for a resource that no controller reads or writes.
    pub(super) fn of(resource: &GroupResource) -> Option<Self> {
        KINDS
            .iter()
            .find(|(_, _, group, plural)| *group == resource.group() && *plural == resource.resource())
            .map(|(kind, ..)| *kind)
    }

    pub(super) fn name(self) -> &'static str {
        self.row().1
    }

    pub(super) fn resource(self) -> GroupResource {
        let (_, _, group, plural) = self.row();
        GroupResource::new(group, plural)
    }

    /// Returns the API version. All of these kinds have version `v1`.
    pub(super) fn api_version(self) -> String {
        match self.row().2 {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        }
    }

    fn row(self) -> &'static (Self, &'static str, &'static str, &'static str) {
        KINDS.iter().find(|(kind, ..)| *kind == self).expect("each kind has a row")
    }
}
