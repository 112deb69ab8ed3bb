//! Limits of cost, memory and depth.

use serde_json::{Map, Value as Json, json};
use steadfast_cel::{Budget, CelErrorKind, CelValue, Context, MAX_DEPTH, Program, to_json};

/// Returns the error of `text` over `object` with a budget of `limit`, and the rest of the budget.
fn error_kind(text: &str, object: &Json, limit: u64) -> (CelErrorKind, u64) {
    let program = Program::compile(text).expect(text);
    let mut context = Context::new();
    context.variable("object", CelValue::without_nulls(object));
    let mut budget = Budget::new(limit);
    let outcome = program.evaluate(&context, &mut budget).map_err(|error| error.kind);
    let converted = outcome.and_then(|outcome| to_json(&outcome.value, &mut budget, 1 << 20));
    (converted.expect_err(text), budget.left())
}

#[test]
fn quadratic_expressions_exceed_the_budget() {
    let data: Map<String, Json> = (0..20_000).map(|number| (format!("k{number:06}"), json!(""))).collect();
    let object = json!({"data": data});
    for text in [
        "object.data.all(a, object.data.exists_one(b, b.startsWith(a)))",
        "object.data.map(a, object.data.map(b, a + b))",
        "object.data.filter(a, object.data.exists(b, a == b && false))",
        "object.data.map(k, k).map(k, object.data == object.data)",
    ] {
        assert_eq!(error_kind(text, &object, 1_000_000), (CelErrorKind::BudgetExceeded(1_000_000), 0), "{text}");
    }
}

#[test]
fn growing_values_exceed_the_budget_early() {
    let long = "x".repeat(1 << 20);
    let object = json!({"text": long, "list": vec![0; 10_000]});
    let doubled = |start: &str, double: &str| {
        let mut text = start.to_owned();
        for _ in 0..40 {
            text = format!("cel.bind(a, {text}, {double})");
        }
        text
    };
    for text in [
        "object.text.split('').map(c, object.text.replace('x', object.text))",
        "object.text.replace('x', object.text)",
        "object.list.map(i, object.text).join(object.text)",
        "object.list.map(i, object.list + object.list)",
        "object.list.map(i, '%s%s'.format([object.text, object.text]))",
        "object.list.map(i, object.text.reverse())",
        "object.list.map(i, object.text.matches('^(x|y)*z'))",
        "object.list.map(i, 'x'.matches(string(i) + object.text.substring(0, 9)))",
        "object.list.map(i, bytes(object.text) + b'x')",
    ] {
        assert_eq!(error_kind(text, &object, 1_000_000), (CelErrorKind::BudgetExceeded(1_000_000), 0), "{text}");
    }
    for text in [
        doubled("object.text", "a + a"),
        doubled("object.list", "a + a"),
        doubled("[1]", "[a, a] == [a, a] ? [a, a] : a"),
    ] {
        assert_eq!(error_kind(&text, &object, 1_000_000).0, CelErrorKind::BudgetExceeded(1_000_000), "{text}");
    }
}

#[test]
fn shared_values_are_charged_per_use() {
    // Each level refers twice to the level below: 2^40 items as JSON, 80 in memory.
    let text = (0..40).fold("[1]".to_owned(), |text, _| format!("cel.bind(a, {text}, [a, a])"));
    let (kind, _) = error_kind(&text, &Json::Null, 10_000_000);
    assert!(matches!(kind, CelErrorKind::BudgetExceeded(_) | CelErrorKind::ResultTooLarge(_)), "{kind}");
    let many = json!({"data": vec!["x".repeat(1_000); 1_000]});
    assert_eq!(error_kind("object.data.map(k, object)", &many, 1_000_000).0, CelErrorKind::ResultTooLarge(1 << 20));
    let large = json!("x".repeat(2 << 20));
    assert_eq!(error_kind("object", &large, 10_000_000).0, CelErrorKind::ResultTooLarge(1 << 20));
}

