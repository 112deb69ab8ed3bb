//! Operators, macros and functions.

use serde_json::json;
use steadfast_cel::{Budget, CelErrorKind, CelValue, Context, Program};

use crate::{AMPLE_BUDGET, assert_true, json_of, object};

#[test]
fn true_expressions_evaluate_to_true() {
    for text in [
        // Arithmetic and precedence.
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && -2 - -3 == 1",
        "7 / 2 == 3 && -7 / 2 == -3 && 7 % 3 == 1 && -7 % 3 == -1 && 7.0 / 2.0 == 3.5",
        "-9223372036854775808 < 0 && 18446744073709551615u > 0u",
        "0x10 == 16 && 1e3 == 1000.0 && .5 == 0.5",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        "10 - 3 - 2 == 5 && 100 / 10 / 2 == 5",
        // Equality and order across types.
        "1 == 1u && 1u == 1.0 && 1 == 1.0 && 1 != 1.5 && 'a' != 1 && null == null && null != 0",
        "1 < 1.5 && 2u > 1 && -1 < 0u && 1.0 <= 1 && 9223372036854775807 < 9223372036854775808.0",
        "'a' < 'b' && b'a' < b'b' && false < true && 'Z' < 'a'",
        "[1, 2] == [1.0, 2u] && {'a': 1} == {'a': 1.0} && [] != [[]] && {'a': 1} != {'b': 1}",
        // Logic absorbs errors.
        "!(false && 1 / 0 > 0) && !(1 / 0 > 0 && false) && (true || 1 / 0 > 0) && (1 / 0 > 0 || true)",
        "true ? true : 1 / 0 > 0",
        "false ? 1 / 0 > 0 : false ? false : true",
        // Selection and membership.
        "object.name == 'web' && object['name'] == 'web' && object.ports[1] == 443 && object.ports[1u] == 443",
        "object.ports[0.0] == 80 && {1: 'a'}[1u] == 'a' && {1: 'a'}[1.0] == 'a' && {true: 1}[true] == 1",
        "80 in object.ports && !(81 in object.ports) && 'app' in object.labels && !('x' in object.labels)",
        "has(object.name) && !has(object.other) && has({'a': 1}.a) && has(object.nothing)",
        "object.labels.`app` == 'web' && object.big == 18446744073709551615u",
        // Macros.
        "object.ports.all(p, p > 0) && !object.ports.all(p, p > 80) && object.empty.all(p, false)",
        "object.ports.exists(p, p == 80) && !object.empty.exists(p, true) && object.ports.exists_one(p, p == 80)",
        "[1, 2, 3].exists(x, 6 / (x - 1) == 6) && ![0, 1].all(x, 1 / x > 5)",
        "object.ports.map(p, p * 2) == [160, 886] && object.ports.map(p, p > 80, p) == [443]",
        "object.ports.filter(p, p > 80) == [443] && object.labels.map(k, k) == ['app', 'tier']",
        "object.labels.exists(k, object.labels[k] == 'front')",
        "[1, 2].all(i, v, v == i + 1) && {'a': 1}.exists(k, v, k == 'a' && v == 1) && [5].existsOne(i, v, v == 5)",
        "[1, 2].transformList(i, v, i * v) == [0, 2] && [1, 2].transformList(i, v, v > 1, v) == [2]",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2} && {'a': 'b'}.transformMapEntry(k, v, {v: k}) == {'b': 'a'}",
        "cel.bind(x, 2, x * x) == 4 && cel.bind(x, 1, cel.bind(x, 2, x) + x) == 3",
        "[[1, 2], [3]].map(x, x.map(x, x + 1)) == [[2, 3], [4]]",
        // Optional values.
        "object.?name.orValue('') == 'web' && object.?other.orValue('x') == 'x' && !object.?other.hasValue()",
        "object.?labels.app == optional.of('web') && object.?other.app.deeper == optional.none()",
        "object[?'name'].value() == 'web' && object.ports[?5].orValue(1) == 1 && object.?ports[0].orValue(1) == 80",
        "object.?other.or(object.?name).value() == 'web' && object.?name.or(optional.none()).hasValue()",
        "object.?name.optMap(n, n + '!').orValue('') == 'web!' && object.?other.optMap(n, n).orValue('') == ''",
        "object.?labels.optFlatMap(l, l.?app).orValue('') == 'web'",
        "[?object.?name, ?object.?other] == ['web'] && {?'a': object.?name, ?'b': object.?other} == {'a': 'web'}",
        "optional.ofNonZeroValue('') == optional.none() && optional.ofNonZeroValue(1).value() == 1",
        "optional.of(1 ).orValue(1 / 0) == 1",
        "[optional.of(1), optional.none(), optional.of(2)].unwrapOpt() == [1, 2] && optional.unwrap([]) == []",
        // Order by computed keys; items with equal keys keep their order.
        "['ccc', 'a', 'bb', 'b'].sortBy(x, x.size()) == ['a', 'b', 'bb', 'ccc'] && [].sortBy(x, x) == []",
        "object.nested.list.sortBy(x, -x.a).map(x, x.a) == [2, 1]",
        // Types and conversions.
        "type(1) == int && type(1u) == uint && type(1.0) == double && type('') == string && type(null) == null_type",
        "type([]) == list && type({}) == map && type(b'') == bytes && type(int) == type && type(true) == bool",
        "type(timestamp('2026-01-02T03:04:05Z')) == google.protobuf.Timestamp",
        "type(duration('1s')) == google.protobuf.Duration && type(optional.none()) == optional_type",
        "int('-7') == -7 && int(3.9) == 3 && int(-3.9) == -3 && int(7u) == 7 && uint('7') == 7u && uint(7) == 7u",
        "double('1.5') == 1.5 && double(2) == 2.0 && string(1) == '1' && string(1.5) == '1.5' && string(true) == 'true'",
        "string(b'a') == 'a' && bytes('é') == b'\\xc3\\xa9' && bool('true') && !bool('0') && dyn(1) == 1",
        "string(1e30) == '1e+30' && string(1e-7) == '1e-07' && string(100.0) == '100'",
        // Strings.
        "size('été') == 3 && 'été'.size() == 3 && size(b'\\xff') == 1 && size([1]) == 1 && size({'a': 1}) == 1",
        "'abc'.contains('b') && 'abc'.startsWith('ab') && 'abc'.endsWith('bc') && 'abc'.matches('^a.c$')",
        "matches('abc', 'b') && !'abc'.matches('^b') && 'été'.charAt(1) == 't' && 'a'.charAt(1) == ''",
        "'été'.indexOf('é') == 0 && 'été'.indexOf('é', 1) == 2 && 'été'.lastIndexOf('é') == 2",
        "'été'.lastIndexOf('é', 1) == 0 && 'a'.indexOf('b') == -1 && 'abc'.lastIndexOf('') == 3",
        "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
        "'Aé'.lowerAscii() == 'aé' && 'aé'.upperAscii() == 'Aé' && ' a '.trim() == 'a' && 'été1'.reverse() == '1été'",
        "'aaa'.replace('a', 'b') == 'bbb' && 'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'ab'.split('') == ['a', 'b']",
        "'a'.split(',', 0) == [] && ''.split(',') == [''] && ''.split('') == [] && 'a,'.split(',') == ['a', '']",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'a'.substring(1) == ''",
        "strings.quote('a\"\\n') == '\"a\\\\\"\\\\n\"'",
        "'%s %d %.2f %x %b %%'.format(['a', 1, 1.005, 255, 5]) == 'a 1 1.00 ff 101 %'",
        "'%s'.format([[1, 'a', {'k': null}]]) == '[1, a, {k: null}]' && '%X %o %e'.format([b'a', 8, 1.5]) == '61 10 1.500000e+00'",
        // Comments and blanks.
        "1 == 1 // the rest is a comment\n && true",
    ] {
        assert_true(text);
    }
}

