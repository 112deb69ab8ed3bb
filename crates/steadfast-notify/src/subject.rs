//! Which object something is about.

/// Which object something is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject {
    /// The cluster, as the configuration calls it.
    pub cluster: String,
    /// The resource, with its group: `pods`, `deployments.apps`.
    pub resource: String,
    /// The namespace; empty for what is in none.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// Who it is, whatever its name.
    pub uid: String,
}

impl Subject {
    /// What identifies the object in IDs of messages: its UID, or its name if it has none.
    pub(crate) fn identity(&self) -> String {
        if self.uid.is_empty() {
            return format!("{}/{}/{}", self.resource, self.namespace, self.name);
        }
        self.uid.clone()
    }

    /// `pods web/shop`, with the cluster where that is not the only one there is by default.
    pub(crate) fn told(&self) -> String {
        let place = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        format!("{} {place}{} of {}", self.resource, self.name, self.cluster)
    }
}