#[test]
fn absorbing_operators_keep_the_exceeded_budget() {
    let list: Vec<u32> = (0..1_000).collect();
    let object = json!({"list": list});
    for text in [
        "object.list.all(x, object.list.all(y, true)) || true",
        "true || object.list.all(x, object.list.all(y, true))",
        "object.list.exists(x, object.list.all(y, true) && false)",
    ] {
        let program = Program::compile(text).expect(text);
        let mut context = Context::new();
        context.variable("object", CelValue::from(&object));
        let result = program.evaluate(&context, &mut Budget::new(5_000));
        if text.starts_with("true") {
            assert!(result.is_ok(), "{text}");
        } else {
            assert_eq!(result.expect_err(text).kind, CelErrorKind::BudgetExceeded(5_000), "{text}");
        }
    }
}

#[test]
fn deepest_accepted_expressions_need_little_stack() {
    let levels = MAX_DEPTH - 4;
    let shapes = [
        ("(", "1", ")"),
        ("[", "1", "]"),
        ("!", "true", ""),
        ("{'a': ", "1", "}"),
        ("true ? 1 + 2 * [1].map(x, ", "1", ")[0] : 0"),
        ("[0].all(x, true && x < 1 || ", "true", ")"),
        ("size('a' + string(", "1", "))"),
        ("optional.of(1).optMap(x, ", "1", ")"),
    ];
    let run = move || {
        for (open, inner, close) in shapes {
            let count = (1..=levels)
                .rev()
                .find(|count| {
                    Program::compile(&format!("{}{inner}{}", open.repeat(*count), close.repeat(*count))).is_ok()
                })
                .expect("some depth is accepted");
            let text = format!("{}{inner}{}", open.repeat(count), close.repeat(count));
            let program = Program::compile(&text).expect("accepted before");
            let mut budget = Budget::new(1_000_000);
            // Some shapes return an error; none may overflow the stack.
            let _ = program.evaluate(&Context::new(), &mut budget);
            assert!(budget.spent() > 0, "{open}");
            assert!(
                Program::compile(&format!("{}{inner}{}", open.repeat(5_000), close.repeat(5_000))).is_err(),
                "{open}"
            );
        }
    };
    // Threads of a runtime have 2 MiB of stack.
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("a thread").join().expect("no overflow");
}

#[test]
fn deeply_nested_json_is_an_error() {
    let run = || {
        let deep = || (0..2_000).fold(Json::Null, |inner, _| Json::Array(vec![inner]));
        let mut object = json!({});
        object["a"] = deep();
        object["b"] = deep();
        assert_eq!(error_kind("object.a == object.b", &object, 1_000_000).0, CelErrorKind::TooDeep(256));
        assert_eq!(error_kind("object", &object, 1_000_000).0, CelErrorKind::TooDeep(256));
        assert_eq!(error_kind("'%s'.format([object])", &object, 1_000_000).0, CelErrorKind::TooDeep(64));
        assert_eq!(error_kind("object.a in [object.b]", &object, 1_000_000).0, CelErrorKind::TooDeep(256));
        // The destructor of the JSON itself recurses.
        std::mem::forget(object);
    };
    std::thread::Builder::new().stack_size(4 << 20).spawn(run).expect("a thread").join().expect("no overflow");
}

#[test]
fn overlong_expressions_are_rejected() {
    let error = Program::compile(&"1 + ".repeat(30_000)).err().expect("too long");
    assert_eq!(error.message, "the expression exceeds 100000 bytes");
}

#[test]
fn exceeded_budget_reports_limit_and_position() {
    let program = Program::compile("true && [1, 2, 3].all(x, x > 0)").expect("valid");
    let error = program.evaluate(&Context::new(), &mut Budget::new(8)).expect_err("too little");
    assert_eq!((error.to_string().as_str(), error.offset), ("cost budget of 8 exceeded", 27));
}
