use serde_json::{Value, json};

use super::super::Schema;

fn violations_of(schema: &Value, value: &Value, before: Option<&Value>) -> Vec<String> {
    let schema = Schema::parse(schema).expect("a schema");
    let causes = schema.validate("", value, before);
    causes.into_iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message)).collect()
}

fn spec_schema(spec: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

#[test]
fn wrong_types_are_reported() {
    let spec = spec_schema(&json!({"type": "object", "properties": {"size": {"type": "integer"}}}));
    assert_eq!(
        violations_of(&spec, &json!({"spec": {"size": "x"}}), None),
        ["FieldValueTypeInvalid spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \
          \"string\""]
    );
    assert_eq!(violations_of(&spec, &json!({"spec": {"size": 2.0}}), None), Vec::<String>::new());
    assert_eq!(
        violations_of(&spec, &json!({"spec": {"size": 2.5}}), None),
        [
            "FieldValueTypeInvalid spec.size: Invalid value: \"number\": spec.size in body must be of type integer: \
             \"number\"",
            "FieldValueInvalid <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in \
             spec.size",
        ]
    );
    assert_eq!(
        violations_of(&spec, &json!({"spec": null}), None),
        ["FieldValueTypeInvalid spec: Invalid value: \"null\": spec in body must be of type object: \"null\""]
    );
}

#[test]
fn int_or_string_accepts_both() {
    let spec = spec_schema(&json!({"x-kubernetes-int-or-string": true}));
    assert!(
        violations_of(&spec, &json!({"spec": 1}), None).is_empty()
            && violations_of(&spec, &json!({"spec": "1"}), None).is_empty()
    );
    assert_eq!(
        violations_of(&spec, &json!({"spec": true}), None),
        ["FieldValueTypeInvalid spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \
          \"boolean\""]
    );
}

#[test]
fn violated_bounds_report_the_value() {
    let spec = spec_schema(&json!({"type": "object", "required": ["a", "name"], "maxProperties": 1, "properties": {
        "name": {"type": "string", "maxLength": 3, "pattern": "^a"}, "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "integer", "minimum": 2, "maximum": 4, "exclusiveMaximum": true, "multipleOf": 3},
        "parts": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string"}},
    }}));
    let value = json!({"spec": {"name": "long", "color": "green", "size": 1, "parts": ["a"]}});
    assert_eq!(
        violations_of(&spec, &value, None),
        [
            "FieldValueTooMany spec: Too many: 4: must have at most 1 item",
            "FieldValueNotSupported spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
            "FieldValueTooLong spec.name: Too long: may not be more than 3 bytes",
            "FieldValueInvalid spec.parts: Invalid value: 1: spec.parts in body should have at least 2 items",
            "FieldValueInvalid spec.size: Invalid value: 1: spec.size in body should be a multiple of 3",
            "FieldValueInvalid spec.size: Invalid value: 1: spec.size in body should be greater than or equal to 2",
            "FieldValueRequired spec.a: Required value",
        ]
    );
    assert_eq!(
        violations_of(&spec, &json!({"spec": {"a": 1, "name": "b", "size": 4, "parts": [1, 2, 3]}}), None)[1..3],
        [
            "FieldValueInvalid spec.name: Invalid value: \"b\": spec.name in body should match '^a'",
            "FieldValueTypeInvalid spec.parts[0]: Invalid value: \"integer\": spec.parts[0] in body must be of type \
             string: \"integer\"",
        ]
    );
}

#[test]
fn best_alternative_is_reported() {
    let spec =
        spec_schema(&json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
                               "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}));
    assert_eq!(
        violations_of(&spec, &json!({"spec": {"a": 1, "b": "x"}}), None),
        [
            "FieldValueInvalid <nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 \
          valid alternatives"
        ]
    );
    assert_eq!(
        violations_of(&spec, &json!({"spec": {}}), None),
        [
            "FieldValueInvalid <nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found \
             none valid",
            "FieldValueRequired spec.a: Required value",
        ]
    );
}

#[test]
fn unchanged_values_are_not_rejected() {
    let spec = spec_schema(&json!({"type": "object", "properties": {
        "size": {"type": "integer", "maximum": 3}, "other": {"type": "string"},
        "list": {"type": "array", "items": {"type": "integer", "maximum": 3}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"},
                                                           "v": {"type": "integer", "maximum": 3}}}},
    }}));
    let old = json!({"spec": {"size": 9, "list": [9], "map": [{"k": "a", "v": 9}]}});
    let new = json!({"spec": {"size": 9, "list": [9], "map": [{"k": "b", "v": 1}, {"k": "a", "v": 9}], "other": "x"}});
    assert_eq!(violations_of(&spec, &new, Some(&old)), Vec::<String>::new());
    assert_eq!(violations_of(&spec, &json!({"spec": {"list": [9, 1]}}), Some(&old)).len(), 1);
    assert_eq!(violations_of(&spec, &new, None).len(), 3);
}

#[test]
fn path_of_a_part_precedes_its_own() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"phase": {"type": "string"}}}));
    let causes = schema.expect("a schema").validate("status", &json!({"phase": 1}), None);
    assert_eq!(causes[0].field, "status.phase");
    assert_eq!(causes[0].message, "Invalid value: \"integer\": phase in body must be of type string: \"integer\"");
}
