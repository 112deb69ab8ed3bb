//! Results of CEL validation rules. The differential test compares further results with a real API server.

use serde_json::{Value, json};

use crate::schema::Schema;

fn evaluate(schema: &Value, object: &Value, before: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let parsed = Schema::parse(schema).expect("a small schema");
    let verdict = parsed.evaluate_rules(object, before);
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
    let (causes, _) = evaluate(&schema, &json!({"spec": {"min": 30, "max": 20}}), None);
    assert_eq!(
        causes,
        [
            "FieldValueInvalid spec: Invalid value: 30 is above the maximum",
            "FieldValueForbidden spec.max: Forbidden: too large",
            "FieldValueInvalid spec: Invalid value: failed rule: has(self.name)",
        ]
    );
    let (causes, _) = evaluate(&schema, &json!({"spec": {"min": 3, "max": 5, "name": "a"}}), None);
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
    assert_eq!(evaluate(&schema, &old, None).0, ["FieldValueInvalid spec.once: Invalid value: 2: starts with 1"]);
    let (causes, _) = evaluate(&schema, &json!({"spec": {"fixed": "b", "once": 1}}), Some(&old));
    assert_eq!(
        causes,
        [
            "FieldValueInvalid spec.fixed: Invalid value: \"b\": immutable",
            "FieldValueInvalid spec.once: Invalid value: 1: failed rule: !oldSelf.hasValue() || self >= oldSelf.value()",
        ]
    );
    assert!(evaluate(&schema, &old, Some(&old)).0.is_empty());
}

#[test]
fn unchanged_value_only_causes_a_warning() {
    let schema = spec(&json!({"type": "object", "properties": {
        "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10"}]}, "other": {"type": "string"},
    }}));
    let old = json!({"spec": {"n": 20}});
    let (causes, warnings) = evaluate(&schema, &json!({"spec": {"n": 20, "other": "x"}}), Some(&old));
    assert!(causes.is_empty(), "{causes:?}");
    assert_eq!(warnings, ["spec.n: Invalid value: 20: failed rule: self < 10"]);
    let (causes, _) = evaluate(&schema, &json!({"spec": {"n": 21}}), Some(&old));
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
    assert_eq!(evaluate(&schema, &object, None).0, Vec::<String>::new());
}

#[test]
fn rules_see_only_the_object_name() {
    let mut schema = spec(&json!({"type": "object"}));
    schema["x-kubernetes-validations"] = json!([
        {"rule": "self.metadata.name == 'a' && self.kind == 'K'"}, {"rule": "!has(self.metadata.labels)", "message": "l"},
    ]);
    let object =
        json!({"kind": "K", "apiVersion": "g/v1", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {}});
    assert_eq!(evaluate(&schema, &object, None).0, Vec::<String>::new());
    let (causes, _) = evaluate(&schema, &json!({"kind": "K", "metadata": {"name": "b"}}), None);
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
    assert_eq!(evaluate(&schema, &new, Some(&old)).0, ["FieldValueInvalid spec.list[0].v: Invalid value: 4: grows"]);
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
    let (causes, _) = evaluate(&schema, &json!({"spec": {"list": list}}), None);
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
    assert!(evaluate(&schema, &json!({"spec": {}}), None).0.is_empty());
    let found = super::unsupported(&schema, "s");
    assert_eq!(found, [("s.properties[spec].x-kubernetes-validations[0].rule".to_owned(), "odd, even".to_owned())]);
}

/// Verdicts of a real server on rules over [`CHECKED_PROPERTIES`].
const SERVER_VERDICTS: &str = include_str!("checks.txt");

/// Properties of the object that the rules of [`SERVER_VERDICTS`] read.
const CHECKED_PROPERTIES: &str = include_str!("checked.json");

fn type_errors(schema: &Value) -> Vec<String> {
    let mut causes = Vec::new();
    super::violations(schema, "s", &mut causes);
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
fn type_errors_equal_those_of_a_real_server() {
    let properties: Value = serde_json::from_str(CHECKED_PROPERTIES).expect("valid JSON");
    let mut differing = Vec::new();
    for line in SERVER_VERDICTS.lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('\t');
        let (rule, expected) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>());
        let rules = json!([{"rule": rule}]);
        let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        let errors = type_errors(&spec(&schema));
        let detail = errors.first().map_or("", |error| error.rsplit_once("null}: ").map_or("", |(_, detail)| detail));
        let lines = detail.lines().filter(|line| !line.starts_with(" | "));
        let found: Vec<_> =
            lines.map(|line| line.split_once("<input>:1:").map_or(line, |(_, located)| located)).collect();
        if found != expected {
            differing.push(format!("{rule}\n    expected {expected:?}\n    found    {found:?}"));
        }
    }
    assert!(differing.is_empty(), "{} rules differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn type_errors_name_line_and_expression() {
    let schema = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "self == 'é' &&\n  self.size() == 'x'", "message": "m", "messageExpression": "self.unknown"},
        {"rule": "true", "messageExpression": "1"},
        {"rule": "true", "messageExpression": "self.a"},
        {"rule": "self.metadata.name == 'x'"},
    ]});
    let errors: Vec<String> = type_errors(&spec(&schema))
        .into_iter()
        .map(|error| {
            error.split_once(": Invalid value: ").map_or_else(String::new, |(at, error)| {
                let detail = error.rfind("}: ").map_or(error, |end| &error[end + 3..]);
                format!("{}: {detail}", at.rsplit_once("validations").map_or("", |(_, place)| place))
            })
        })
        .collect();
    assert_eq!(
        errors,
        [
            "[0].rule: compilation failed: ERROR: <input>:2:15: found no matching overload for '_==_' applied to '(int, \
             string)'\n |   self.size() == 'x'\n | ..............^",
            "[1].messageExpression: messageExpression must evaluate to a string",
            "[2].messageExpression: messageExpression compilation failed: ERROR: <input>:1:5: type 'string' does not \
             support field selection\n | self.a\n | ....^",
            "[3].rule: compilation failed: ERROR: <input>:1:5: type 'string' does not support field selection\n | \
             self.metadata.name == 'x'\n | ....^",
        ]
    );
}

