//! Selectors in objects, with `matchLabels` and `matchExpressions`.

use serde_json::Value;

/// Returns whether a selector matches the labels of an object. An absent selector matches no object.
pub(crate) fn matches(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.filter(|selector| selector.is_object()) else { return false };
    let label = |name: &str| object.pointer("/metadata/labels").and_then(|labels| labels.get(name));
    let mut labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    labels.all(|(name, value)| label(name) == Some(value))
        && expressions.all(|expression| {
            let value = label(expression["key"].as_str().unwrap_or_default());
            let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
            match expression["operator"].as_str().unwrap_or_default() {
                "In" => value.is_some_and(|value| values.contains(value)),
                // As in Kubernetes, `NotIn` also matches objects without the label.
                "NotIn" => value.is_none_or(|value| !values.contains(value)),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
