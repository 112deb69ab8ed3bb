//! State of an object, with secret values hidden from rules.

use std::sync::Arc;

use serde_json::Value;

/// State of an object.
#[derive(Clone)]
pub struct State {
    /// The full object, for comparisons only.
    pub(crate) whole: Arc<Value>,
    /// The object as visible to rules, without values of Secrets.
    shown: Arc<Value>,
}

// The object may be a Secret, so the content is omitted.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// Replacement of a Secret's values.
const WITHHELD: &str = "<withheld>";

/// Annotation of kubectl with the applied object, which includes the values of a Secret.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl State {
    /// Creates a state from the object as stored in the server.
    pub fn new(object: Value) -> Self {
        // Only core Secrets. Other resources may contain secrets, but their fields are unknown here.
        let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
        let whole = Arc::new(object);
        let shown = if is_secret { Arc::new(without_secrets(&whole)) } else { whole.clone() };
        Self { whole, shown }
    }

    /// Returns the object as visible to rules.
    pub(crate) fn shown(&self) -> &Value {
        &self.shown
    }
}

fn without_secrets(secret: &Value) -> Value {
    let mut shown = secret.clone();
    for part in ["data", "stringData"] {
        let values = shown.get_mut(part).and_then(Value::as_object_mut).into_iter().flat_map(|part| part.values_mut());
        values.for_each(|value| *value = WITHHELD.into());
    }
    // `kubectl apply` copies the whole object, including its secrets, into this annotation.
    if let Some(applied) = shown.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED)) {
        *applied = WITHHELD.into();
    }
    shown
}
