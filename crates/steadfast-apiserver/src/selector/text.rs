//! Formatting of objects' label selectors.

use serde_json::Value;

/// Formats a selector of `matchLabels` and `matchExpressions`, or plain labels of older kinds, in the order of its
/// keys. An empty selector results in an empty text.
pub(crate) fn text(selector: &Value) -> String {
    // Services and replication controllers have a plain map as selector.
    let is_plain = selector.get("matchLabels").is_none() && selector.get("matchExpressions").is_none();
    let labels = if is_plain { Some(selector) } else { selector.get("matchLabels") };
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let equal = labels.map(|(key, value)| (key.as_str(), format!("{key}={}", value.as_str().unwrap_or_default())));
    let mut requirements: Vec<(&str, String)> = equal.chain(expressions.map(requirement)).collect();
    requirements.sort_by_key(|(key, _)| *key);
    requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// Returns the key of an expression, and the expression as text.
fn requirement(expression: &Value) -> (&str, String) {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
    // client-go sorts the values, so that equal sets have equal texts.
    values.sort_unstable();
    let (key, values) = (text("key"), values.join(","));
    let text = match text("operator") {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "DoesNotExist" => format!("!{key}"),
        _ => key.to_owned(),
    };
    (key, text)
}