#[test]
fn errors_are_reported_with_their_cause() {
    let overload = |function: &str, types: &[&'static str]| CelErrorKind::NoSuchOverload {
        function: function.to_owned(),
        types: types.to_vec(),
    };
    for (text, kind) in [
        ("object.other", CelErrorKind::NoSuchField("other".to_owned())),
        ("object['other']", CelErrorKind::NoSuchField("other".to_owned())),
        ("object[object.name]", CelErrorKind::NoSuchKey),
        ("object.name.x", overload("_._", &["string"])),
        ("has(object.name.x)", overload("has", &["string"])),
        ("object.ports[2]", CelErrorKind::IndexOutOfRange),
        ("object.ports[-1]", CelErrorKind::IndexOutOfRange),
        ("object.ports['a']", overload("_[_]", &["list", "string"])),
        ("{'a': 1}[null]", CelErrorKind::UnsupportedKey),
        ("1 + 1u", overload("_+_", &["int", "uint"])),
        ("object.name > 2", overload("_>_", &["string", "int"])),
        ("!1", overload("!_", &["int"])),
        ("-'a'", overload("-_", &["string"])),
        ("1 ? 2 : 3", overload("_?_:_", &["int"])),
        ("true && 1", overload("_&&_", &["int"])),
        ("1 || false", overload("_||_", &["int"])),
        ("1 / 0", CelErrorKind::DivisionByZero),
        ("1 % 0", CelErrorKind::DivisionByZero),
        ("9223372036854775807 + 1", CelErrorKind::Overflow),
        ("-9223372036854775808 - 1", CelErrorKind::Overflow),
        ("-(-9223372036854775808)", CelErrorKind::Overflow),
        ("9223372036854775807 * 2", CelErrorKind::Overflow),
        ("-9223372036854775808 / -1", CelErrorKind::Overflow),
        ("-9223372036854775808 % -1", CelErrorKind::Overflow),
        ("1u - 2u", CelErrorKind::Overflow),
        ("int(1e19)", CelErrorKind::Overflow),
        ("uint(-1)", CelErrorKind::Overflow),
        ("timestamp('9999-01-01T00:00:00Z') + duration('87660000h')", CelErrorKind::Overflow),
        ("{'a': 1, 'a': 2}", CelErrorKind::DuplicateKey),
        ("{1: 1, 1u: 2}", CelErrorKind::DuplicateKey),
        ("{1.5: 1}", CelErrorKind::UnsupportedKey),
        ("unknown", CelErrorKind::UnknownName("unknown".to_owned())),
        ("unknown(1)", CelErrorKind::UnknownFunction("unknown".to_owned())),
        ("'a'.unknown()", CelErrorKind::UnknownFunction("unknown".to_owned())),
        ("size(1)", overload("size", &["int"])),
        ("optional.none().value()", CelErrorKind::NoValue),
        ("object.name.orValue(1)", overload("orValue", &["string"])),
        ("[?1]", overload("[?_]", &["int"])),
        ("1.map(x, x)", overload("comprehension", &["int"])),
        ("[1].all(x, x)", overload("all", &["int"])),
        ("optional.of(1)", CelErrorKind::NotJson("an optional value")),
        ("0.0 / 0.0", CelErrorKind::NotJson("a number that is not finite")),
        ("Unknown{a: 1}", CelErrorKind::UnknownName("Unknown".to_owned())),
    ] {
        assert_eq!(json_of(text, &object()), Err(kind), "{text}");
    }
    for text in
        ["int('secret')", "'secret'.matches('(')", "timestamp('secret')", "'secret'.charAt(9)", "bool('secret')"]
    {
        let kind = json_of(text, &object()).expect_err(text);
        assert!(matches!(kind, CelErrorKind::InvalidArgument { .. }), "{text}: {kind}");
        assert!(!kind.to_string().contains("secret"), "{kind}");
    }
}

