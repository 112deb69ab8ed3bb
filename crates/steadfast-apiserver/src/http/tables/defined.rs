//! Table columns that a custom resource definition declares.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::jsonpath::JsonPathValue;
use crate::metadata;
use crate::resources::{PrinterColumn, ServedResource};

/// Returns the columns of tables in `version`, if the custom resource definition declares columns for this version.
pub(super) fn definitions(resource: &ServedResource, version: &str) -> Option<Vec<Value>> {
    resource.columns(version).map(with_name)
}

/// Returns the cells of an object for tables in `version`, if the custom resource definition declares columns for this
/// version.
pub(super) fn cells(resource: &ServedResource, version: &str, object: &Value, clock: &Clock) -> Option<Vec<Value>> {
    resource.columns(version).map(|columns| row(columns, object, clock))
}

/// Returns the definitions of the columns, starting with the name.
fn with_name(columns: &[PrinterColumn]) -> Vec<Value> {
    let name = json!({
        "name": "Name", "type": "string", "format": "name", "description": "The name, unique within a namespace.",
        "priority": 0,
    });
    let declared = columns.iter().map(|column| {
        let description = if column.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", column.path)
        } else {
            column.description.clone()
        };
        json!({
            "name": column.name, "type": column.kind, "format": column.format, "description": description,
            "priority": column.priority,
        })
    });
    [name].into_iter().chain(declared).collect()
}

/// Returns the cells of an object, starting with the name.
pub(super) fn row(columns: &[PrinterColumn], object: &Value, clock: &Clock) -> Vec<Value> {
    let name = metadata::text(object, "name").into();
    [name].into_iter().chain(columns.iter().map(|column| cell(column, object, clock))).collect()
}

/// Returns the first match of the column's path in the column's type. A time is formatted as its age.
fn cell(column: &PrinterColumn, object: &Value, clock: &Clock) -> Value {
    // A path without a match leaves the cell empty, while other cells remain.
    let Some(first) = column.parsed.first(object) else { return Value::Null };
    if column.kind == "string" {
        return first.text().into();
    }
    // If the path is a literal integer, a real server leaves the cell empty, even in a column of numbers.
    match (column.kind.as_str(), first) {
        // Go truncates a float in an integer column.
        ("integer", JsonPathValue::Json(Value::Number(number))) if number.is_f64() => {
            json!(number.as_f64().unwrap_or_default() as i64)
        }
        ("integer", JsonPathValue::Json(value @ Value::Number(_)))
        | ("boolean", JsonPathValue::Json(value @ Value::Bool(_))) => value.clone(),
        ("integer", JsonPathValue::Float(number)) => json!(number as i64),
        // Go converts a large integer, which loses its last digits.
        ("number", JsonPathValue::Json(Value::Number(number))) => whole_or_float(number.as_f64().unwrap_or_default()),
        ("number", JsonPathValue::Float(number)) => whole_or_float(number),
        ("boolean", JsonPathValue::Bool(flag)) => flag.into(),
        ("date", JsonPathValue::Json(Value::String(text))) => clock.age_of(text).into(),
        ("date", JsonPathValue::Text(text)) => clock.age_of(text).into(),
        _ => Value::Null,
    }
}

/// Returns the JSON of a float, without a fraction if it has none, as Go writes it.
fn whole_or_float(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < i64::MAX as f64 { json!(number as i64) } else { json!(number) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::row;
    use crate::clock::Clock;
    use crate::resources::Definition;

    fn shown(kind: &str, path: &str) -> serde_json::Value {
        let definition =
            Definition::parse(&json!({"group": "g", "versions": [{"name": "v1", "additionalPrinterColumns": [
                {"name": "C", "type": kind, "jsonPath": path},
            ]}]}));
        let columns = definition.version("v1").and_then(|version| version.columns.as_deref()).expect("columns");
        let object = json!({
            "metadata": {"name": "a"}, "a": [{"b": 1, "on": true}, {"b": 2.5}], "at": "2026-01-01T00:00:00Z",
            "large": 9_007_199_254_740_993_i64,
            "status": {"conditions": [{"type": "Lit", "status": "Unknown"}]},
        });
        let clock = Clock::starting_at("2026-01-01T01:00:00Z".parse::<Timestamp>().expect("a time"));
        row(columns, &object, &clock).remove(1)
    }

    #[test]
    fn column_with_filter_shows_the_selected_value() {
        assert_eq!(shown("string", r#".status.conditions[?(@.type=="Lit")].status"#), "Unknown");
    }

    #[test]
    fn string_column_shows_the_first_match() {
        assert_eq!(shown("string", ".a[*].b"), "1");
        assert_eq!(shown("string", ".a[1]"), "{\"b\":2.5}");
    }

    #[test]
    fn columns_show_values_of_their_type_only() {
        assert_eq!(shown("integer", ".a[-1].b"), 2);
        assert_eq!(shown("number", ".a[-1].b"), 2.5);
        assert_eq!(shown("number", ".a[0].b"), 1);
        assert_eq!(shown("number", ".large"), 9_007_199_254_740_992_i64);
        assert_eq!(shown("integer", ".large"), 9_007_199_254_740_993_i64);
        assert_eq!(shown("boolean", ".a[0].on"), true);
        assert_eq!(shown("boolean", ".a[0].b"), json!(null));
        assert_eq!(shown("integer", ".a[7].b"), json!(null));
        assert_eq!(shown("date", ".at"), "60m");
        assert_eq!(shown("date", ".status.conditions[0].status"), "<invalid>");
    }

    #[test]
    fn columns_end_before_the_first_invalid_path() {
        let definition =
            Definition::parse(&json!({"group": "g", "versions": [{"name": "v1", "additionalPrinterColumns": [
                {"name": "A", "type": "string", "jsonPath": ".a"}, {"name": "B", "type": "string", "jsonPath": ".b["},
                {"name": "C", "type": "string", "jsonPath": ".c"},
            ]}]}));
        let columns = definition.version("v1").and_then(|version| version.columns.as_deref()).expect("columns");
        assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["A"]);
    }
}
