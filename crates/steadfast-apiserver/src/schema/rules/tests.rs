//! Verdicts of rules. The differential test compares further ones with a real API server.

use serde_json::{Value, json};

use crate::schema::Schema;

fn judged(schema: &Value, object: &Value, before: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let parsed = Schema::parse(schema).expect("a small schema");
    let verdict = parsed.judge(object, before);
    let causes = verdict.causes.iter().map(|cause| format!("{} {}: {}", cause.reason, cause.field, cause.message));
    (causes.collect(), verdict.warnings)
}

fn spec(schema: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": schema}})
}

#[test]
fn failed_rule_has_message_reason_and_path() {
    let schema = spec(&json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.min <= self.max", "messageExpression": "string(self.min) + ' is above the maximum'"},
            {"rule": "self.max < 10", "message": " too large ", "reason": "FieldValueForbidden", "fieldPath": ".max"},
            {"rule": "has(self.name)"},
        ],
        "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "name": {"type": "string"}},
    }));
    let (causes, _) = judged(&schema, &json!({"spec": {"min": 30, "max": 20}}), None);
    assert_eq!(
        causes,
        [
            "FieldValueInvalid spec: Invalid value: 30 is above the maximum",
            "FieldValueForbidden spec.max: Forbidden: too large",
            "FieldValueInvalid spec: Invalid value: failed rule: has(self.name)",
        ]
    );
    let (causes, _) = judged(&schema, &json!({"spec": {"min": 3, "max": 5, "name": "a"}}), None);
    assert!(causes.is_empty(), "{causes:?}");
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema = spec(&json!({"type": "object", "properties": {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "immutable"}]},
        "once": {"type": "integer", "x-kubernetes-validations": [
            {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true},
            {"rule": "oldSelf.hasValue() || self == 1", "optionalOldSelf": true, "message": "starts with 1"},
        ]},
    }}));
    let old = json!({"spec": {"fixed": "a", "once": 2}});
    assert_eq!(judged(&schema, &old, None).0, ["FieldValueInvalid spec.once: Invalid value: 2: starts with 1"]);
    let (causes, _) = judged(&schema, &json!({"spec": {"fixed": "b", "once": 1}}), Some(&old));
    assert_eq!(
        causes,
        [
            "FieldValueInvalid spec.fixed: Invalid value: \"b\": immutable",
            "FieldValueInvalid spec.once: Invalid value: 1: failed rule: !oldSelf.hasValue() || self >= oldSelf.value()",
        ]
    );
    assert!(judged(&schema, &old, Some(&old)).0.is_empty());
}

#[test]
fn unchanged_value_only_causes_a_warning() {
    let schema = spec(&json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10"}]}, "other": {"type": "string"},
    }}));
    let old = json!({"spec": {"n": 20}});
    let (causes, warnings) = judged(&schema, &json!({"spec": {"n": 20, "other": "x"}}), Some(&old));
    assert!(causes.is_empty(), "{causes:?}");
    assert_eq!(warnings, ["spec.n: Invalid value: 20: failed rule: self < 10"]);
    let (causes, _) = judged(&schema, &json!({"spec": {"n": 21}}), Some(&old));
    assert_eq!(causes.len(), 1);
}

