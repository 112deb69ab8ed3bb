//! Random schemas, and values that are valid or nearly valid for them.

use serde_json::{Map, Value, json};

use crate::differential::rng::SeededRng;

/// Nesting depth of schemas.
const DEPTH: usize = 3;
/// Names of fields: few, so that schemas and values overlap.
const FIELDS: &[&str] = &["a", "b", "c", "d"];

/// Returns a schema for a part of an object, such that a real server accepts a definition with it.
pub fn schema(rng: &mut SeededRng) -> Value {
    object_schema(rng, DEPTH)
}

fn object_schema(rng: &mut SeededRng, depth: usize) -> Value {
    let random_fields: Vec<&str> = FIELDS.iter().copied().filter(|_| rng.percent(75)).collect();
    let properties: Map<String, Value> =
        random_fields.iter().map(|&name| (name.to_owned(), random_schema(rng, depth - 1))).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if let Some(name) = random_fields.first().filter(|_| rng.percent(25)) {
        schema["required"] = json!([name]);
    }
    match rng.below(20) {
        0 => schema["x-kubernetes-preserve-unknown-fields"] = true.into(),
        1 => schema["maxProperties"] = 2.into(),
        2 => schema["minProperties"] = 1.into(),
        3 if random_fields.len() > 1 => {
            schema["oneOf"] = json!([{"required": [random_fields[0]]}, {"required": [random_fields[1]]}]);
        }
        4 if random_fields.len() > 1 => {
            schema["anyOf"] = json!([{"required": [random_fields[0]]}, {"required": [random_fields[1]]}]);
        }
        5 if !random_fields.is_empty() => schema["not"] = json!({"required": [random_fields[0]]}),
        6 => schema["x-kubernetes-embedded-resource"] = (depth < DEPTH && !random_fields.is_empty()).into(),
        _ => {}
    }
    schema
}

fn random_schema(rng: &mut SeededRng, depth: usize) -> Value {
    let mut schema = match rng.below(if depth == 0 { 9 } else { 16 }) {
        0 | 1 => text_schema(rng),
        2 | 3 => integer_schema(rng),
        4 => json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": rng.percent(50), "maximum": 9}),
        5 => json!({"type": "boolean"}),
        6 => json!({"x-kubernetes-int-or-string": true}),
        7 => json!({"type": "string", "format": rng.pick(&["date", "date-time", "ipv4", "uuid", "byte", "odd"])}),
        8 => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        9..12 => object_schema(rng, depth),
        12 => json!({"type": "object", "additionalProperties": random_schema(rng, depth - 1), "maxProperties": 3}),
        13 => json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        14 => json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {
                "k": {"type": "string"}, "v": integer_schema(rng), "w": {"type": "string", "default": "x"},
            }},
        }),
        _ => json!({"type": "array", "items": random_schema(rng, depth - 1), "minItems": 1, "maxItems": 2}),
    };
    if rng.percent(15) && schema.get("x-kubernetes-int-or-string").is_none() && schema.get("default").is_none() {
        schema["nullable"] = true.into();
    }
    schema
}

fn text_schema(rng: &mut SeededRng) -> Value {
    match rng.below(6) {
        0 => json!({"type": "string", "enum": ["one", "two"]}),
        1 => json!({"type": "string", "minLength": 2, "maxLength": 4}),
        2 => json!({"type": "string", "pattern": "^[a-z]+$"}),
        3 => json!({"type": "string", "enum": ["one", "two"], "default": "one"}),
        4 => json!({"type": "string", "default": "given"}),
        _ => json!({"type": "string"}),
    }
}

fn integer_schema(rng: &mut SeededRng) -> Value {
    match rng.below(6) {
        0 => json!({"type": "integer", "minimum": 1, "maximum": 5}),
        1 => json!({"type": "integer", "multipleOf": 2}),
        2 => json!({"type": "integer", "format": "int32"}),
        3 => json!({"type": "integer", "default": 3}),
        4 => json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 4}]}),
        _ => json!({"type": "integer"}),
    }
}

/// Returns a value for a schema. In `wrong_percent` percent of the positions, it does not match.
pub fn value(rng: &mut SeededRng, schema: &Value, wrong_percent: usize) -> Value {
    if rng.percent(wrong_percent) {
        return match rng.below(9) {
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
        return values[rng.below(values.len())].clone();
    }
    match schema["type"].as_str().unwrap_or_default() {
        "string" => match schema["format"].as_str().unwrap_or_default() {
            "date" => "2024-02-29".into(),
            "date-time" => "2024-01-01T00:00:00Z".into(),
            "ipv4" => "10.0.0.1".into(),
            "uuid" => "123e4567-e89b-12d3-a456-426614174000".into(),
            "byte" => "YWJj".into(),
            _ => rng.pick(&["ab", "abc", "abcd"]).into(),
        },
        "integer" => rng.pick(&[2, 4]).into(),
        "number" => json!(rng.pick(&[1.5, 2.0, 7.25])),
        "boolean" => rng.percent(50).into(),
        "array" => {
            let items: Vec<Value> = (0..=rng.below(3)).map(|_| value(rng, &schema["items"], wrong_percent)).collect();
            items.into()
        }
        "object" => random_fields(rng, schema, wrong_percent),
        _ => json!(rng.below(3)),
    }
}

fn random_fields(rng: &mut SeededRng, schema: &Value, wrong_percent: usize) -> Value {
    let mut values = Map::new();
    let nothing = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
    for (name, property) in properties {
        let is_required =
            schema["required"].as_array().is_some_and(|names| names.iter().any(|required_name| required_name == name));
        let probability = match name.as_str() {
            _ if is_required => 100 - wrong_percent,
            // Complex fields and fields with rules are rare, so that most scripts succeed.
            "ruled" => 12,
            "marks" => 25,
            _ => 60,
        };
        if rng.percent(probability) {
            values.insert(name.clone(), value(rng, property, wrong_percent));
        }
    }
    if let Some(additional) = schema.get("additionalProperties") {
        for name in ["x", "y"].into_iter().take(1 + rng.below(2)) {
            values.insert(name.to_owned(), value(rng, additional, wrong_percent));
        }
    }
    if schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) && rng.percent(100 - wrong_percent) {
        values.insert("kind".to_owned(), "Inner".into());
        values.insert("apiVersion".to_owned(), "v1".into());
    }
    if rng.percent(wrong_percent * 2) {
        values.insert("unknown".to_owned(), json!({"deep": [1]}));
    }
    values.into()
}