#[test]
fn values_become_the_json_of_their_type() {
    for (text, expected) in [
        ("object", object()),
        ("object.ports.map(p, {'port': p})", json!([{"port": 80}, {"port": 443}])),
        ("[1, 1u, 1.5, 'a', true, null]", json!([1, 1, 1.5, "a", true, null])),
        ("b'a'", json!("YQ==")),
        ("type(1)", json!("int")),
        ("timestamp('2026-01-02T03:04:05+01:00')", json!("2026-01-02T02:04:05Z")),
        ("duration('90m')", json!("5400s")),
        ("{1: true, false: 'x'}", json!({"1": true, "false": "x"})),
    ] {
        assert_eq!(json_of(text, &object()), Ok(expected), "{text}");
    }
}

#[test]
fn errors_carry_the_failed_position() {
    for (text, offset) in
        [("1 + object.x", 11), ("true && [1].map(x, x / 0) == []", 21), ("size(1)", 0), ("'a'.unknown()", 4)]
    {
        let program = Program::compile(text).expect(text);
        let object = object();
        let mut context = Context::new();
        context.variable("object", CelValue::from(&object));
        let error = program.evaluate(&context, &mut Budget::new(AMPLE_BUDGET)).expect_err(text);
        assert_eq!(error.offset, offset, "{text}: {error}");
    }
}

#[test]
fn context_functions_receive_target_and_arguments() {
    let mut context = Context::new();
    context.function("count", |arguments, _| Ok(CelValue::Uint(arguments.len() as u64)));
    for text in ["count(1, 2) == 2", "'a'.count(1, 2) == 3", "count() == 0"] {
        let program = Program::compile(text).expect(text);
        let outcome = program.evaluate(&context, &mut Budget::new(AMPLE_BUDGET)).expect(text);
        assert!(matches!(outcome.value, CelValue::Bool(true)), "{text}");
    }
}
