//! Fields that are null and count as absent.

use serde_json::{Value as Json, json};
use steadfast_cel::{Budget, CelErrorKind, CelValue, Context, Program, to_json};

fn evaluate(text: &str) -> Result<Json, CelErrorKind> {
    let object = json!({"endpoints": null, "spec": {"x": null, "y": 1}, "list": [null, {"z": null}]});
    let program = Program::compile(text).expect(text);
    let mut context = Context::new();
    context.variable("object", CelValue::without_nulls(&object));
    context.variable("old", CelValue::Null);
    let mut budget = Budget::new(10_000);
    let outcome = program.evaluate(&context, &mut budget).map_err(|error| error.kind)?;
    to_json(&outcome.value, &mut budget, 10_000)
}

#[test]
fn nested_null_fields_count_as_absent() {
    for (text, expected) in [
        ("has(object.endpoints) || has(object.spec.x) || has(object.list[1].z)", json!(false)),
        ("object.?endpoints.orValue([]).map(e, e)", json!([])),
        ("object.?endpoints.map(e, e).hasValue()", json!(null)),
        ("object.?spec.x.orValue(5)", json!(5)),
        ("object.spec[?'x'].orValue(5)", json!(5)),
        ("object.?endpoints.x.y.hasValue()", json!(false)),
        ("'x' in object.spec || 'endpoints' in object", json!(false)),
        ("object.spec.map(k, object.spec[k])", json!([1])),
        ("size(object.spec)", json!(1)),
        ("object.spec == {'y': 1}", json!(true)),
        ("object.spec", json!({"x": null, "y": 1})),
    ] {
        if text.contains("map(e, e).hasValue") {
            assert!(evaluate(text).is_err(), "{text}");
        } else {
            assert_eq!(evaluate(text), Ok(expected), "{text}");
        }
    }
    assert_eq!(evaluate("object.endpoints == null"), Ok(json!(true)));
    assert!(matches!(evaluate("object.endpoints.map(e, e)"), Err(CelErrorKind::NoSuchOverload { .. })));
    assert_eq!(evaluate("object.absent == null"), Err(CelErrorKind::NoSuchField("absent".to_owned())));
    assert_eq!(evaluate("object['endpoints']"), Err(CelErrorKind::NoSuchField("endpoints".to_owned())));
}

#[test]
fn null_variables_and_items_stay_null() {
    for (text, expected) in [
        ("old == null", json!(true)),
        ("old != null && old.spec.y == 1", json!(false)),
        ("old.?spec.y.orValue(7)", json!(7)),
        ("object.list[0] == null", json!(true)),
        ("{'a': null}.a == null && has({'a': null}.a)", json!(true)),
    ] {
        assert_eq!(evaluate(text), Ok(expected), "{text}");
    }
}
