//! Functions of Kubernetes: quantities, URLs, addresses, semantic versions and named formats.

use proptest::prelude::*;
use serde_json::json;
use steadfast_cel::{Budget, CelErrorKind, CelValue, Context, Program, to_json};

use crate::{assert_true, json_of};

/// Results of the library of a real API server, version 1.37: an expression, a tab and the result.
const SERVER_RESULTS: &str = include_str!("kubernetes.txt");

/// Returns the text of a result as in [`SERVER_RESULTS`]; `error` for a failed evaluation.
fn evaluated_text(text: &str) -> String {
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error} at {}", error.offset));
    let outcome = program.evaluate(&Context::new(), &mut Budget::new(1_000_000));
    outcome.map_or_else(|_| "error".to_owned(), |outcome| display_text(&outcome.value))
}

fn display_text(value: &CelValue) -> String {
    match value {
        CelValue::Bool(value) => value.to_string(),
        CelValue::Int(number) => format!("int {number}"),
        CelValue::Double(number) => format!("double {number:e}"),
        CelValue::String(text) => json!(**text).to_string(),
        CelValue::Type(cel_type) => format!("type {}", cel_type.name()),
        CelValue::List(list) => {
            format!("[{}]", list.iter().map(|item| display_text(&item)).collect::<Vec<_>>().join(", "))
        }
        other => to_json(other, &mut Budget::new(1_000_000), 1 << 20)
            .map_or_else(|kind| kind.to_string(), |json| json.to_string()),
    }
}

