//! Validation of a definition's rules.

use std::collections::BTreeMap;

use serde_json::Value;
use steadfast_cel::{Program, StaticType, TypeError};

use super::static_types::static_type;
use crate::field_violation::FieldViolation;
use crate::go;

const VALIDATIONS_KEY: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Rule of a definition.
struct FoundRule<'s> {
    /// Path of the rule.
    path: String,
    rule: &'s Value,
    /// Schema of the values that the rule reads.
    schema: &'s Value,
    /// Path of the outermost enclosing list that is not a map list, if any. Its items have no counterparts before an
    /// update.
    uncorrelated: Option<String>,
}

/// Calls `visit` with each rule within a schema. Schemas are at most
/// [`MAX_SCHEMA_DEPTH`](crate::schema::MAX_SCHEMA_DEPTH) levels deep when this function is called.
fn visit_rules<'s>(schema: &'s Value, path: &str, visit: &mut impl FnMut(&FoundRule<'s>), uncorrelated: Option<&str>) {
    for (index, rule) in schema.get(VALIDATIONS_KEY).and_then(Value::as_array).into_iter().flatten().enumerate() {
        visit(&FoundRule {
            path: format!("{path}.{VALIDATIONS_KEY}[{index}]"),
            rule,
            schema,
            uncorrelated: uncorrelated.map(str::to_owned),
        });
    }
    if let Some(inner) = schema.get("items").filter(|inner| inner.is_object()) {
        let is_map = schema.get("x-kubernetes-list-type").is_some_and(|kind| kind == "map");
        // Only items of a map list have an earlier state. Below other lists, `oldSelf` is not
        // available.
        let uncorrelated = if is_map { uncorrelated } else { uncorrelated.or(Some(path)) };
        visit_rules(inner, &format!("{path}.items"), visit, uncorrelated);
    }
    if let Some(inner) = schema.get("additionalProperties").filter(|inner| inner.is_object()) {
        visit_rules(inner, &format!("{path}.additionalProperties"), visit, uncorrelated);
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        visit_rules(inner, &format!("{path}.properties[{name}]"), visit, uncorrelated);
    }
}

/// Types of the values that rules of a schema read.
struct RuleTypes<'s> {
    root: &'s Value,
    /// Type of the last schema. The rules of one schema follow each other.
    last_type: Option<(&'s Value, StaticType)>,
}

impl<'s> RuleTypes<'s> {
    /// Returns the type errors of an expression in the words of a real server.
    fn error(&mut self, program: &Program, text: &str, key: &str, rule: &Value, schema: &'s Value) -> Option<String> {
        // Both expressions of a rule use the schema, so its type is computed once.
        let self_type = match &self.last_type {
            Some((last_schema, self_type)) if std::ptr::eq(*last_schema, schema) => self_type.clone(),
            _ => static_type(schema, std::ptr::eq(schema, self.root)),
        };
        self.last_type = Some((schema, self_type.clone()));
        let is_optional = rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default();
        let old = if is_optional { StaticType::optional(self_type.clone()) } else { self_type.clone() };
        let (result, expected) = match key {
            "rule" => (StaticType::BOOL, "cel expression must evaluate to a bool"),
            _ => (StaticType::STRING, "messageExpression must evaluate to a string"),
        };
        match program.check(&BTreeMap::from([("self", self_type), ("oldSelf", old)])) {
            Ok(found) if found == result => None,
            Ok(_) => Some(expected.to_owned()),
            Err(errors) => Some(compilation_error(text, &errors)),
        }
    }
}

/// Returns a rule in the form of a real server's messages: with the field names of the Go type, and with all fields.
fn go_rule(rule: &Value) -> String {
    let text =
        |key: &str| go::json(rule.get(key).filter(|text| text.is_string()).unwrap_or(&Value::String(String::new())));
    let other = |key: &str| go::json(rule.get(key).unwrap_or(&Value::Null));
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        other("reason"),
        text("fieldPath"),
        other("optionalOldSelf"),
    )
}

/// Number of errors of an expression that the implementation in Go reports.
const MAX_ERRORS: usize = 100;
/// Longest line that the implementation in Go shows below an error.
const MAX_SNIPPET_BYTES: usize = 16_384;

/// Returns the type errors of an expression as the implementation in Go writes errors.
fn compilation_error(text: &str, errors: &[TypeError]) -> String {
    let mut lines: Vec<String> =
        errors.iter().take(MAX_ERRORS).map(|error| located(text, error.offset, &error.message)).collect();
    if let Some(more) = errors.len().checked_sub(MAX_ERRORS).filter(|more| *more > 0) {
        lines.push(format!("{more} more errors were truncated"));
    }
    format!("compilation failed: {}", lines.join("\n"))
}

