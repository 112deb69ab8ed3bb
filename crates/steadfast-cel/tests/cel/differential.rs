//! Agreement with the `cel` crate on random expressions over random objects.
//!
//! Deliberate differences, which the comparison leaves out:
//!
//! - errors: both must fail; the causes may differ;
//! - the order of the entries of a map: random in the `cel` crate, and sorted in this crate;
//! - keys and values that JSON cannot represent;
//! - `+` of a list and a map: a value in the `cel` crate, and an error in this crate;
//! - `in` over a map with a value that cannot be a key: an error in the `cel` crate, and false in this crate.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context as TheirContext, Env, Program as TheirProgram, Value as Cel, extensions};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value as Json;

use crate::json_of;
use crate::random::{expression, json};

fn to_their_value(value: &Json) -> Cel {
    match value {
        Json::Null => Cel::Null,
        Json::Bool(truth) => Cel::Bool(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Cel::Int(number),
            (None, Some(number)) => Cel::UInt(number),
            (None, None) => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Cel::String(Arc::new(text.clone())),
        Json::Array(items) => Cel::List(Arc::new(items.iter().map(to_their_value).collect())),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (Key::String(Arc::new(key.clone())), to_their_value(value)));
            Cel::Map(Map { map: Arc::new(fields.collect::<HashMap<_, _>>()) })
        }
    }
}

fn their_json(text: &str, object: &Json) -> Result<Json, String> {
    let mut environment = Env::stdlib();
    environment.add_extension(extensions::strings).map_err(|error| format!("{error:?}"))?;
    let environment = Arc::new(environment);
    let program: TheirProgram = environment.compile(text).map_err(|error| format!("{error:?}"))?;
    let mut context = TheirContext::with_env(environment);
    context.add_variable_from_value("object", to_their_value(object));
    let value = program.execute(&context).map_err(|error| format!("{error:?}"))?;
    value.json().map_err(|error| format!("{error:?}"))
}

/// Returns the number of random expressions: 500, or `STEADFAST_SEEDS`.
fn case_count() -> u32 {
    std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(500)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: case_count(), rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn random_expressions_agree_with_another_implementation(text in expression(), object in json()) {
        let (ours, theirs) = (json_of(&text, &object), their_json(&text, &object));
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs, "{} over {}", text, object),
            (Err(_), Err(_)) => {}
            (Err(kind), Ok(_)) if text.contains(" + ") && format!("{kind:?}").contains("NoSuchOverload") => {}
            // The error of `in` may have been replaced by an error of the surrounding expression. The check therefore
            // reads the text instead of the error.
            (Ok(_), Err(_)) if text.contains(" in ") => {}
            _ => prop_assert!(false, "{} over {}: {:?}, and in the `cel` crate {:?}", text, object, ours, theirs),
        }
    }
}
