//! State of an object, of which rules see no value of a Secret.

use std::sync::Arc;

use serde_json::Value;

/// A state of an object.
#[derive(Clone)]
pub struct State {
    /// As the server has it, for comparisons alone.
    pub(crate) whole: Arc<Value>,
    /// What rules see of it: nothing of what a Secret keeps.
    shown: Arc<Value>,
}

// It may be a Secret.
impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

/// What is shown in the place of a Secret's values.
const WITHHELD: &str = "<withheld>";

/// Where kubectl keeps all of an object as it was applied.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl State {
    /// A state of an object, as the server has it.
    pub fn new(object: Value) -> Self {
        let is_secret = object["kind"] == "Secret" && object["apiVersion"] == "v1";
        let whole = Arc::new(object);
        let shown = if is_secret { Arc::new(without_secrets(&whole)) } else { whole.clone() };
        Self { whole, shown }
    }

    /// What rules see of it.
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
    if let Some(applied) = shown.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED)) {
        *applied = WITHHELD.into();
    }
    shown
}
