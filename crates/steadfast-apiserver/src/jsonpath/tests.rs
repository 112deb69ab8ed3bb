//! Paths and their results. The differential test compares the same paths with a real API server.

use serde_json::{Value, json};

use super::JsonPath;

fn object() -> Value {
    json!({
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "n": 1}, {"type": "Lit", "status": "False", "n": 2, "extra": [1]},
            {"type": "Off", "status": "True", "n": 3},
        ]},
        "labels": {"app.kubernetes.io/name": "shop"}, "tags": ["a", "b", "c", "d"], "text": "hi", "null": null,
        "ratio": 0.5,
    })
}

/// Returns the texts of the first action's results.
fn texts(path: &str) -> Vec<String> {
    let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let object = object();
    let found = parsed.find(&object).unwrap_or_else(|detail| panic!("{path}: {detail}"));
    found.first().into_iter().flatten().map(super::JsonPathValue::text).collect()
}

#[test]
fn template_has_text_and_paths() {
    let rendered = |template: &str| JsonPath::parse_template(template).and_then(|parsed| parsed.render(&object()));
    for (template, expected) in [
        ("text", "text"),
        ("{.text}", "hi"),
        ("<{.text}> {.tags[0:2]}{\"\\n\"}", "<hi> a b\n"),
        ("{range .status.conditions[*]}{.type}={.status};{end}", "Ready=True;Lit=False;Off=True;"),
        ("{.missing}", ""),
    ] {
        assert_eq!(rendered(template).as_deref(), Ok(expected), "{template}");
    }
    assert_eq!(rendered("ab{.x").expect_err("an open brace"), "unclosed action at byte 5");
}

#[test]
fn filters_select_list_items() {
    let conditions = ".status.conditions";
    for (filter, expected) in [
        (r#"[?(@.type=="Ready")].status"#, &["True"][..]),
        ("[?(@.type=='Ready')].status", &["True"]),
        ("[?(@.type!='Ready')].type", &["Lit", "Off"]),
        ("[?(@.n>1)].type", &["Lit", "Off"]),
        ("[?(@.n>=3)].type", &["Off"]),
        ("[?(@.n<=1)].type", &["Ready"]),
        ("[?(@.extra)].type", &["Lit"]),
        ("[?(@.type==\"Missing\")].status", &[]),
        ("[?( @.type == \"Off\" )].n", &["3"]),
    ] {
        assert_eq!(texts(&format!("{conditions}{filter}")), expected, "{filter}");
    }
}

#[test]
fn slices_unions_wildcards_and_descents_select() {
    for (path, expected) in [
        (".tags[0]", &["a"][..]),
        (".tags[-1]", &["d"]),
        (".tags[1:3]", &["b", "c"]),
        (".tags[-2:]", &["c", "d"]),
        (".tags[::2]", &["a", "c"]),
        (".tags[:]", &["a", "b", "c", "d"]),
        (".tags[*]", &["a", "b", "c", "d"]),
        (".tags[0,2]", &["a", "c"]),
        (".tags[1:1]", &[]),
        (".status.conditions[*].n", &["1", "2", "3"]),
        (".status.*[*].n", &["1", "2", "3"]),
        (".status.conditions[0]['type','status']", &["Ready", "True"]),
        ("..extra", &["[1]"]),
        ("..type", &["Ready", "Lit", "Off"]),
        (r".labels.app\.kubernetes\.io/name", &["shop"]),
        (r"['labels']['app\.kubernetes\.io/name']", &["shop"]),
        (".text.*", &["104", "105"]),
        (".missing.field", &[]),
        ("$.ratio", &["0.5"]),
        ("@.null", &["<no value>"]),
        (".tags", &[r#"["a","b","c","d"]"#]),
    ] {
        assert_eq!(texts(path), expected, "{path}");
    }
}

#[test]
fn ranges_repeat_their_actions() {
    let parsed = JsonPath::parse("range .tags[0:2]}{@}{\"-\"}{end}{.text").expect("a valid path");
    let object = object();
    let found = parsed.find(&object).expect("results");
    let texts: Vec<String> = found.iter().flatten().map(super::JsonPathValue::text).collect();
    assert_eq!(texts, ["a", "-", "b", "-", "hi"]);
}

#[test]
fn failed_evaluation_has_no_first_result() {
    let object = object();
    for path in [".tags[7]", ".text[0]", ".tags[0:3:0]", ".text[?(@.a)]", ".tags[?(@>1)]", ".tags[3:1]", "end", "odd"] {
        let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(parsed.find(&object).is_err(), "{path}");
        assert_eq!(parsed.first(&object), None, "{path}");
    }
}

#[test]
fn parser_errors_have_a_position() {
    for (path, expected) in [
        (".a[", "unterminated array at byte 4"),
        (".a[x]", "invalid array index x at byte 5"),
        (".a[?(@.b", "unterminated filter at byte 9"),
        (".a[?(@.b)", "unclosed array expect ] at byte 10"),
        (".a....b", "invalid multiple recursive descent at byte 6"),
        (".a?", "unrecognized character"),
        ("'a", "unterminated quoted string at byte 3"),
        ("1.2.3", "cannot parse number 1.2.3 at byte 5"),
        (".a[?(@.b==\"x)]", "unterminated filter at byte 15"),
        (".a[0,y]", "invalid array index y"),
    ] {
        match JsonPath::parse(path) {
            // Only a few characters end a field name.
            Ok(_) => assert_eq!(path, ".a?"),
            Err(error) => assert!(error.to_string().starts_with(expected), "{path}: {error}"),
        }
    }
}

#[test]
fn nested_descents_are_bounded() {
    let nested = (0..9).fold(json!([1]), |within, _| json!({"a": [within.clone(), within, "x"]}));
    let parsed = JsonPath::parse("..a..a..a..a..a..a..a").expect("a valid path");
    let detail = parsed.find(&nested).expect_err("too many values");
    assert_eq!(detail, "the path visits more than 100000 values");
}

#[test]
fn random_paths_end_without_panic() {
    let pieces = [
        ".a", "..", "[*]", "[0]", "[-1:]", "[?(@.a", ")]", "==", "\"x\"", "'", "\\", "{", "}", "range ", "end", ",",
        "[", "]", "@", "$", "1.5", "-", ".*", "é", "\n", " ", "true", "\\x4", "(",
    ];
    let nested = (0..9).fold(json!([1]), |within, _| json!({"a": [within.clone(), within, "x"]}));
    let mut state = 7_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut evaluated = 0;
    for _ in 0..1_500 {
        let path: String = (0..draw(9)).map(|_| pieces[draw(pieces.len())]).collect();
        match JsonPath::parse(&path) {
            Ok(parsed) => {
                evaluated += 1;
                let found = parsed.find(&nested).unwrap_or_default();
                assert!(found.iter().map(Vec::len).sum::<usize>() <= 200_000, "{path}");
            }
            Err(error) => assert!(error.offset <= path.len() + 1, "{path}: {error}"),
        }
    }
    assert!(evaluated > 50, "only {evaluated} paths are valid");
}
