//! Random schemas, and values that are valid or nearly valid for them.

use serde_json::{Map, Value, json};

use crate::differential::chance::SeededRng;

/// Nesting depth of schemas.
const DEPTH: usize = 3;
/// Names of fields: few, so that schemas and values overlap.
const FIELDS: &[&str] = &["a", "b", "c", "d"];

/// Returns a schema for a part of an object, such that a real server accepts a definition with it.
pub fn schema(chance: &mut SeededRng) -> Value {
    object(chance, DEPTH)
}

fn object(chance: &mut SeededRng, depth: usize) -> Value {
    let fields: Vec<&str> = FIELDS.iter().copied().filter(|_| chance.percent(75)).collect();
    let properties: Map<String, Value> = fields.iter().map(|&name| (name.to_owned(), any(chance, depth - 1))).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(name) = fields.first().filter(|_| chance.percent(25)) {
        schema["required"] = json!([name]);
    }
    match chance.below(20) {
        0 => schema["x-kubernetes-preserve-unknown-fields"] = true.into(),
        1 => schema["maxProperties"] = 2.into(),
        2 => schema["minProperties"] = 1.into(),
        3 if fields.len() > 1 => {
            schema["oneOf"] = json!([{"required": [fields[0]]}, {"required": [fields[1]]}]);
        }
        4 if fields.len() > 1 => {
            schema["anyOf"] = json!([{"required": [fields[0]]}, {"required": [fields[1]]}]);
        }
        5 if !fields.is_empty() => schema["not"] = json!({"required": [fields[0]]}),
        6 => schema["x-kubernetes-embedded-resource"] = (depth < DEPTH && !fields.is_empty()).into(),
        _ => {}
    }
    schema
}

fn any(chance: &mut SeededRng, depth: usize) -> Value {
    let mut schema = match chance.below(if depth == 0 { 9 } else { 16 }) {
        0 | 1 => text(chance),
        2 | 3 => whole(chance),
        4 => json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": chance.percent(50), "maximum": 9}),
        5 => json!({"type": "boolean"}),
        6 => json!({"x-kubernetes-int-or-string": true}),
        7 => json!({"type": "string", "format": chance.pick(&["date", "date-time", "ipv4", "uuid", "byte", "odd"])}),
        8 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        9..12 => object(chance, depth),
        12 => json!({"type": "object", "additionalProperties": any(chance, depth - 1), "maxProperties": 3}),
        13 => json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        14 => json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "string"}, "v": whole(chance), "w": {"type": "string", "default": "x"},
            }},
        }),
        _ => json!({"type": "array", "items": any(chance, depth - 1), "minItems": 1, "maxItems": 2}),
    };
    if chance.percent(15) && schema.get("x-kubernetes-int-or-string").is_none() && schema.get("default").is_none() {
        schema["nullable"] = true.into();
    }
    schema
}

fn text(chance: &mut SeededRng) -> Value {
    match chance.below(6) {
        0 => json!({"type": "string", "enum": ["one", "two"]}),
        1 => json!({"type": "string", "minLength": 2, "maxLength": 4}),
        2 => json!({"type": "string", "pattern": "^[a-z]+$"}),
        3 => json!({"type": "string", "enum": ["one", "two"], "default": "one"}),
        4 => json!({"type": "string", "default": "given"}),
        _ => json!({"type": "string"}),
    }
}

fn whole(chance: &mut SeededRng) -> Value {
    match chance.below(6) {
        0 => json!({"type": "integer", "minimum": 1, "maximum": 5}),
        1 => json!({"type": "integer", "multipleOf": 2}),
        2 => json!({"type": "integer", "format": "int32"}),
        3 => json!({"type": "integer", "default": 3}),
        4 => json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 4}]}),
        _ => json!({"type": "integer"}),
    }
}

/// Returns a value for a schema. In `wrong` percent of the positions, it does not match.
pub fn value(chance: &mut SeededRng, schema: &Value, wrong: usize) -> Value {
    if chance.percent(wrong) {
        return match chance.below(9) {
            0 => Value::Null,
            1 => json!(2.5),
            2 => json!(3),
            3 => json!("THREE"),
            4 => json!([1, "x"]),
            5 => json!({"odd": {"a": 1}}),
            6 => json!(true),
            7 => json!(5_000_000_000_i64),
            _ => json!(2.0),
        };
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return values[chance.below(values.len())].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => match schema["format"].as_str().unwrap_or_default() {
            "date" => "2024-02-29".into(),
            "date-time" => "2024-01-01T00:00:00Z".into(),
            "ipv4" => "10.0.0.1".into(),
            "uuid" => "123e4567-e89b-12d3-a456-426614174000".into(),
            "byte" => "YWJj".into(),
            _ => chance.pick(&["ab", "abc", "abcd"]).into(),
        },
        "integer" => chance.pick(&[2, 4]).into(),
        "number" => json!(chance.pick(&[1.5, 2.0, 7.25])),
        "boolean" => chance.percent(50).into(),
        "array" => {
            let items: Vec<Value> = (0..=chance.below(3)).map(|_| value(chance, &schema["items"], wrong)).collect();
            items.into()
        }
        "object" => fields(chance, schema, wrong),
        _ => json!(chance.below(3)),
    }
}

fn fields(chance: &mut SeededRng, schema: &Value, wrong: usize) -> Value {
    let mut made = Map::new();
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    for (name, property) in properties {
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
        let often = match name.as_str() {
            _ if required => 100 - wrong,
            // Complex fields and fields with rules are rare, so that most scripts succeed.
            "ruled" => 12,
            "marks" => 25,
            _ => 60,
        };
        if chance.percent(often) {
            made.insert(name.clone(), value(chance, property, wrong));
        }
    }
    if let Some(additional) = schema.get("additionalProperties") {
        for name in ["x", "y"].into_iter().take(1 + chance.below(2)) {
            made.insert(name.to_owned(), value(chance, additional, wrong));
        }
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) && chance.percent(100 - wrong) {
        made.insert("kind".to_owned(), "Inner".into());
        made.insert("apiVersion".to_owned(), "v1".into());
    }
    if chance.percent(wrong * 2) {
        made.insert("unknown".to_owned(), json!({"deep": [1]}));
    }
    made.into()
}