#[test]
fn rules_of_items_without_counterparts_must_not_read_old_values() {
    let rules = json!([{"rule": "self == oldSelf"}]);
    let items = json!({"type": "string", "x-kubernetes-validations": rules});
    let list = |kind: &str| spec(&json!({"type": "array", "items": items, "x-kubernetes-list-type": kind}));
    let expected = "s.properties[spec].items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf \
                    cannot be used on the uncorrelatable portion of the schema within s.properties[spec]";
    for kind in ["atomic", "set"] {
        assert_eq!(type_errors(&list(kind)), [expected], "{kind}");
    }
    assert!(type_errors(&list("map")).is_empty());
    let unused = json!({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": true}]});
    assert_eq!(
        type_errors(&spec(&unused)),
        [
            "s.properties[spec].x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf \
          is not used in rule"
        ]
    );
}

#[test]
fn numbers_with_a_fraction_are_not_integers() {
    let properties = json!({
        "either": {"x-kubernetes-int-or-string": true}, "n": {"type": "integer"}, "r": {"type": "number"},
        "list": {"type": "array", "items": {"x-kubernetes-int-or-string": true}},
    });
    let either = "invalid data, expected XIntOrString value to be either a string or integer";
    for (rule, expected) in [
        ("self.either == 2", Some(either)),
        ("type(self.either) == int", Some(either)),
        ("has(self.either)", Some(either)),
        ("self.?either.hasValue()", Some(either)),
        ("self.either == 3 || true", None),
        ("self.n == 2", Some("invalid data, expected int, got float64")),
        ("self.r == 2.0", None),
        ("self.list.size() == 1 && self.list.all(x, true)", None),
        ("self.list[0] == 2", Some(either)),
        ("self.list.all(x, x == 2)", Some(either)),
        ("2 in self.list", Some(either)),
        ("self == self", Some(either)),
        ("self.list == [2]", Some(either)),
    ] {
        let rules = json!([{"rule": rule}]);
        let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        let object: Value =
            serde_json::from_str(r#"{"spec": {"either": 2.0, "n": 2.0, "r": 2.0, "list": [2.0]}}"#).expect("JSON");
        let expected = expected.map(|detail| {
            format!("FieldValueInvalid spec: Invalid value: \"object\": {detail} evaluating rule: {rule}")
        });
        assert_eq!(evaluate(&spec(&schema), &object, None).0, expected.into_iter().collect::<Vec<_>>(), "{rule}");
    }
}

#[test]
fn rules_call_the_functions_of_kubernetes() {
    let schema = spec(&json!({
        "type": "object",
        "x-kubernetes-validations": [
            {"rule": "quantity(self.memory).isLessThan(quantity('2Gi'))", "message": "too much memory"},
            {"rule": "isURL(self.url) && url(self.url).getScheme() == 'https'", "message": "no https"},
            {"rule": "cidr('10.0.0.0/8').containsIP(ip(self.address))", "message": "outside of the network"},
            {"rule": "semver(self.version).isGreaterThan(semver('1.2.3'))", "message": "too old"},
            {"rule": "!format.dns1123Label().validate(self.name).hasValue()", "messageExpression":
                "'%d: %s'.format([1, format.dns1123Label().validate(self.name).value()[0]])"},
        ],
        "properties": {
            "memory": {"type": "string"}, "url": {"type": "string"}, "address": {"type": "string"},
            "version": {"type": "string"}, "name": {"type": "string"},
        },
    }));
    assert_eq!(type_errors(&schema), Vec::<String>::new());
    let valid = json!({"spec": {
        "memory": "1500Mi", "url": "https://a/b", "address": "10.1.2.3", "version": "1.10.0", "name": "a-b",
    }});
    assert_eq!(evaluate(&schema, &valid, None).0, Vec::<String>::new());
    let invalid = json!({"spec": {
        "memory": "2Gi", "url": "http://a/b", "address": "11.1.2.3", "version": "1.2.3-rc.1", "name": "a.b",
    }});
    let (causes, _) = evaluate(&schema, &invalid, None);
    let messages: Vec<_> =
        causes.iter().map(|cause| cause.trim_start_matches("FieldValueInvalid spec: Invalid value: ")).collect();
    assert_eq!(
        messages,
        ["too much memory", "no https", "outside of the network", "too old", "1: must not contain dots"]
    );
}

#[test]
fn invalid_rule_is_shown_with_all_fields() {
    let rules = json!([{"rule": "self < 1", "optionalOldSelf": false}]);
    let schema = spec(&json!({"type": "string", "x-kubernetes-validations": rules}));
    let errors = type_errors(&schema);
    let expected = r#"{"Rule":"self \u003c 1","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":false}: "#;
    assert!(errors.first().is_some_and(|error| error.contains(expected)), "{errors:?}");
}

#[test]
fn valid_rules_pass_the_type_check() {
    let text = json!({"type": "string", "maxLength": 9});
    let item = json!({"type": "object", "properties": {
        "name": text, "port": {"type": "integer"}, "kind": text, "group": text, "weight": {"type": "number"},
        "matches": {"type": "array", "items": {"type": "object", "properties": {"type": text, "value": text}}},
    }});
    let properties = json!({
        "list": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"}, "word": text, "n": {"type": "integer"},
        "labels": {"type": "object", "additionalProperties": text}, "either": {"x-kubernetes-int-or-string": true},
        "at": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "any": {"x-kubernetes-preserve-unknown-fields": true}, "flag": {"type": "boolean"}, "x-y": {"type": "integer"},
        "ratio": {"type": "number"}, "one": item, "namespace": text, "old": {"type": "string", "nullable": true},
    });
    for rule in [
        "self.list.all(l1, self.list.exists_one(l2, l1.name == l2.name && (has(l1.port) ? l1.port == l2.port : true)))",
        "self.list.filter(x, has(x.port) && x.port > 80).map(x, x.name).all(n, n.startsWith('a'))",
        "self.list.map(x, x.port > 1, x.port + 1).sum() < 10 && [1, 2, self.n].max() == self.n",
        "!has(oldSelf.word) || (has(self.word) && self.word == oldSelf.word)",
        "self.either == '10%' || type(self.either) == int && self.either > 2 && int(self.either) < 5",
        "self.set.all(s, s in ['a', 'b']) && sets.contains(self.set, ['a']) && self.set == ['a'] + self.set",
        "self.labels.all(k, k.contains('/') && self.labels[k].size() < 9) && 'a' in self.labels && self.labels.a == 'x'",
        "self.labels.transformMap(k, v, v + k).size() == 1 && self.list.all(i, x, i < 10 && x.name != '')",
        "self.at + self.wait > timestamp('2026-01-01T00:00:00Z') && self.wait < duration('1h')",
        "(has(self.flag) ? 1 : 0) + (has(self.one) ? 1 : 0) == 1 && [has(self.flag), has(self.n)].exists_one(x, x)",
        "self.?one.?name.orValue('x') == 'x' && self.list[?0].?name.hasValue() && self.labels[?'a'].orValue('') == ''",
        "self.either.spec.x == 1 && self.either.y.exists(z, z == 'a') && dyn(self.n) == 'x' && self.either + 1 > 2",
        "self.__namespace__ == 'a' && self.x__dash__y % 2 == 0 && double(self.n) * 2.0 >= self.ratio && self.n < 1.5",
        "self.word.matches('^[a-z]+$') && self.word.split(',').size() > 1 && self.word.find('[0-9]+') == '' && self.word > 'a'",
        "quantity(self.word).add(quantity('1')).add(2).isGreaterThan(quantity('1Ki')) && sign(quantity('1')) == 1",
        "url(self.word).getQuery()['a'][0] == 'b' && ip(self.word).family() == 4 && cidr(self.word).containsIP(ip('::1'))",
        "format.named(self.word).value().validate('a').orValue([]).size() == 0 && semver(self.word, true).major() > 0",
        "self.list.map(x, x.matches).flatten().size() == 0 || self.set.isSorted() || self.set.join(',') == ''",
        "self == oldSelf && self.one == oldSelf.one && self.list == oldSelf.list && (self.one == null || true)",
        "optional.of(self.n).optMap(v, v + 1).value() == 2 && {'a': 1}.a == 1 && {1: 'x'}[1] == 'x' && [] == self.list",
        "'%d %s'.format([self.n, self.word]) == '' && self.set.indexOf('a') == 0 && self.word.indexOf('a', 1) == 0",
        "type(self.n) == int && type(self.at) == google.protobuf.Timestamp && self.n in [1, 2] && self.word in {'a': 1}",
        "self.at.getFullYear() > 2020 && self.at.getHours('UTC') == 1 && self.wait.getSeconds() > 1 && -self.n < 0 && !self.flag",
    ] {
        let rules = json!([{"rule": rule}]);
        let schema = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        assert_eq!(type_errors(&spec(&schema)), Vec::<String>::new(), "{rule}");
    }
}
