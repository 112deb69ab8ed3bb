//! Identity of an object across clusters.

/// Identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventSubject {
    /// Name of the cluster in the configuration.
    pub cluster: String,
    /// Resource with the group: `pods`, `deployments.apps`.
    pub resource: String,
    /// Namespace. Empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl EventSubject {
    /// Returns the identity in message IDs: the UID, or resource, namespace and name without a UID.
    pub(crate) fn identity(&self) -> String {
        if self.uid.is_empty() {
            return format!("{}/{}/{}", self.resource, self.namespace, self.name);
        }
        self.uid.clone()
    }

    /// Returns a description such as `pods web/shop of east`.
    pub(crate) fn description(&self) -> String {
        let namespace = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{} {namespace}{} of {}", self.resource, self.name, self.cluster)
    }
}
