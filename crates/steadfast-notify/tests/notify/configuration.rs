//! Every mistake of a configuration has its error, with its place and what to do.

use std::path::Path;

use steadfast_notify::Plan;

/// A configuration with nothing wrong in it, but for what is put in the place of one line.
pub(crate) const GOOD: &str = "\
[sinks.log.stdout]

[[rules]]
name = \"pods\"
resources = [\"pods\"]
when = \"changed('spec')\"
send = \"{'name': object.metadata.name}\"
to = [\"log\"]
";

fn told(file: &str, text: &str) -> String {
    match Plan::read(file, text) {
        Ok(_) => panic!("nothing is wrong with {text}"),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn what_is_good_is_taken_in_both_languages() {
    let plan = Plan::read("a.toml", GOOD).expect("nothing is wrong");
    assert_eq!((plan.rules.len(), plan.sinks.len(), plan.clusters.len()), (1, 1, 1));
    let yaml = "sinks: {log: {stdout: {}}}\nrules:\n- {name: pods, resources: [pods], to: [log]}\n";
    let plan = Plan::read("a.yaml", yaml).expect("nothing is wrong");
    assert_eq!(plan.rules[0].config.name, "pods");
}

/// The line that is replaced, what by, where the error is, and what is in it.
const MISTAKES: [(&str, &str, &str, &str, &str); 48] = [
    (
        "[sinks.log.stdout]",
        "[clusters.a]\naudit = \"0s\"\n[sinks.log.stdout]",
        "2:9:",
        "without a pause",
        "at least a second",
    ),
    ("name = \"pods\"", "name = \"pods", "4:", "it is not TOML", "correct it there"),
    ("name = \"pods\"", "nam = \"pods\"", "4:1:", "unknown field `nam`", "spell it as one of those"),
    ("name = \"pods\"", "name = 7", "4:8:", "rules[0].name: invalid type: integer `7`", "notify schema"),
    ("name = \"pods\"", "name = \"po ds\"", "4:8:", "\"po ds\" is no name", "use letters"),
    ("resources = [\"pods\"]", "", "3:", "missing field `resources`", "add it"),
    ("resources = [\"pods\"]", "resources = []", "5:13:", "the list of `resources` is empty", "name what to look at"),
    ("resources = [\"pods\"]", "resources = [\"pods/x\"]", "5:14:", "names nothing", "each name by itself"),
    ("to = [\"log\"]", "to = [\"log\", \"lag\"]", "8:14:", "there is no sink \"lag\"", "there are log"),
    ("to = [\"log\"]", "to = []", "8:6:", "the list of `to` is empty", "name a sink"),
    ("to = [\"log\"]", "to = [\"log\"]\nclusters = [\"x\"]", "9:13:", "there is no cluster \"x\"", "leave it out"),
    ("to = [\"log\"]", "to = [\"log\"]\nlabels = \"a in b\"", "9:10:", "in", "as kubectl's -l"),
    ("to = [\"log\"]", "to = [\"log\"]\nevents = [\"Gone\"]", "9:11:", "unknown variant `Gone`", "notify schema"),
    ("to = [\"log\"]", "to = [\"log\"]\nevents = []", "9:10:", "the list of `events` is empty", "leave it out"),
    ("[sinks.log.stdout]", "[sinks.log]", "1:", "the sink leads nowhere", "give it one of"),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nexec = {command = [\"x\"]}",
        "1:",
        "leads to several places",
        "one sink for each",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\ndebounce = \"x\"",
        "3:12:",
        "\"x\" is no stretch of time",
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
    ("[sinks.log.stdout]", "[sinks.log]\nexec = {command = []}", "2:19:", "no program is named", "write it as"),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"example.com\"}",
        "2:18:",
        "no URL of a server",
        "write it whole",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://u:hunter2@example.com\"}",
        "2:18:",
        "a password is in the URL",
        "secret_headers",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", headers = {Authorization = \"hunter2\"}}",
        "2:",
        "a secret is in the configuration",
        "secret_headers",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", hmac = \"hunter2\"}",
        "2:42:",
        "sinks.log.webhook.hmac: it does not say where a secret is to be found",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", secret_headers = \"hunter2\"}",
        "2:52:",
        "where a secret is to be found",
        "schema",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nrate = {per_second = 0}",
        "3:22:",
        "the rate is no rate",
        "0.001",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nstdout = {}\nconcurrency = 0",
        "3:15:",
        "nothing may be under way",
        "allow one",
    ),
    (
        "[sinks.log.stdout]",
        "[clusters.a]\nmemory_limit = 0\n[sinks.log.stdout]",
        "2:16:",
        "no object fits into 0 bytes",
        "allow at least",
    ),
    // In expressions: the place is that of the letter.
    ("when = \"changed('spec')\"", "when = \"changed('spec'\"", "6:", "rules[0].when", "correct the expression"),
    (
        "when = \"changed('spec')\"",
        "when = \"changed(spec)\"",
        "6:",
        "takes the path to a field, in quotes",
        "docs/notify.md",
    ),
    ("when = \"changed('spec')\"", "when = \"changed('spec..x')\"", "6:17:", "a name is empty", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"size(pod) > 1\"",
        "6:14:",
        "there is no `pod`; there are old, new",
        "correct",
    ),
    (
        "when = \"changed('spec')\"",
        "when = \"1 + 1\"",
        "6:",
        "comes to a number, and has to come to true or false",
        "correct",
    ),
    (
        "when = \"changed('spec')\"",
        "when = \"event.kind == 'Added'\"",
        "6:",
        "`event` has no `kind`; it has id",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"event.type == 3\"", "6:", "a text is never equal to a number", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"event.type && true\"",
        "6:",
        "it is a text, and has to be true",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"sizes(old) > 1\"", "6:", "there is no function `sizes`", "correct"),
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
    ("when = \"changed('spec')\"", "when = \"now - 1 > now\"", "6:", "a time, and has to be a number", "correct"),
    ("when = \"changed('spec')\"", "when = \"[1].all(a, b)\"", "6:20:", "there is no `b`", "correct"),
    ("when = \"changed('spec')\"", "when = \"[1].all(a, 'x')\"", "6:20:", "has to be true or false", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"get(object.kind, 'web') == null\"",
        "6:9:",
        "`get` takes a resource in quotes, a namespace and a name",
        "correct",
    ),
    ("when = \"changed('spec')\"", "when = \"get('services') == null\"", "6:9:", "`get` takes a resource", "correct"),
    (
        "when = \"changed('spec')\"",
        "when = \"get('services', 'shop', 7) == null\"",
        "6:33:",
        "it is a number, and has to be a text",
        "correct",
    ),
    (
        "[sinks.log.stdout]",
        "[sinks.log]\nwebhook = {url = \"https://e.com\", body = \"get('nodes', 'a')\"}",
        "2:",
        "`get` is for `when` and `send` of a rule",
        "correct",
    ),
    ("send = \"{'name': object.metadata.name}\"", "send = \"{1: 2}\"", "7:10:", "a key is a number", "correct"),
    ("send = \"{'name': object.metadata.name}\"", "send = \"{'a': x}\"", "7:15:", "there is no `x`", "correct"),
];

#[test]
fn each_mistake_has_its_error_with_its_place_and_what_to_do() {
    for (line, instead, place, what, remedy) in MISTAKES {
        assert!(GOOD.contains(line), "{line}");
        let told = told("a.toml", &GOOD.replace(line, instead));
        assert!(told.starts_with(&format!("a.toml:{place}")), "{instead}: not at {place}: {told}");
        assert!(told.contains(what) && told.contains(remedy), "{instead}: no {what:?} or {remedy:?} in: {told}");
        assert!(!told.contains("hunter2"), "a secret is in: {told}");
    }
}

#[test]
fn a_cycle_of_aliases_and_one_that_grows_without_end_are_told_with_their_places() {
    let cycle = "sinks: &all\n  log: *all\nrules: []\n";
    let told_of = told("a.yaml", cycle);
    assert!(told_of.starts_with("a.yaml:2:8: the alias stands within") && told_of.contains("write out"), "{told_of}");

    let mut bomb = "x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*x{}", level - 1); 10].join(", ");
        bomb += &["x", &level.to_string(), ": &x", &level.to_string(), " [", &aliases, "]\n"].concat();
    }
    let told_of = told("a.yaml", &bomb);
    assert!(told_of.starts_with("a.yaml:") && told_of.contains("budget breached"), "{told_of}");
}

#[test]
fn mistakes_in_yaml_have_their_places_too() {
    let good = "sinks:\n  log:\n    stdout: {}\nrules:\n  - name: pods\n    resources: [pods]\n    to: [log]\n";
    for (line, instead, place, what) in [
        ("    to: [log]", "    to: [lag]", "7:10:", "there is no sink \"lag\""),
        ("    to: [log]", "    to: [log]\n    wen: x", "8:5:", "unknown field `wen`"),
        ("    to: [log]", "    to: [log]\n    when: size(pod) > 1", "8:16:", "there is no `pod`"),
        ("    to: [log]", "    to: [log", "", "it is not YAML"),
        ("    to: [log]", "    to: [log]\n    initial: 1", "8:14:", "rules[0].initial: invalid type"),
        (
            "    to: [log]",
            "    to: [log]\n    when: |\n      1 == 1 &&\n      size(pod) > 1",
            "",
            "line 2, column 6 of the expression",
        ),
    ] {
        let told = told("a.yaml", &good.replace(line, instead));
        assert!(told.starts_with(&format!("a.yaml:{place}")) && told.contains(what), "{instead}: {told}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_in_the_order_of_the_file() {
    let text = GOOD.replace("[\"pods\"]", "[]").replace("[\"log\"]", "[\"lag\"]").replace("'spec'", "'spec..'");
    let told = told("a.toml", &text);
    let places: Vec<&str> = told.lines().map(|line| line.split(':').nth(1).expect("a line")).collect();
    assert_eq!(places, ["5", "6", "8"], "{told}");
}

#[test]
fn a_file_that_is_not_there_or_in_no_language_is_an_error() {
    let told = Plan::load(Path::new("/nonexistent/x.toml")).map(drop).expect_err("it is not there").to_string();
    assert!(told.starts_with("/nonexistent/x.toml:1:1: it cannot be read"), "{told}");
    let told = self::told("rules.txt", GOOD);
    assert!(told.contains("call it .toml or .yaml"), "{told}");
}

#[test]
fn every_mistake_is_reported_at_once() {
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
    let told = told("a.toml", text);
    let expected = [
        ("4:12:", "unknown field `sokcet`"),
        ("5:9:", "sinks.web.drain"),
        ("8:18:", "it is no URL of a server"),
        ("8:41:", "sinks.hook.webhook.batch"),
        ("11:1:", "unknown field `nam`"),
        ("18:18:", "rules[1].when"),
        ("19:9:", "there is no `nothing`"),
        ("20:11:", "unknown variant `Gone`"),
    ];
    assert_eq!(told.lines().count(), expected.len(), "{told}");
    for (line, (place, what)) in told.lines().zip(expected) {
        assert!(line.starts_with(&format!("a.toml:{place}")) && line.contains(what), "{line}: not {place} {what}");
    }
}
