//! Validation of a definition's rules.

use serde_json::Value;
use steadfast_cel::Program;

use crate::schema::Cause;

const KEY: &str = "x-kubernetes-validations";
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Calls `visit` with the path of each rule within a schema, and the rule. Schemas must be at most
/// [`DEPTH`](crate::schema::DEPTH) deep.
fn each<'s>(schema: &'s Value, path: &str, visit: &mut impl FnMut(&str, &'s Value)) {
    for (index, rule) in schema.get(KEY).and_then(Value::as_array).into_iter().flatten().enumerate() {
        visit(&format!("{path}.{KEY}[{index}]"), rule);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key).filter(|inner| inner.is_object()) {
            each(inner, &format!("{path}.{key}"), visit);
        }
    }
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        each(inner, &format!("{path}.properties[{name}]"), visit);
    }
}

/// Adds the violations of the rules within a schema.
pub(crate) fn complaints(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    each(schema, path, &mut |path, rule| {
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let given = |key: &str| rule.get(key).is_some_and(Value::is_string) && !text(key).is_empty();
        let (words, message) = (text("rule").trim(), text("message").trim());
        let at = |key: &str| format!("{path}.{key}");
        let invalid = |key: &str, why: &str| Cause::invalid(at(key), &text(key).into(), why);
        if words.is_empty() {
            causes.push(Cause::required(at("rule"), "rule is not specified"));
        } else if given("message") && message.is_empty() {
            causes.push(invalid("message", "must be non-empty if specified"));
        } else if message.contains('\n') {
            causes.push(invalid("message", "must not contain line breaks"));
        } else if words.contains('\n') && message.is_empty() {
            causes.push(Cause::required(at("message"), "message must be specified if rule contains line breaks"));
        }
        if given("messageExpression") && text("messageExpression").trim().is_empty() {
            causes.push(Cause::required(at("messageExpression"), "messageExpression must be non-empty if specified"));
        }
        if rule.get("reason").is_some_and(|reason| !reason.is_null()) && !REASONS.contains(&text("reason")) {
            let supported = REASONS.map(str::to_owned);
            causes.push(Cause::not_supported(at("reason"), &text("reason").into(), &supported));
        }
        if given("fieldPath") && text("fieldPath").trim().is_empty() {
            causes.push(invalid("fieldPath", "must be non-empty if specified"));
        }
        for key in ["rule", "messageExpression"] {
            if let (false, Err(error)) = (text(key).trim().is_empty(), Program::compile(text(key))) {
                let why = format!("compilation failed: ERROR: <input>: at byte {}: Syntax error: {error}", error.at);
                causes.push(Cause::invalid(at(key), rule, &why));
            }
        }
    });
}

/// Returns the rules within a schema that are not evaluated: their paths and their unsupported functions.
pub(crate) fn unsupported(schema: &Value, path: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    each(schema, path, &mut |path, rule| {
        for key in ["rule", "messageExpression"] {
            let program = rule.get(key).and_then(Value::as_str).and_then(|text| Program::compile(text).ok());
            let names = program.as_ref().map(Program::unsupported_functions).unwrap_or_default();
            if !names.is_empty() {
                found.push((format!("{path}.{key}"), names.join(", ")));
            }
        }
    });
    found
}
