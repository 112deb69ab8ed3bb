//! What a name is: namespace and name, ordered so that a namespace lies together.

use std::fmt;
use std::sync::Arc;

use crate::text::told;

/// How much of a name is shown, in bytes: that of a Kubernetes object has 253, but nothing forces a server to see to it.
const LONGEST_TOLD: usize = 300;

/// An object's place: its namespace (none for cluster-scoped objects) and its name.
///
/// Ordered by namespace, then name. Cloning is cheap. The identity of an object is its UID, not its key:
/// a recreated object has the key of the one before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of the cluster-scoped `name`.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// The namespace, none for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{}/{}", told(namespace, LONGEST_TOLD), told(&self.name, LONGEST_TOLD)),
            None => f.write_str(&told(&self.name, LONGEST_TOLD)),
        }
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
