//! Results of CEL validation rules, which are evaluated without the lock of the store.
//!
//! A write that needs a CEL validation ends without a change and stores the request for the validation here. Its caller
//! evaluates the rules and repeats the write. The repeated write finds the result if neither the object nor its
//! previous state has changed.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::metadata;
use crate::resources::Definition;
use crate::schema::Verdict;

/// Verdict of the rules about one write.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleResults(Arc<Mutex<RuleResultState>>);

#[derive(Debug, Default)]
struct RuleResultState {
    pending: Option<VerdictRequest>,
    decided: Option<(VerdictRequest, Verdict)>,
}

#[derive(Debug)]
struct VerdictRequest {
    definition: Arc<Definition>,
    version: String,
    object: Value,
    before: Option<Value>,
}

impl VerdictRequest {
    fn matches(&self, other: &Self) -> bool {
        // A generated name differs between attempts. The difference must not make the result outdated.
        Arc::ptr_eq(&self.definition, &other.definition)
            && self.version == other.version
            && self.before == other.before
            && without_generated_name(&self.object) == without_generated_name(&other.object)
    }

    fn decide(&self) -> Verdict {
        let version = self.definition.version(&self.version);
        version.map(|version| version.schema.evaluate_rules(&self.object, self.before.as_ref())).unwrap_or_default()
    }
}

impl RuleResults {
    /// Returns the validation result for an object and its state before an update; `None` before
    /// [`decide`](Self::decide).
    pub(super) fn about(
        &self,
        definition: &Arc<Definition>,
        version: &str,
        object: &Value,
        before: Option<&Value>,
    ) -> Option<Verdict> {
        let request = VerdictRequest {
            definition: Arc::clone(definition),
            version: version.to_owned(),
            object: readable(object),
            before: before.map(readable),
        };
        let mut state = self.0.lock();
        // A result for another state of the object is outdated: the caller must evaluate the rules again.
        if let Some((_, verdict)) = state.decided.as_ref().filter(|(decided, _)| decided.matches(&request)) {
            return Some(verdict.clone());
        }
        // Replaces an earlier request for a validation, because the result of that validation would be outdated.
        state.pending = Some(request);
        None
    }

    /// Returns whether a write ended because its validation result was missing.
    pub(super) fn is_pending(&self) -> bool {
        self.0.lock().pending.is_some()
    }

    /// Evaluates the rules that a write needs. Returns false if no validation is pending, so that the write has
    /// finished. The caller must not hold the lock of the store.
    pub(crate) fn decide(&self) -> bool {
        // The lock is released before the evaluation, which can take long.
        let pending = self.0.lock().pending.take();
        let Some(request) = pending else { return false };
        let verdict = request.decide();
        self.0.lock().decided = Some((request, verdict));
        true
    }
}

/// Returns the part of an object that rules can read. The metadata contains only names.
fn readable(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    // Rules can only read these two fields of the metadata.
    let fields = fields.map(|(name, value)| match name.as_str() {
        "metadata" => {
            let names = ["name", "generateName"].into_iter();
            let names = names.filter_map(|name| Some((name.to_owned(), value.get(name)?.clone())));
            (name.clone(), Value::Object(names.collect()))
        }
        _ => (name.clone(), value.clone()),
    });
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Returns the object without a generated name, which differs between attempts.
fn without_generated_name(object: &Value) -> Value {
    let mut object = object.clone();
    if !metadata::text(&object, "generateName").is_empty() {
        metadata::set(&mut object, "name", None);
    }
    object
}
