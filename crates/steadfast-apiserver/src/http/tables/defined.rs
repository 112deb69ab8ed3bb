//! The columns that a definition gives the table of its objects.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::resources::PrinterColumn;
use crate::storage::metadata;

/// The definitions of the columns: the name comes first.
pub(in crate::http) fn definitions(columns: &[PrinterColumn]) -> Vec<Value> {
    let name = json!({
        "name": "Name", "type": "string", "format": "name", "description": "The name, unique within a namespace.",
        "priority": 0,
    });
    let own = columns.iter().map(|column| {
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
    [name].into_iter().chain(own).collect()
}

/// The cells of an object.
pub(in crate::http) fn cells(columns: &[PrinterColumn], object: &Value, clock: &Clock) -> Vec<Value> {
    let name = metadata::text(object, "name").into();
    [name].into_iter().chain(columns.iter().map(|column| cell(column, object, clock))).collect()
}

/// What is at the column's path, where it is of the column's type; a time is shown as its age.
fn cell(column: &PrinterColumn, object: &Value, clock: &Clock) -> Value {
    let found = found(object, &column.path);
    let Some(first) = found.first().copied().filter(|value| !value.is_null()) else { return Value::Null };
    match column.kind.as_str() {
        "integer" => match first {
            Value::Number(number) if number.is_f64() => json!(number.as_f64().unwrap_or_default() as i64),
            Value::Number(_) => first.clone(),
            _ => Value::Null,
        },
        "number" if first.is_number() => first.clone(),
        "boolean" if first.is_boolean() => first.clone(),
        "date" => first.as_str().map_or(Value::Null, |text| clock.age_of(text).into()),
        "string" => {
            let texts = found.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            texts.collect::<Vec<_>>().join(",").into()
        }
        _ => Value::Null,
    }
}

/// What a simple path finds: fields, places in lists, and `[*]` for all of them.
fn found<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps(path) {
        found = match step.as_str() {
            "*" => found.into_iter().flat_map(|value| value.as_array().into_iter().flatten()).collect(),
            step => found
                .into_iter()
                .filter_map(|value| match value {
                    Value::Array(items) => items.get(step.parse::<usize>().ok()?),
                    value => value.get(step),
                })
                .collect(),
        };
    }
    found
}

/// The steps of a path: names after dots, and what is in brackets; a dot that is escaped is part of a name.
fn steps(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut step = String::new();
    let mut letters = path.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => step.extend(letters.next()),
            '.' | '[' | ']' => {
                if !step.is_empty() {
                    steps.push(std::mem::take(&mut step));
                }
            }
            '\'' | '"' => {}
            letter => step.push(letter),
        }
    }
    if !step.is_empty() {
        steps.push(step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::found;

    #[test]
    fn paths_lead_through_lists_and_escaped_names() {
        let object = json!({"a": [{"b": 1}, {"b": 2}], "m": {"x.y/z": "t"}});
        assert_eq!(found(&object, ".a[*].b"), [&json!(1), &json!(2)]);
        assert_eq!(found(&object, ".a[1].b"), [&json!(2)]);
        assert_eq!(found(&object, r".m.x\.y/z"), [&json!("t")]);
        assert!(found(&object, ".a.c").is_empty());
    }
}
