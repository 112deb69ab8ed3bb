//! Rules of a schema.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use steadfast_cel::Program;

/// Variable for the value before an update.
const OLD: &str = "oldSelf";

/// Rule of a schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(super) program: Compiled,
    /// Message as written; empty if there is none.
    message: String,
    pub(super) message_program: Option<Compiled>,
    /// Reason of the cause; `FieldValueInvalid` by default.
    pub(super) reason: Reason,
    /// Path of the field below the value that a refusal names; empty for the value itself.
    pub(super) field: String,
    /// `oldSelf` is an optional value, and the rule applies to new values as well.
    pub(super) optional_old: bool,
    /// The rule compares with the value before an update.
    pub(super) is_transition: bool,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

/// Expression, and its program unless the expression is invalid or calls a function that is not supported.
#[derive(Clone)]
pub(super) struct Compiled {
    pub(super) text: String,
    pub(super) program: Option<Arc<Program>>,
}

impl Compiled {
    fn of(text: &str) -> Self {
        let program = Program::compile(text).ok().filter(|program| program.unsupported_functions().is_empty());
        Self { text: text.to_owned(), program: program.map(Arc::new) }
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Compiled {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Rule {
    /// Rules of a schema as written. Definitions with an invalid rule are rejected; what is stored past the API may have
    /// one, which is not evaluated.
    pub(crate) fn all_of(schema: &Value) -> Vec<Self> {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        rules.map(Self::of).collect()
    }

    fn of(rule: &Value) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let program = Compiled::of(text("rule"));
        let refers = |program: &Compiled| program.program.as_ref().is_some_and(|program| program.refers_to(OLD));
        let message_program = Some(text("messageExpression")).filter(|text| !text.is_empty()).map(Compiled::of);
        Self {
            // As on a real server: a message that shows the old value needs one as well.
            is_transition: refers(&program) || message_program.as_ref().is_some_and(refers),
            program,
            message: text("message").trim().to_owned(),
            message_program,
            reason: match text("reason") {
                "FieldValueForbidden" => Reason::Forbidden,
                "FieldValueRequired" => Reason::Required,
                "FieldValueDuplicate" => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field: field(text("fieldPath")),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    /// Text by which errors name the rule.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() { self.program.text.trim() } else { &self.message }
    }

    /// Message without a message expression.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.name()) } else { self.message.clone() }
    }
}

/// `.spec.ports` and `.spec['ports']` as refusals write a path: `spec.ports`.
fn field(path: &str) -> String {
    let mut field = String::new();
    for part in path.trim().replace("['", ".").replace("']", "").split('.').filter(|part| !part.is_empty()) {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(part);
    }
    field
}