/// Returns an error with its line and a mark below the position.
fn located(text: &str, offset: usize, message: &str) -> String {
    let before = text.get(..offset).unwrap_or(text);
    let (line, start) = (before.matches('\n').count() + 1, before.rfind('\n').map_or(0, |end| end + 1));
    let column = before.get(start..).unwrap_or_default().chars().count();
    let shown = text.get(start..).unwrap_or_default().split('\n').next().unwrap_or_default().replace('\t', " ");
    let error = format!("ERROR: <input>:{line}:{}: {message}", column + 1);
    if shown.len() > MAX_SNIPPET_BYTES {
        return error;
    }
    // The mark has the width of the characters above: characters of several bytes count as wide.
    let mut characters = shown.chars();
    let dots: String =
        characters.by_ref().take(column).map(|character| if character.len_utf8() > 1 { '．' } else { '.' }).collect();
    let mark = if characters.next().is_some_and(|character| character.len_utf8() > 1) { '＾' } else { '^' };
    format!("{error}\n | {shown}\n | {dots}{mark}")
}

/// Adds the violations of the rules within a schema.
pub(crate) fn violations<'s>(schema: &'s Value, path: &str, causes: &mut Vec<FieldViolation>) {
    // As on a real server, types are checked only if the schema has no other violations.
    let mut types = causes.is_empty().then_some(RuleTypes { root: schema, last_type: None });
    let mut visit = |found: &FoundRule<'s>| {
        let (path, rule) = (&found.path, found.rule);
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_set = |key: &str| rule.get(key).is_some_and(Value::is_string) && !text(key).is_empty();
        let (rule_text, message) = (text("rule").trim(), text("message").trim());
        let at = |key: &str| format!("{path}.{key}");
        let invalid = |key: &str, detail: &str| FieldViolation::invalid(at(key), &text(key).into(), detail);
        if rule_text.is_empty() {
            causes.push(FieldViolation::required(at("rule"), "rule is not specified"));
        } else if is_set("message") && message.is_empty() {
            causes.push(invalid("message", "must be non-empty if specified"));
        } else if message.contains('\n') {
            causes.push(invalid("message", "must not contain line breaks"));
        } else if rule_text.contains('\n') && message.is_empty() {
            causes.push(FieldViolation::required(
                at("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        if is_set("messageExpression") && text("messageExpression").trim().is_empty() {
            causes.push(FieldViolation::required(
                at("messageExpression"),
                "messageExpression must be non-empty if specified",
            ));
        }
        if rule.get("reason").is_some_and(|reason| !reason.is_null()) && !REASONS.contains(&text("reason")) {
            let supported = REASONS.map(str::to_owned);
            causes.push(FieldViolation::not_supported(at("reason"), &text("reason").into(), &supported));
        }
        if is_set("fieldPath") && text("fieldPath").trim().is_empty() {
            causes.push(invalid("fieldPath", "must be non-empty if specified"));
        }
        for key in ["rule", "messageExpression"] {
            let rule_text = text(key);
            if rule_text.trim().is_empty() {
                continue;
            }
            let program = Program::compile(rule_text);
            let error = match (&program, &mut types) {
                (Err(error), _) => {
                    let detail = located(rule_text, error.offset, &format!("Syntax error: {error}"));
                    Some(format!("compilation failed: {detail}"))
                }
                (Ok(program), Some(types)) => types.error(program, rule_text, key, rule, found.schema),
                (Ok(_), None) => None,
            };
            if let Some(detail) = error {
                let prefix =
                    if key == "rule" || !detail.starts_with("compilation") { "" } else { "messageExpression " };
                causes.push(FieldViolation::new(
                    "FieldValueInvalid",
                    at(key),
                    format!("Invalid value: {}: {prefix}{detail}", go_rule(rule)),
                ));
                // As on a real server, the message expression of an invalid rule is not compiled.
                break;
            }
            if let (Ok(program), "rule", true) = (program, key, types.is_some()) {
                causes.extend(old_self_violation(found, &program));
            }
        }
    };
    visit_rules(schema, path, &mut visit, None);
}

/// Returns the error of a rule that uses `oldSelf` where no earlier value is available. Also returns an error if the
/// rule sets `optionalOldSelf` without using `oldSelf`.
fn old_self_violation(found: &FoundRule<'_>, program: &Program) -> Option<FieldViolation> {
    let flag = found.rule.get("optionalOldSelf").filter(|flag| flag.is_boolean());
    match (program.refers_to("oldSelf"), &found.uncorrelated, flag) {
        (true, Some(list), _) => {
            let detail = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
            let text = found.rule.get("rule").unwrap_or(&Value::Null);
            Some(FieldViolation::invalid(format!("{}.rule", found.path), text, &detail))
        }
        (false, _, Some(flag)) => {
            let detail = "may not be set if oldSelf is not used in rule";
            Some(FieldViolation::invalid(format!("{}.optionalOldSelf", found.path), flag, detail))
        }
        _ => None,
    }
}

/// Returns the rules within a schema that are not evaluated: their paths and their unsupported functions.
pub(crate) fn unsupported(schema: &Value, path: &str) -> Vec<(String, String)> {
    let mut unsupported = Vec::new();
    let mut visit = |FoundRule { path, rule, .. }: &FoundRule<'_>| {
        for key in ["rule", "messageExpression"] {
            let program = rule.get(key).and_then(Value::as_str).and_then(|text| Program::compile(text).ok());
            let names = program.as_ref().map(Program::unsupported_functions).unwrap_or_default();
            if !names.is_empty() {
                unsupported.push((format!("{path}.{key}"), names.join(", ")));
            }
        }
    };
    visit_rules(schema, path, &mut visit, None);
    unsupported
}