#[test]
fn results_equal_those_of_a_real_server() {
    let mut differing = Vec::new();
    for line in SERVER_RESULTS.lines().filter(|line| !line.starts_with('#')) {
        let (text, expected) = line.rsplit_once('\t').expect("a tab");
        let found = evaluated_text(text);
        if found != expected {
            differing.push(format!("{text}\n    expected {expected}\n    found    {found}"));
        }
    }
    assert!(differing.is_empty(), "{} results differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn invalid_texts_are_invalid_arguments() {
    for text in [
        "quantity('1x')",
        "quantity('1.5').asInteger()",
        "url('path')",
        "ip('1.2.3')",
        "ip.isCanonical('x')",
        "cidr('10.0.0.0')",
        "semver('1.2')",
    ] {
        let kind = json_of(text, &json!({})).expect_err(text);
        assert!(matches!(kind, CelErrorKind::InvalidArgument { .. }), "{text}: {kind:?}");
    }
}

#[test]
fn other_types_have_no_overload() {
    for text in [
        "quantity(1)",
        "sign('1')",
        "quantity('1').compareTo('1')",
        "quantity('1').major()",
        "semver('1.2.3').compareTo(quantity('1'))",
        "semver('1.2.3', 1)",
        "url('/a').getHost(1)",
        "'1.2.3.4'.family()",
        "cidr('10.0.0.0/8').containsIP('x')",
        "cidr('10.0.0.0/8').containsCIDR('10.0.0.1')",
        "format.uuid().validate(1)",
        "format.uuid(1)",
        "string(quantity('1'))",
    ] {
        let kind = json_of(text, &json!({})).expect_err(text);
        assert!(matches!(kind, CelErrorKind::NoSuchOverload { .. }), "{text}: {kind:?}");
    }
}

#[test]
fn kubernetes_values_compare_and_nest() {
    for text in [
        "quantity('1') != semver('1.0.0') && ip('::1') != '::1'",
        "quantity('1Ki') in [quantity('1024')]",
        "{'a': quantity('1')} == {'a': quantity('1000m')}",
        "type(ip('::1')) == type(cidr('::1/64').ip()) && type(quantity('1')) != string",
        "[cidr('10.0.0.0/8'), cidr('10.0.0.0/16')].all(c, c.containsIP('10.0.1.1'))",
        "quantity('2').add(quantity('500m')).sub(1).compareTo(quantity('1500m')) == 0",
        "format.named('uuid').hasValue() && !format.named('email').hasValue()",
        "optional.ofNonZeroValue(quantity('0')).hasValue()",
    ] {
        assert_true(text);
    }
}

#[test]
fn qualified_names_do_not_hide_variables() {
    let object = json!({"ip": "1.2.3.4", "format": "%d", "quantity": 3});
    for text in [
        "object.ip == '1.2.3.4' && object.format.format([1]) == '1' && object.quantity == 3",
        "['10.0.0.1'].all(ip, isIP(ip) && ip(ip).family() == 4 && ip.size() == 8)",
        "['x'].all(format, format.size() == 1 && format.uuid().validate(format).hasValue())",
    ] {
        assert_eq!(json_of(text, &object), Ok(json!(true)), "{text}");
    }
}

#[test]
fn kubernetes_values_are_not_json() {
    for text in ["quantity('1')", "url('/a')", "[ip('::1')]", "{'a': cidr('::/0')}", "semver('1.2.3')", "format.uuid()"]
    {
        let kind = json_of(text, &json!({})).expect_err(text);
        assert!(matches!(kind, CelErrorKind::NotJson(_)), "{text}: {kind:?}");
    }
}

/// Function calls with the argument `object`, one for each parser.
const PARSER_CALLS: [&str; 24] = [
    "isQuantity(object)",
    "quantity(object).asApproximateFloat()",
    "quantity(object).add(quantity(object)).isInteger()",
    "quantity(object).sub(quantity('1')).compareTo(quantity(object))",
    "sign(quantity(object))",
    "isURL(object)",
    "url(object).getQuery()",
    "url(object).getEscapedPath() + url(object).getHostname() + url(object).getPort()",
    "url(object) == url(object)",
    "isIP(object) ? [ip(object).isGlobalUnicast(), ip.isCanonical(object)] : []",
    "isCIDR(object) ? [cidr(object).masked() == cidr(object), cidr(object).containsIP('::1')] : []",
    "cidr('10.0.0.0/8').containsCIDR(object)",
    "isSemver(object) || isSemver(object, true)",
    "semver(object, true).compareTo(semver(object, true))",
    "format.dns1123Label().validate(object)",
    "format.dns1123SubdomainPrefix().validate(object)",
    "format.dns1035LabelPrefix().validate(object)",
    "format.qualifiedName().validate(object)",
    "format.labelValue().validate(object)",
    "format.uri().validate(object)",
    "format.uuid().validate(object)",
    "format.byte().validate(object)",
    "format.date().validate(object)",
    "format.datetime().validate(object)",
];

/// Evaluates every parser over `text`; returns the largest cost.
fn largest_cost(text: &str) -> u64 {
    let object = json!(text);
    let costs = PARSER_CALLS.iter().map(|parser| {
        let program = Program::compile(parser).expect("a valid expression");
        let mut context = Context::new();
        context.variable("object", CelValue::from(&object));
        let mut budget = Budget::new(1_000_000);
        // An error is a result like any other; only panics fail the test.
        let _ = program.evaluate(&context, &mut budget);
        assert!(budget.spent() > text.len() as u64 / 10, "{parser}: {}", budget.spent());
        budget.spent()
    });
    costs.max().unwrap_or(0)
}

#[test]
fn cost_is_bounded_by_the_length_of_the_text() {
    for text in ["1", "a", "9.", "%41", "a=b&", "1.", "a-", "::", "/", "0", "é", "1.2.3-a."] {
        let long = text.repeat(20_000 / text.len());
        let cost = largest_cost(&long);
        // A parameter of a query costs about one unit for two bytes.
        assert!(cost < 40_000, "{text}: {cost}");
    }
}

#[test]
fn sums_of_distant_quantities_exceed_the_budget() {
    let text = "quantity('1e2000000000').add(quantity('1')).isInteger()";
    let program = Program::compile(text).expect("a valid expression");
    let kind = program.evaluate(&Context::new(), &mut Budget::new(1_000_000)).expect_err("a long sum").kind;
    assert_eq!(kind, CelErrorKind::BudgetExceeded(1_000_000));
    // Comparisons do not build the digits.
    assert_true("quantity('1e2000000000').isGreaterThan(quantity('123456789012345678901'))");
    assert_true("!quantity('1e-2000000000').isGreaterThan(quantity('1n'))");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn random_text_never_panics_in_parsers(text in "\\PC{0,30}") {
        largest_cost(&text);
    }

    #[test]
    fn random_parts_never_panic_in_parsers(parts in prop::collection::vec(prop::sample::select(vec![
        "1", "0", "9", ".", "-", "+", "e", "E", "Ki", "m", "n", "Ei", "%", "%25", "[", "]", ":", "/", "//", "@", "?", "&", "=", ";", "#",
        "http", "a", "é", "\u{0}", "-a", "T", "Z", "2026-01-02", "03:04:05", "=", "==", "10.0.0", "::", "ffff", "v", "*", "\u{7f}", "𝄞",
        "99999999999999999999", "2147483648",
    ]), 0..12)) {
        largest_cost(&parts.concat());
    }

    #[test]
    fn sums_and_orders_of_quantities_agree(
        one in "-?[0-9]{1,25}(\\.[0-9]{0,12})?(Ki|Gi|Ei|k|m|u|n|E|e-?[0-9])?",
        other in "-?[0-9]{1,25}(\\.[0-9]{0,12})?(Ki|Gi|Ei|k|m|u|n|E|e-?[0-9])?",
    ) {
        let object = json!({"one": one, "other": other});
        for text in [
            "quantity(object.one).add(quantity(object.other)).sub(quantity(object.other)) == quantity(object.one)",
            "sign(quantity(object.one).sub(quantity(object.other))) == quantity(object.one).compareTo(quantity(object.other))",
            "quantity(object.one).compareTo(quantity(object.other)) == -quantity(object.other).compareTo(quantity(object.one))",
            "quantity(object.one).add(quantity(object.other)) == quantity(object.other).add(quantity(object.one))",
        ] {
            prop_assert_eq!(json_of(text, &object), Ok(json!(true)), "{} with {}", text, object);
        }
    }
}
