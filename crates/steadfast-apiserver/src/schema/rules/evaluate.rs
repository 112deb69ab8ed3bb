//! Evaluation of rules over an object.
//!
//! Conditions, order and messages equal those of the real server. The cost is counted by `steadfast-cel`, and differs
//! from the cost on a real server.

use serde_json::Value as Json;
use steadfast_cel::{Budget, CelError, CelErrorKind, CelValue, Context};

use super::rule::{CompiledExpression, Reason, Rule};
use super::typed;
use crate::field_violation::FieldViolation;
use crate::go;
use crate::schema::correlate::OldValue;
use crate::schema::{Additional, JsonType, ListType, Schema};

/// Cost limit of the rules of one request.
const MAX_REQUEST_COST: u64 = 10_000_000;
/// Cost limit of one rule.
const MAX_RULE_COST: u64 = 1_000_000;
/// Maximum length of a message that an expression computes.
const MAX_MESSAGE_BYTES: usize = 5 * 1024;
/// Name of a value that has no path.
const ROOT_PATH: &str = "<nil>";

/// Verdict of the rules about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Reasons to reject the object.
    pub(crate) causes: Vec<FieldViolation>,
    /// Violations of unchanged values, which are only reported as warnings.
    pub(crate) warnings: Vec<String>,
}

/// Returns whether a violation prevents the evaluation of rules, since a value may not have the type of its schema.
pub(crate) fn is_blocking(cause: &FieldViolation) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Creates the cause that reports skipped rules.
pub(crate) fn skipped_rules_cause() -> FieldViolation {
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to \
               complete validation";
    FieldViolation::invalid(ROOT_PATH, &Json::Null, detail)
}

impl Schema {
    /// Evaluates the rules over an object and, for an update, its old state.
    pub(crate) fn evaluate_rules(&self, object: &Json, before: Option<&Json>) -> Verdict {
        let mut evaluator = RuleEvaluator { remaining_cost: MAX_REQUEST_COST, verdict: Verdict::default() };
        let before_root = before.map(|value| OldValue { value, schema: self });
        let previous = PreviousValue { current: before_root, parent: None };
        // The causes already report an exhausted budget.
        let _ = evaluator.evaluate_value(&Location { path: "", is_root: true }, self, object, before, previous);
        evaluator.verdict
    }
}

/// Signal that the budget of the request is exhausted, so no further rule is evaluated.
struct Exhausted;

#[derive(Clone, Copy)]
struct Location<'a> {
    path: &'a str,
    is_root: bool,
}

/// Value before an update. A violation of an unchanged value is only a warning.
#[derive(Clone, Copy)]
struct PreviousValue<'a> {
    /// The value itself, if it has a counterpart.
    current: Option<OldValue<'a>>,
    /// The nearest enclosing value with a counterpart, and its new state.
    parent: Option<(OldValue<'a>, &'a Json)>,
}

impl<'a> PreviousValue<'a> {
    fn is_unchanged(&self, value: &Json) -> bool {
        match (self.current, self.parent) {
            (Some(before), _) => before.is_unchanged(value),
            (None, Some((before, value))) => before.is_unchanged(value),
            (None, None) => false,
        }
    }

    fn for_child(self, value: &'a Json, current: impl FnOnce(OldValue<'a>) -> Option<OldValue<'a>>) -> Self {
        match self.current {
            Some(before) => Self { current: current(before), parent: Some((before, value)) },
            None => self,
        }
    }
}

struct RuleEvaluator {
    remaining_cost: u64,
    verdict: Verdict,
}

