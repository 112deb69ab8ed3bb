//! Errors in configurations, with positions and remedies.

use std::path::Path;

use steadfast_notify::Plan;

/// A valid configuration. Tests replace one line.
pub(crate) const VALID: &str = "\
[sinks.log.stdout]

[[rules]]
name = \"pods\"
resources = [\"pods\"]
when = \"changed('spec')\"
send = \"{'name': object.metadata.name}\"
to = [\"log\"]
";

fn errors_in(file: &str, text: &str) -> String {
    match Plan::read(file, text) {
        Ok(_) => panic!("nothing is wrong with {text}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn valid_configuration_is_accepted_in_both_languages() {
    let plan = Plan::read("a.toml", VALID).expect("a valid configuration");
    assert_eq!((plan.rules.len(), plan.sinks.len(), plan.clusters.len()), (1, 1, 1));
    let yaml = "sinks: {log: {stdout: {}}}\nrules:\n- {name: pods, resources: [pods], to: [log]}\n";
    let plan = Plan::read("a.yaml", yaml).expect("a valid configuration");
    assert_eq!(plan.rules[0].config.name, "pods");
}

/// Replaced line, replacement, position of the error, message and remedy.
const MISTAKES: [(&str, &str, &str, &str, &str); 48] = [
    (
        "[sinks.log.stdout]",
        "[clusters.a]\naudit = \"0s\"\n[sinks.log.stdout]",
        "2:9:",
        "the audit interval is too short",
        "at least `1s`",
    ),
    ("name = \"pods\"", "name = \"pods", "4:", "invalid TOML", "correct the syntax at or before"),
    ("name = \"pods\"", "nam = \"pods\"", "4:1:", "unknown field `nam`", "correct the field"),
    ("name = \"pods\"", "name = 7", "4:8:", "rules[0].name: invalid type: integer `7`", "notify schema"),
    ("name = \"pods\"", "name = \"po ds\"", "4:8:", "\"po ds\" is not a valid name", "use letters"),
    ("resources = [\"pods\"]", "", "3:", "missing field `resources`", "add the field"),
    ("resources = [\"pods\"]", "resources = []", "5:13:", "the list of `resources` is empty", "add resources"),
    ("resources = [\"pods\"]", "resources = [\"pods/x\"]", "5:14:", "is not a valid name", "one name per item"),
    ("to = [\"log\"]", "to = [\"log\", \"lag\"]", "8:14:", "unknown sink \"lag\"", "configured sinks: log"),
    ("to = [\"log\"]", "to = []", "8:6:", "the list of `to` is empty", "add the name of a sink"),
    ("to = [\"log\"]", "to = [\"log\"]\nclusters = [\"x\"]", "9:13:", "unknown cluster \"x\"", "remove `clusters`"),
    ("to = [\"log\"]", "to = [\"log\"]\nlabels = \"a in b\"", "9:10:", "in", "syntax of kubectl's -l"),
    ("to = [\"log\"]", "to = [\"log\"]\nevents = [\"Gone\"]", "9:11:", "unknown variant `Gone`", "notify schema"),
    ("to = [\"log\"]", "to = [\"log\"]\nevents = []", "9:10:", "the list of `events` is empty", "remove `events`"),
    ("[sinks.log.stdout]", "[sinks.log]", "1:", "the sink has no kind", "add one of"),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nexec = {command = [\"x\"]}",
        "1:",
        "the sink has several kinds",
        "one sink for each kind",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\ndebounce = \"x\"",
        "3:12:",
        "\"x\" is not a valid duration",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\ndebounce = \"9223372036854775000s\"",
        "3:12:",
        "is longer than ten years",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nretry = {give_up_after = \"87601h\"}",
        "3:26:",
        "is longer than ten years",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nexec = {command = []}",
        "2:19:",
        "the command is empty",
        "set a command such as",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"example.com\"}",
        "2:18:",
        "the URL is invalid",
        "use a full URL",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://u:hunter2@example.com\"}",
        "2:18:",
        "the URL contains a password",
        "secret_headers",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", headers = {Authorization = \"hunter2\"}}",
        "2:",
        "the configuration contains a secret",
        "secret_headers",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", hmac = \"hunter2\"}",
        "2:42:",
        "sinks.log.webhook.hmac: expected a reference to a secret",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", secret_headers = \"hunter2\"}",
        "2:52:",
        "expected a reference to a secret",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nrate = {per_second = 0}",
        "3:22:",
        "the rate is out of range",
        "0.001",
    ),
    ("[sinks.log.stdout]", "[sinks.log]\nstdout = {}\nconcurrency = 0", "3:15:", "the limit is 0", "set at least 1"),
    (
        "[sinks.log.stdout]",
        "[clusters.a]\nmemory_limit = 0\n[sinks.log.stdout]",
        "2:16:",
        "the memory limit is 0 bytes",
        "set at least one byte",
    ),
    // For an error in an expression, the position is that of the wrong character within the expression.
    ("when = \"changed('spec')\"", "when = \"changed('spec'\"", "6:", "rules[0].when", "correct the expression"),
    (
        "when = \"changed('spec')\"",
        "when = \"changed(spec)\"",
        "6:",
        "needs the path to a field, in quotes",
        "docs/notify.md",
    ),
    ("when = \"changed('spec')\"", "when = \"changed('spec..x')\"", "6:17:", "a name is empty", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"size(pod) > 1\"",
        "6:14:",
        "unknown variable `pod`; available: old, new",
        "correct",
    ),
    (
        "when = \"changed('spec')\"",
        "when = \"1 + 1\"",
        "6:",
        "the result is a number, expected true or false",
        "correct",
    ),
    (
        "when = \"changed('spec')\"",
        "when = \"event.kind == 'Added'\"",
        "6:",
        "`event` has no `kind`; it has id",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"event.type == 3\"", "6:", "text is never equal to a number", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"event.type && true\"",
        "6:",
        "the value is text, expected true",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"sizes(old) > 1\"", "6:", "unknown function `sizes`", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"timestamp('x') == 1\"",
        "6:",
        "a time is never equal to a number",
        "correct",
    ),
    (
        "when = \"changed('spec')\"",
        "when = \"now > duration('1h')\"",
        "6:",
        "a time cannot be compared to a duration",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"now - 1 > now\"", "6:", "a time, expected a number", "correct"),
    ("when = \"changed('spec')\"", "when = \"[1].all(a, b)\"", "6:20:", "unknown variable `b`", "correct"),
    ("when = \"changed('spec')\"", "when = \"[1].all(a, 'x')\"", "6:20:", "expected true or false", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"get(object.kind, 'web') == null\"",
        "6:9:",
        "`get` needs a resource in quotes, a namespace and a name",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"get('services') == null\"", "6:9:", "`get` needs a resource", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"get('services', 'shop', 7) == null\"",
        "6:33:",
        "the value is a number, expected text",
        "correct",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", body = \"get('nodes', 'a')\"}",
        "2:",
        "`get` is only available in `when` and `send` of a rule",
        "correct",
    ),
    ("send = \"{'name': object.metadata.name}\"", "send = \"{1: 2}\"", "7:10:", "the key is a number", "correct"),
    ("send = \"{'name': object.metadata.name}\"", "send = \"{'a': x}\"", "7:15:", "unknown variable `x`", "correct"),
];

#[test]
fn errors_have_position_and_remedy() {
    for (line, instead, position, description, remedy) in MISTAKES {
        assert!(VALID.contains(line), "{line}");
        let reported = errors_in("a.toml", &VALID.replace(line, instead));
        assert!(reported.starts_with(&format!("a.toml:{position}")), "{instead}: not at {position}: {reported}");
        assert!(
            reported.contains(description) && reported.contains(remedy),
            "{instead}: no {description:?} or {remedy:?} in: {reported}"
        );
        assert!(!reported.contains("hunter2"), "a secret is in: {reported}");
    }
}

#[test]
fn yaml_alias_cycles_and_bombs_are_rejected() {
    let cycle = "sinks: &all\n  log: *all\nrules: []\n";
    let reported = errors_in("a.yaml", cycle);
    assert!(
        reported.starts_with("a.yaml:2:8: the alias refers to") && reported.contains("replace the alias"),
        "{reported}"
    );

    let mut bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*x{}", level - 1); 10].join(", ");
        bomb += &["x", &level.to_string(), ": &x", &level.to_string(), " [", &aliases, "]\n"].concat();
    }
    let reported = errors_in("a.yaml", &bomb);
    assert!(reported.starts_with("a.yaml:") && reported.contains("budget breached"), "{reported}");
}

#[test]
fn yaml_errors_have_positions() {
    let valid_text = "sinks:\n  log:\n    stdout: {}\nrules:\n  - name: pods\n    resources: [pods]\n    to: [log]\n";
    for (line, instead, position, description) in [
        ("    to: [log]", "    to: [lag]", "7:10:", "unknown sink \"lag\""),
        ("    to: [log]", "    to: [log]\n    wen: x", "8:5:", "unknown field `wen`"),
        ("    to: [log]", "    to: [log]\n    when: size(pod) > 1", "8:16:", "unknown variable `pod`"),
        ("    to: [log]", "    to: [log", "", "invalid YAML"),
        ("    to: [log]", "    to: [log]\n    initial: 1", "8:14:", "rules[0].initial: invalid type"),
        (
            "    to: [log]",
            "    to: [log]\n    when: |\n      1 == 1 &&\n      size(pod) > 1",
            "",
            "line 2, column 6 of the expression",
        ),
    ] {
        let reported = errors_in("a.yaml", &valid_text.replace(line, instead));
        assert!(
            reported.starts_with(&format!("a.yaml:{position}")) && reported.contains(description),
            "{instead}: {reported}"
        );
    }
}

#[test]
fn errors_are_reported_in_file_order() {
    let text = VALID.replace("[\"pods\"]", "[]").replace("[\"log\"]", "[\"lag\"]").replace("'spec'", "'spec..'");
    let reported = errors_in("a.toml", &text);
    let line_numbers: Vec<&str> = reported.lines().map(|line| line.split(':').nth(1).expect("a line")).collect();
    assert_eq!(line_numbers, ["5", "6", "8"], "{reported}");
}

#[test]
fn missing_or_unknown_file_is_an_error() {
    let reported = Plan::load(Path::new("/nonexistent/x.toml")).map(drop).expect_err("a missing file").to_string();
    assert!(reported.starts_with("/nonexistent/x.toml:1:1: cannot read the file"), "{reported}");
    let reported = self::errors_in("rules.txt", VALID);
    assert!(reported.contains("rename the file to .toml or .yaml"), "{reported}");
}

#[test]
fn all_errors_are_reported_at_once() {
    let text = "\
[sinks.log.stdout]

[sinks.web]
haproxy = {sokcet = \"s\", backend = \"b\"}
drain = \"soon\"

[sinks.hook]
webhook = {url = \"example.com\", batch = \"x\"}

[[rules]]
nam = \"one\"
resources = [\"pods\"]
to = [\"log\", \"lag\"]

[[rules]]
name = \"two\"
resources = [\"pods\"]
when = \"object.x = 1\"
send = \"nothing\"
events = [\"Gone\"]
to = [\"hook\"]
";
    let reported = errors_in("a.toml", text);
    let expected = [
        ("4:12:", "unknown field `sokcet`"),
        ("5:9:", "sinks.web.drain"),
        ("8:18:", "the URL is invalid"),
        ("8:41:", "sinks.hook.webhook.batch"),
        ("11:1:", "unknown field `nam`"),
        ("18:18:", "rules[1].when"),
        ("19:9:", "unknown variable `nothing`"),
        ("20:11:", "unknown variant `Gone`"),
    ];
    assert_eq!(reported.lines().count(), expected.len(), "{reported}");
    for (line, (position, description)) in reported.lines().zip(expected) {
        assert!(
            line.starts_with(&format!("a.toml:{position}")) && line.contains(description),
            "{line}: not {position} {description}"
        );
    }
}
