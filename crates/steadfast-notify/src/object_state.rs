//! State of an object, with secret values hidden from rules.

use std::sync::Arc;

use serde_json::Value;

/// State of an object.
#[derive(Clone)]
pub struct ObjectState {
    /// The full object, for comparisons only.
    pub(crate) full: Arc<Value>,
    /// The object as visible to rules, without values of Secrets.
    masked: Arc<Value>,
}

// The object may be a Secret, so the content is omitted.
impl std::fmt::Debug for ObjectState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// Replacement of a Secret's values.
const WITHHELD: &str = "<withheld>";

/// Annotation of kubectl with the applied object, which includes the values of a Secret.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl ObjectState {
    /// Creates a state from the object as stored in the server.
    pub fn new(object: Value) -> Self {
        // Only core Secrets. Other resources may contain secrets, but their fields are unknown here.
        let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
        let full = Arc::new(object);
        let masked = if is_secret { Arc::new(without_secrets(&full)) } else { full.clone() };
        Self { full, masked }
    }

    /// Returns the object as visible to rules.
    pub(crate) fn masked(&self) -> &Value {
        &self.masked
    }
}

fn without_secrets(secret: &Value) -> Value {
    let mut masked = secret.clone();
    for part in ["data", "stringData"] {
        let values = masked.get_mut(part).and_then(Value::as_object_mut).into_iter().flat_map(|part| part.values_mut());
        values.for_each(|value| *value = WITHHELD.into());
    }
    // `kubectl apply` copies the whole object, including its secrets, into this annotation.
    if let Some(applied) = masked.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED)) {
        *applied = WITHHELD.into();
    }
    masked
}
