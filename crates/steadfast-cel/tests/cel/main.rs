//! The language: its operators, macros and functions, its limits, and agreement with another implementation.

mod differential;
mod kubernetes;
mod language;
mod limits;
mod nulls;
mod random;
mod time;

use serde_json::{Value as Json, json};
use steadfast_cel::{Budget, CelErrorKind, CelValue, Context, Program, to_json};

/// Budget that no ordinary test exceeds.
const AMPLE_BUDGET: u64 = 1_000_000;

/// Returns an object with fields of all types.
fn object() -> Json {
    json!({
        "name": "web", "replicas": 3, "ratio": 1.5, "big": u64::MAX, "on": true, "nothing": null,
        "labels": {"app": "web", "tier": "front"}, "ports": [80, 443], "empty": [],
        "nested": {"list": [{"a": 1}, {"a": 2, "b": null}]},
    })
}

/// Returns the JSON of the value of `text` with `object` bound.
fn json_of(text: &str, object: &Json) -> Result<Json, CelErrorKind> {
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error} at {}", error.offset));
    let mut context = Context::new();
    context.variable("object", CelValue::from(object));
    let mut budget = Budget::new(AMPLE_BUDGET);
    let outcome = program.evaluate(&context, &mut budget).map_err(|error| error.kind)?;
    to_json(&outcome.value, &mut budget, 1 << 20)
}

/// Asserts that `text` evaluates to true.
#[track_caller]
fn assert_true(text: &str) {
    assert_eq!(json_of(text, &object()), Ok(Json::Bool(true)), "{text}");
}
