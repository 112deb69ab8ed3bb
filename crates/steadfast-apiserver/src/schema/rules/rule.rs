//! Rules of a schema.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use steadfast_cel::Program;

/// Variable of the value before an update.
const OLD_SELF: &str = "oldSelf";

/// Rule of a schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(super) program: CompiledExpression,
    /// Message as written; empty if there is none.
    message: String,
    pub(super) message_program: Option<CompiledExpression>,
    /// Reason of the cause. Defaults to `FieldValueInvalid`.
    pub(super) reason: Reason,
    /// Path of the reported field below the value; empty for the value itself.
    pub(super) field: String,
    /// True if `oldSelf` is an optional value, so that the rule applies to new values as well.
    pub(super) optional_old_self: bool,
    /// True if the rule compares with the value before an update.
    pub(super) is_transition: bool,
}

/// Reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

/// Expression with its program. The program is absent if the expression is invalid or calls an unsupported function.
#[derive(Clone)]
pub(super) struct CompiledExpression {
    pub(super) text: String,
    pub(super) program: Option<Arc<Program>>,
}

impl CompiledExpression {
    fn compile(text: &str) -> Self {
        // A rule with unsupported functions is skipped. A warning names the functions when the
        // definition is created.
        let program = Program::compile(text).ok().filter(|program| program.unsupported_functions().is_empty());
        Self { text: text.to_owned(), program: program.map(Arc::new) }
    }
}

impl fmt::Debug for CompiledExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for CompiledExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Rule {
    /// Parses the rules of a schema. Definitions with an invalid rule are rejected. A definition that bypasses the API
    /// may contain an invalid rule, which is not evaluated.
    pub(crate) fn parse_all(schema: &Value) -> Vec<Self> {
        let rules = schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        rules.map(Self::parse).collect()
    }

    fn parse(rule: &Value) -> Self {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let program = CompiledExpression::compile(text("rule"));
        let refers_to_old =
            |program: &CompiledExpression| program.program.as_ref().is_some_and(|program| program.refers_to(OLD_SELF));
        let message_program =
            Some(text("messageExpression")).filter(|text| !text.is_empty()).map(CompiledExpression::compile);
        Self {
            // As on a real server, a rule is also a transition rule if only its message expression refers to the old
            // value.
            is_transition: refers_to_old(&program) || message_program.as_ref().is_some_and(refers_to_old),
            program,
            message: text("message").trim().to_owned(),
            message_program,
            reason: match text("reason") {
                "FieldValueForbidden" => Reason::Forbidden,
                "FieldValueRequired" => Reason::Required,
                "FieldValueDuplicate" => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field: reported_field(text("fieldPath")),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    /// Returns the name of the rule in errors.
    pub(super) fn name(&self) -> &str {
        if self.message.is_empty() { self.program.text.trim() } else { &self.message }
    }

    /// Returns the message of a rule without a message expression.
    pub(super) fn message(&self) -> String {
        if self.message.is_empty() { format!("failed rule: {}", self.name()) } else { self.message.clone() }
    }
}

/// Converts `.spec.ports` and `.spec['ports']` to the form of rejections: `spec.ports`.
fn reported_field(path: &str) -> String {
    let mut field = String::new();
    for part in path.trim().replace("['", ".").replace("']", "").split('.').filter(|part| !part.is_empty()) {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(part);
    }
    field
}