impl RuleEvaluator {
    fn evaluate_value<'a>(
        &mut self,
        location: &Location<'_>,
        schema: &'a Schema,
        value: &'a Json,
        before: Option<&'a Json>,
        previous: PreviousValue<'a>,
    ) -> Result<(), Exhausted> {
        // Most objects have no rules below this schema and cost nothing.
        if !schema.has_rules || value.is_null() {
            return Ok(());
        }
        self.evaluate_own_rules(location, schema, value, before.filter(|before| !before.is_null()), previous)?;
        match value {
            Json::Object(fields) => {
                let old = |name: &str| before.and_then(Json::as_object).and_then(|before| before.get(name));
                for (name, inner) in fields {
                    let (path, inner_schema) = match (schema.properties.get(name), &schema.additional) {
                        (Some(inner_schema), _) if location.path.is_empty() => (name.clone(), inner_schema),
                        (Some(inner_schema), _) => (format!("{}.{name}", location.path), inner_schema),
                        (None, Some(Additional::Schema(inner_schema))) => {
                            (format!("{}[{name}]", location.path), &**inner_schema)
                        }
                        (None, _) => continue,
                    };
                    let is_fixed = location.is_root && matches!(name.as_str(), "apiVersion" | "kind");
                    let previous = if is_fixed {
                        PreviousValue { current: None, parent: None }
                    } else {
                        previous.for_child(value, |before| before.field(name))
                    };
                    self.evaluate_value(
                        &Location { path: &path, is_root: false },
                        inner_schema,
                        inner,
                        old(name),
                        previous,
                    )?;
                }
            }
            Json::Array(items) => {
                let Some(inner_schema) = schema.items.as_deref() else { return Ok(()) };
                let old = before.and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
                for (index, item) in items.iter().enumerate() {
                    let path = format!("{}[{index}]", location.path);
                    let previous = previous.for_child(value, |before| before.item(item));
                    let before = counterpart(schema, item, old);
                    self.evaluate_value(
                        &Location { path: &path, is_root: false },
                        inner_schema,
                        item,
                        before,
                        previous,
                    )?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn evaluate_own_rules<'a>(
        &mut self,
        location: &Location<'_>,
        schema: &'a Schema,
        value: &'a Json,
        before: Option<&'a Json>,
        previous: PreviousValue<'a>,
    ) -> Result<(), Exhausted> {
        if schema.rules.is_empty() {
            return Ok(());
        }
        let path = if location.path.is_empty() { ROOT_PATH } else { location.path };
        let self_value = typed::value(value, schema, location.is_root);
        let old = before.map(|before| typed::value(before, schema, location.is_root));
        // A transition rule needs an earlier state, unless `optionalOldSelf` is set.
        for rule in schema.rules.iter().filter(|rule| !rule.is_transition || old.is_some() || rule.optional_old_self) {
            let mut context = Context::new();
            context.variable("self", self_value.clone());
            match (&old, rule.optional_old_self) {
                (Some(old), false) => context.variable("oldSelf", old.clone()),
                (Some(old), true) => context.variable("oldSelf", CelValue::some(old.clone())),
                (None, true) => context.variable("oldSelf", CelValue::Optional(None)),
                (None, false) => {}
            }
            let kind = schema.kind.map_or("", JsonType::as_str);
            let holds = match self.evaluate(&rule.program, &context) {
                RuleOutcome::Skipped => true,
                RuleOutcome::Value(CelValue::Bool(holds)) => holds,
                RuleOutcome::Value(_) => {
                    self.reject(path, kind, "rule compile error: the rule must evaluate to a bool");
                    continue;
                }
                RuleOutcome::Failed(error) => {
                    self.reject(path, kind, &evaluation_error(&error.kind, rule));
                    continue;
                }
                RuleOutcome::Exhausted(is_request) => {
                    let name = rule.name();
                    let detail = if is_request {
                        "validation failed due to running out of cost budget, no further validation rules will be run"
                            .to_owned()
                    } else {
                        format!(
                            "'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                             due to call cost exceeds limit for rule: {name}"
                        )
                    };
                    self.reject(path, kind, &detail);
                    return Err(Exhausted);
                }
            };
            if !holds {
                let message = self.message(rule, &context);
                let cause = violation_cause(rule, location.path, value, schema, &message);
                // Ratcheting (KEP-4008): an unchanged invalid value only causes a warning.
                if !rule.is_transition && previous.is_unchanged(value) {
                    self.verdict.warnings.push(format!("{}: {}", cause.field, cause.message));
                } else {
                    self.verdict.causes.push(cause);
                }
            }
        }
        Ok(())
    }

    fn reject(&mut self, path: &str, kind: &str, detail: &str) {
        self.verdict.causes.push(FieldViolation::invalid(path, &kind.into(), detail));
    }

    fn evaluate<'a>(&mut self, expression: &CompiledExpression, context: &Context<'a>) -> RuleOutcome<'a> {
        let Some(program) = &expression.program else { return RuleOutcome::Skipped };
        let limit = MAX_RULE_COST.min(self.remaining_cost);
        let mut budget = Budget::new(limit);
        let outcome = program.evaluate(context, &mut budget);
        // A failed rule also consumes its cost.
        self.remaining_cost -= budget.spent().min(self.remaining_cost);
        match outcome {
            Ok(outcome) => RuleOutcome::Value(outcome.value),
            Err(error) if matches!(error.kind, CelErrorKind::BudgetExceeded(_)) => {
                RuleOutcome::Exhausted(limit < MAX_RULE_COST)
            }
            Err(error) => RuleOutcome::Failed(error),
        }
    }

    /// Returns the message of a violated rule. A message expression without a valid result falls back to the message.
    fn message(&mut self, rule: &Rule, context: &Context<'_>) -> String {
        let computed = rule.message_program.as_ref().map(|program| self.evaluate(program, context));
        // An unusable message expression falls back to the plain message, as on the real server.
        if let Some(RuleOutcome::Value(CelValue::String(text))) = computed {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE_BYTES && !text.contains('\n') {
                return text.to_owned();
            }
        }
        rule.message()
    }
}