#[test]
fn values_have_the_types_of_their_schema() {
    let schema = spec(&json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "self.ratio / 2.0 == 1.5"},
            {"rule": "self.at < timestamp('2026-01-01T00:00:00Z') && self.wait == duration('90s')"},
            {"rule": "self.__namespace__ == 'a' && self.x__dash__y == 1"},
            {"rule": "self.tags == ['b', 'a'] && 'a' in self.tags"},
            {"rule": "self.ports.all(p, p.port > 0) && self.ports[0].port == 1"},
            {"rule": "type(self.either) == int && self.either == 3"},
            {"rule": "self.data == b'abc'"},
            {"rule": "!has(self.unknown)"},
            {"rule": "self.sizes.all(k, self.sizes[k] > 0)"},
            {"rule": "sets.contains(self.tags, ['a']) && self.tags.indexOf('a') == 0 && [1, 2].sum() == 3"},
            {"rule": "'a1b2'.findAll('[0-9]') == ['1', '2'] && [1, 2, 2].isSorted()"},
        ],
        "properties": {
            "ratio": {"type": "number"}, "at": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"}, "namespace": {"type": "string"},
            "x-y": {"type": "integer"}, "either": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer"}}}},
            "data": {"type": "string", "format": "byte"}, "unknown": {"type": "string"},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
    }));
    let object = json!({"spec": {
        "ratio": 3, "at": "2025-01-01T00:00:00Z", "wait": "1m30s", "namespace": "a", "x-y": 1, "either": 3,
        "tags": ["a", "b"], "ports": [{"port": 1}], "data": "YWJj", "sizes": {"x": 1},
    }});
    assert_eq!(judged(&schema, &object, None).0, Vec::<String>::new());
}

#[test]
fn rules_see_only_the_object_name() {
    let mut schema = spec(&json!({"type": "object"}));
    schema["x-kubernetes-validations"] = json!([
        {"rule": "self.metadata.name == 'a' && self.kind == 'K'"}, {"rule": "!has(self.metadata.labels)", "message": "l"},
    ]);
    let object =
        json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {}});
    assert_eq!(judged(&schema, &object, None).0, Vec::<String>::new());
    let (causes, _) = judged(&schema, &json!({"kind": "K", "metadata": {"name": "b"}}), None);
    assert_eq!(
        causes,
        ["FieldValueInvalid <nil>: Invalid value: failed rule: self.metadata.name == 'a' && self.kind == 'K'"]
    );
}

#[test]
fn map_list_items_match_by_key() {
    let schema = spec(&json!({"type": "object", "properties": {"list": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {
            "k": {"type": "string"},
            "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "grows"}]},
        }},
    }}}));
    let old = json!({"spec": {"list": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}});
    let new = json!({"spec": {"list": [{"k": "b", "v": 4}, {"k": "a", "v": 2}, {"k": "c", "v": 0}]}});
    assert_eq!(judged(&schema, &new, Some(&old)).0, ["FieldValueInvalid spec.list[0].v: Invalid value: 4: grows"]);
}

#[test]
fn failed_evaluation_rejects_within_a_budget() {
    let schema = spec(&json!({
        "type": "object", "properties": {
            "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": "integer"}},
        },
        "x-kubernetes-validations": [
            {"rule": "self.n > 1"}, {"rule": "10 / 0 == self.list[9]", "message": "m"},
            {"rule": "self.list.all(a, self.list.all(b, self.list.all(c, a + b + c >= 0)))"}, {"rule": "false"},
        ],
    }));
    let list: Vec<i64> = (0..400).collect();
    let (causes, _) = judged(&schema, &json!({"spec": {"list": list}}), None);
    assert_eq!(
        causes,
        [
            "FieldValueInvalid spec: Invalid value: \"object\": no such key: n evaluating rule: self.n > 1",
            "FieldValueInvalid spec: Invalid value: \"object\": division by zero evaluating rule: m",
            "FieldValueInvalid spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no \
             further validation rules will be run due to call cost exceeds limit for rule: self.list.all(a, \
             self.list.all(b, self.list.all(c, a + b + c >= 0)))",
        ]
    );
}

#[test]
fn rules_with_unsupported_functions_are_skipped() {
    let schema = spec(&json!({"type": "object", "x-kubernetes-validations": [{"rule": "odd(self) && self.even(1)"}]}));
    assert!(judged(&schema, &json!({"spec": {}}), None).0.is_empty());
    let found = super::unsupported(&schema, "s");
    assert_eq!(found, [("s.properties[spec].x-kubernetes-validations[0].rule".to_owned(), "odd, even".to_owned())]);
}
