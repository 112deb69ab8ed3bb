//! Random texts and random expressions over random objects.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use steadfast_cel::{Budget, CelValue, Context, Program, to_json};

/// Returns a strategy for random JSON of a few levels.
pub(crate) fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        (-3_i64..4).prop_map(Json::from),
        Just(json!(i64::MAX)),
        (-4_i32..5).prop_map(|number| json!(f64::from(number) / 2.0)),
        prop::sample::select(vec!["", "a", "b", "ab", "é", "1", "2026-01-02T03:04:05Z"]).prop_map(Json::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

/// Returns a strategy for random expressions over `object` and the macro variables `x` and `y`. Most of the expressions
/// have no type errors.
pub(crate) fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "object",
        "object.a",
        "object.b",
        "object.c",
        "object.a.b",
        "object[0]",
        "x",
        "y",
        "null",
        "true",
        "false",
        "0",
        "1",
        "2",
        "-1",
        "9223372036854775807",
        "1u",
        "0.5",
        "1.5",
        "''",
        "'a'",
        "'ab'",
        "'é'",
        "[]",
        "{}",
        "[1, 2]",
        "['a', 'b']",
        "{'a': 1}",
    ]);
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let operators = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"]);
        let members = prop::sample::select(vec!["contains", "startsWith", "endsWith"]);
        let globals = prop::sample::select(vec!["size", "string", "int", "double", "!", "-", "type"]);
        let macros = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter"]);
        let variables = prop::sample::select(vec!["x", "y"]);
        prop_oneof![
            4 => (two.clone(), operators).prop_map(|((one, other), operator)| format!("({one} {operator} {other})")),
            1 => (two.clone(), members).prop_map(|((one, other), name)| format!("{one}.{name}({other})")),
            1 => (inner.clone(), globals).prop_map(|(one, name)| format!("({name}({one}))")),
            2 => (two.clone(), macros, variables).prop_map(|((one, other), name, x)| format!("{one}.{name}({x}, {other})")),
            1 => (inner.clone(), two.clone()).prop_map(|(one, (two, three))| format!("({one} ? {two} : {three})")),
            1 => two.clone().prop_map(|(one, other)| format!("[{one}, {other}]")),
            1 => two.clone().prop_map(|(one, other)| format!("{{'a': {one}, 'b': {other}}}")),
            1 => two.prop_map(|(one, other)| format!("{one}[{other}]")),
            1 => inner.clone().prop_map(|one| format!("{one}.a")),
            1 => inner.clone().prop_map(|one| format!("has({one}.a)")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics(text in "\\PC{0,40}") {
        if let Err(error) = Program::compile(&text) {
            prop_assert!(error.offset <= text.len() && text.is_char_boundary(error.offset), "{text:?}: {error:?}");
        }
    }

    #[test]
    fn random_tokens_never_panic(tokens in prop::collection::vec(prop::sample::select(vec![
        "a", ".", ".?", "(", ")", "[", "]", "{", "}", ",", ":", "?", "1", "'x'", "b'\\xff'", "+", "-", "!", "&&", "||", "in", "has(",
        "map(x,", "==", "r'\\'", "`a`", "0x", "1.", "\\", "\"", "'''", "//", "\n", "optional.of(", "cel.bind(x,", "1u", "9e9", "é",
    ]), 0..20)) {
        let text = tokens.concat();
        if let Ok(program) = Program::compile(&text) {
            let mut budget = Budget::new(10_000);
            let result = program.evaluate(&Context::new(), &mut budget);
            prop_assert!(budget.spent() > 0, "{text:?}: {result:?}");
        }
    }

    #[test]
    fn evaluation_never_panics_or_exceeds_its_budget(text in expression(), object in json(), limit in 0_u64..2_000) {
        let program = Program::compile(&text).expect("a valid expression");
        let mut context = Context::new();
        context.variable("object", CelValue::without_nulls(&object));
        let mut budget = Budget::new(limit);
        let result = program.evaluate(&context, &mut budget);
        prop_assert!(budget.spent() <= limit);
        if let Ok(outcome) = result {
            let _ = to_json(&outcome.value, &mut budget, 1_000);
            // A second evaluation has the same cost and result.
            let mut second_budget = Budget::new(limit);
            let second_outcome = program.evaluate(&context, &mut second_budget).expect("the same result");
            prop_assert_eq!(format!("{:?}", outcome.value), format!("{:?}", second_outcome.value));
        }
    }
}
