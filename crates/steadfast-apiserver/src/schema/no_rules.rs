//! Rules in CEL in builds without the feature `cel`: no rule is evaluated, and definitions with rules return warnings.

use serde_json::Value;

use super::Schema;
use crate::field_violation::FieldViolation;

const VALIDATIONS_KEY: &str = "x-kubernetes-validations";

/// Rule of a schema; never parsed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Rule {}

impl Rule {
    pub(crate) fn parse_all(_: &Value) -> Vec<Self> {
        Vec::new()
    }
}

/// Verdict of the rules about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) causes: Vec<FieldViolation>,
    pub(crate) warnings: Vec<String>,
}

impl Schema {
    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(crate) fn evaluate_rules(&self, _: &Value, _: Option<&Value>) -> Verdict {
        Verdict::default()
    }
}

/// Returns whether a violation prevents the evaluation of rules. Returns false, since no rule is evaluated.
pub(crate) fn is_blocking(_: &FieldViolation) -> bool {
    false
}

/// Creates the error that reports unevaluated rules.
pub(crate) fn skipped_rules_cause() -> FieldViolation {
    FieldViolation::invalid("<nil>", &Value::Null, "no validation rule was checked")
}

/// Accepts all rules of a definition.
pub(crate) fn violations(_: &Value, _: &str, _: &mut Vec<FieldViolation>) {}

/// Returns the path of each rule in a schema, and the reason why no rule is evaluated.
pub(crate) fn unsupported(schema: &Value, path: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(schema, path, &mut found);
    found
}

fn collect(schema: &Value, path: &str, found: &mut Vec<(String, String)>) {
    for index in 0..schema.get(VALIDATIONS_KEY).and_then(Value::as_array).map_or(0, Vec::len) {
        let detail = "all, since the feature `cel` of steadfast-apiserver is not enabled";
        found.push((format!("{path}.{VALIDATIONS_KEY}[{index}].rule"), detail.to_owned()));
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner_schema) = schema.get(inner).filter(|inner_schema| inner_schema.is_object()) {
            collect(inner_schema, &format!("{path}.{inner}"), found);
        }
    }
    for (name, inner_schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        collect(inner_schema, &format!("{path}.properties[{name}]"), found);
    }
}