enum RuleOutcome<'a> {
    /// The expression is not evaluated; the author of the definition received a warning.
    Skipped,
    Value(CelValue<'a>),
    Failed(CelError),
    /// The cost limit is exceeded: that of the request if true, otherwise that of the rule.
    Exhausted(bool),
}

/// Returns the item of `old`, the list before an update, that has the keys of `item`.
fn counterpart<'a>(schema: &Schema, item: &Json, old: &'a [Json]) -> Option<&'a Json> {
    // Only items of a map list correspond to earlier items.
    if schema.list_type != Some(ListType::Map) {
        return None;
    }
    old.iter().find(|old| schema.list_map_keys.iter().all(|key| old.get(key) == item.get(key)))
}

/// Creates the cause for a violated rule.
fn violation_cause(rule: &Rule, path: &str, value: &Json, schema: &Schema, message: &str) -> FieldViolation {
    let field = match (path, rule.field.as_str()) {
        ("", "") => ROOT_PATH.to_owned(),
        (path, "") => path.to_owned(),
        ("", field) => field.to_owned(),
        (path, field) => format!("{path}.{field}"),
    };
    let shown = (!matches!(schema.kind, Some(JsonType::Object | JsonType::Array))).then_some(value);
    match rule.reason {
        Reason::Forbidden => FieldViolation::forbidden(field, message),
        Reason::Required => FieldViolation::required(field, message),
        Reason::Duplicate => {
            FieldViolation::new("FieldValueDuplicate", field, go::field_error("Duplicate value", shown, ""))
        }
        Reason::Invalid => {
            FieldViolation::new("FieldValueInvalid", field, go::field_error("Invalid value", shown, message))
        }
    }
}

/// Returns the message of the real server for a failed evaluation.
fn evaluation_error(kind: &CelErrorKind, rule: &Rule) -> String {
    let name = rule.name();
    let detail = match kind {
        CelErrorKind::NoSuchOverload { .. } => {
            return format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for \
                 rule: {name}"
            );
        }
        CelErrorKind::NoSuchField(field) | CelErrorKind::UnknownName(field) => format!("no such key: {field}"),
        CelErrorKind::NoSuchKey => "no such key".to_owned(),
        CelErrorKind::IndexOutOfRange => "index out of bounds".to_owned(),
        CelErrorKind::Overflow => "integer overflow".to_owned(),
        other => other.to_string(),
    };
    format!("{detail} evaluating rule: {name}")
}
