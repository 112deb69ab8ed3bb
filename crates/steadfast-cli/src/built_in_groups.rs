//! API groups that the API server itself and its usual aggregated APIs serve.
//!
//! Custom resources of the Kubernetes project also have groups that end in `.k8s.io`, such as
//! `gateway.networking.k8s.io` and `snapshot.storage.k8s.io`. Only the exact names therefore identify the built-in groups.

/// Built-in groups with a dot in their names, and those of the metrics APIs. All groups without a dot are built in, since
/// the name of a custom resource's group must have one.
const BUILT_IN_GROUPS: [&str; 21] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "custom.metrics.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "external.metrics.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns whether the resources of `group` are built in, and thus have no `CustomResourceDefinition`.
pub(crate) fn is_built_in_group(group: &str) -> bool {
    !group.contains('.') || BUILT_IN_GROUPS.contains(&group)
}

#[cfg(test)]
mod tests {
    use super::is_built_in_group;

    #[test]
    fn custom_groups_of_kubernetes_project_are_not_built_in() {
        for group in ["", "apps", "networking.k8s.io", "rbac.authorization.k8s.io", "metrics.k8s.io"] {
            assert!(is_built_in_group(group), "{group}");
        }
        for group in ["gateway.networking.k8s.io", "snapshot.storage.k8s.io", "x-k8s.io", "example.com"] {
            assert!(!is_built_in_group(group), "{group}");
        }
    }
}
