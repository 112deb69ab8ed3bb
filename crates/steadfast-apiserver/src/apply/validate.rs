//! Validation of objects against their types. Applied objects must be valid.

use std::collections::BTreeSet;

use serde_json::Value;

use super::items::element_of;
use super::path::PathElement;
use crate::merging::types::{MergeStrategy, ScalarAtom, Shape, TypeRef};

/// Returns all violations, with the messages of the real server; `None` if the object is valid.
pub(super) fn violations(type_ref: &TypeRef, object: &Value) -> Option<String> {
    let mut violations = Vec::new();
    walk(type_ref, object, "", Duplicates::Rejected, &mut violations);
    match violations.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Returns whether an object fits a type, so that its fields can be compared. For writes other than an apply: lists may
/// contain duplicate items.
pub(super) fn fits(type_ref: &TypeRef, object: &Value) -> bool {
    let mut violations = Vec::new();
    walk(type_ref, object, "", Duplicates::Allowed, &mut violations);
    violations.is_empty()
}

/// Treatment of duplicate items in a list with keys or a set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Duplicates {
    Allowed,
    Rejected,
}

fn walk(type_ref: &TypeRef, value: &Value, path: &str, duplicates: Duplicates, violations: &mut Vec<String>) {
    let mut report = |detail: &str| {
        violations.push(if path.is_empty() { detail.to_owned() } else { format!("{path}: {detail}") });
    };
    match type_ref.atom().shape(Some(value)) {
        _ if value.is_null() => {}
        Shape::Scalar(scalar) => {
            let (is_of_type, expected) = match scalar {
                ScalarAtom::Text => (value.is_string(), "string"),
                ScalarAtom::Number => (value.is_number(), "numeric (int or float)"),
                ScalarAtom::Bool => (value.is_boolean(), "boolean"),
                ScalarAtom::Any => (!value.is_object() && !value.is_array(), "any scalar"),
            };
            if !is_of_type {
                report(&format!("expected {expected}, got {}", describe(value, scalar)));
            }
        }
        Shape::Map(map) => {
            let Some(fields) = value.as_object() else {
                return report(&format!("expected map, got {}", describe(value, ScalarAtom::Any)));
            };
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                match map.field_type(key) {
                    Some(type_ref) => walk(type_ref, value, &path, duplicates, violations),
                    None => violations.push(format!("{path}: field not declared in schema")),
                }
            }
        }
        Shape::List(list) => {
            let Some(items) = value.as_array() else {
                return report(&format!("expected list, got {}", describe(value, ScalarAtom::Any)));
            };
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = if list.strategy == MergeStrategy::Atomic {
                    PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
                } else {
                    match element_of(list, item) {
                        Ok(element) => element,
                        Err(detail) => {
                            violations.push(format!("{path}: element {index}: {detail}"));
                            return;
                        }
                    }
                };
                let item_path = format!("{path}{element}");
                if !seen.insert(element.clone()) && duplicates == Duplicates::Rejected {
                    violations.push(format!("{path}: duplicate entries for key {element}"));
                }
                walk(&list.item, item, &item_path, duplicates, violations);
            }
        }
        Shape::NoValue => report("schema error: invalid atom"),
    }
}

/// Formats a value as in the real server's messages. If a number was expected, the result is the Go type of the value.
/// Otherwise, it contains the value.
fn describe(value: &Value, expected: ScalarAtom) -> String {
    match (expected, value) {
        (ScalarAtom::Number, Value::String(_)) => "string".to_owned(),
        (ScalarAtom::Number, Value::Bool(_)) => "bool".to_owned(),
        (ScalarAtom::Number, Value::Array(_)) => "[]interface {}".to_owned(),
        (ScalarAtom::Number, _) => "map[string]interface {}".to_owned(),
        (ScalarAtom::Text, value) => format!("&value.valueUnstructured{{Value:{value}}}"),
        (_, Value::String(text)) => format!("&{{{text}}}"),
        (_, value) => format!("&{{{value}}}"),
    }
}
