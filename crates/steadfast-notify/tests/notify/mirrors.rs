//! Errors in mirror configurations, with positions and remedies.

use steadfast_notify::{OpenedMirrors, Plan};
use tokio::runtime::Runtime;

use crate::folder::Folder;

/// A valid configuration. Tests replace one line.
const VALID: &str = "\
[sinks.web]
haproxy = {socket = \"admin.sock\", backend = \"web\"}

[[rules]]
name = \"pods\"
resources = [\"pods\"]
when = \"has(object.status.podIP)\"
send = \"{'key': object.metadata.name, 'address': object.status.podIP, 'port': 80}\"
to = [\"web\"]
";

const HAPROXY: &str = "haproxy = {socket = \"admin.sock\", backend = \"web\"}";
const HAS_ADDRESS: &str = "when = \"has(object.status.podIP)\"";
const SEND_ENTRY: &str = "send = \"{'key': object.metadata.name, 'address': object.status.podIP, 'port': 80}\"";
const TO_WEB: &str = "to = [\"web\"]";

/// Returns all errors in `text`, if any.
fn errors_in(file: &str, text: &str) -> Option<String> {
    match Plan::read(file, text) {
        Ok(plan) => Runtime::new()
            .expect("a runtime")
            .block_on(OpenedMirrors::open_all(&plan))
            .err()
            .map(|problems| problems.to_string()),
        Err(problems) => Some(problems.to_string()),
    }
}

/// Replaced line, replacement, position of the error, part of the message, and part of the remedy.
type Mistake<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str);

/// Checks that each mistake is reported at its position, with its remedy and without a secret.
fn check_mistakes(mistakes: &[Mistake<'_>]) {
    for &(line, instead, position, description, remedy) in mistakes {
        assert!(VALID.contains(line), "{line}");
        let text = VALID.replace(line, instead);
        let reported = errors_in("a.toml", &text).unwrap_or_else(|| panic!("nothing is wrong with {text}"));
        let found = reported
            .lines()
            .find(|line| line.contains(description))
            .unwrap_or_else(|| panic!("no {description:?} in {reported}"));
        assert!(found.starts_with(&format!("a.toml:{position}")), "{instead}: not at {position}: {found}");
        assert!(found.contains(remedy), "{instead}: no {remedy:?} in: {found}");
        assert!(!reported.contains("hunter2"), "a secret is in: {reported}");
    }
}

#[test]
fn mirror_errors_have_position_and_remedy() {
    assert_eq!(errors_in("a.toml", VALID), None);
    check_mistakes(&[
        (HAPROXY, "haproxi = {}", "2:1:", "unknown field `haproxi`, expected one of", "correct the field"),
        (HAPROXY, "haproxy = {socket = \"s\"}", "2:", "missing field `backend`", "add the field"),
        (
            HAPROXY,
            "haproxy = {socket = \"s\", backend = \"a b\"}",
            "2:",
            "\"a b\" is not a valid name in HAProxy",
            "use the name in HAProxy's configuration",
        ),
        (
            HAPROXY,
            "haproxy = {socket = \"s\", backend = \"b\", prefix = \"\"}",
            "2:",
            "is not a valid name in HAProxy",
            "use the name",
        ),
        (
            HAPROXY,
            "haproxy = {socket = \"s\", backend = \"b\", server_options = \"check inter\"}",
            "2:",
            "the servers cannot have the option `inter`: it needs a value",
            "the syntax of a `server` line",
        ),
        (
            HAPROXY,
            "haproxy = {socket = \"s\", backend = \"b\", server_options = [\"check\", \"weight 3\"]}",
            "2:",
            "the servers cannot have the option `weight`: it is the `weight` of an entry",
            "the syntax of a `server` line",
        ),
        (
            HAPROXY,
            "nftables = {address = \"web\"}",
            "2:",
            "sinks.web.nftables.address: invalid socket address",
            "schema",
        ),
        (
            HAPROXY,
            "nftables = {address = \"10.0.0.1:80\", name = \"a;b\"}",
            "2:",
            "is not a valid name in a ruleset",
            "another name",
        ),
        (HAPROXY, "nftables = {address = \"10.0.0.1:80\", command = []}", "2:", "the command is empty", "sudo"),
        (
            HAPROXY,
            "dns = {server = \"s\", zone = \"z\", mark = \"m\", secret = \"hunter2\"}",
            "2:",
            "expected a reference to a secret",
            "schema",
        ),
        (
            HAPROXY,
            "haproxy = {socket = \"s\", backend = \"b\"}\nstdout = {}",
            "1:",
            "the sink has several kinds",
            "one sink for each kind",
        ),
        (
            HAPROXY,
            &format!("{HAPROXY}\nrate = {{per_second = 1}}"),
            "3:8:",
            "`rate` applies to streams",
            "remove the setting",
        ),
        (
            HAPROXY,
            &format!("{HAPROXY}\nretry = {{first = \"2s\"}}"),
            "3:9:",
            "`retry` applies to streams",
            "remove the setting",
        ),
        (HAPROXY, "stdout = {}\ndrain = \"1s\"", "3:9:", "`drain` applies to mirrors", "remove the setting"),
        (HAPROXY, &format!("{HAPROXY}\nguard = {{share = 2}}"), "3:18:", "the share is out of range", "from 0 to 1"),
        (HAPROXY, &format!("{HAPROXY}\nguard = {{window = \"0s\"}}"), "3:", "the duration is zero", "more than 0s"),
        (HAPROXY, &format!("{HAPROXY}\ncompare = \"0s\""), "3:11:", "the duration is zero", "more than 0s"),
        (
            HAPROXY,
            &format!("{HAPROXY}\n[sinks.log.stdout]\n[sinks.cart]\n{HAPROXY}"),
            "1:",
            "the sink \"cart\" has the same target",
            "use one mirror for both rules",
        ),
        (TO_WEB, "to = [\"log\"]\n[sinks.log.stdout]", "1:", "no rule feeds the mirror", "add the sink to `to`"),
    ]);
}

#[test]
fn mirror_rule_errors_have_position_and_remedy() {
    check_mistakes(&[
        (SEND_ENTRY, "", "4:", "feeds the mirror \"web\" without `send`", "add `send`"),
        (TO_WEB, "to = [\"web\"]\nevents = [\"Added\"]", "10:10:", "not on kinds of changes", "a separate rule"),
        (
            HAS_ADDRESS,
            "when = \"changed('spec')\"",
            "7:8:",
            "`old` and `changed(…)` depend on changes",
            "use only `object`",
        ),
        (
            SEND_ENTRY,
            "send = \"{'key': old.metadata.name, 'address': '', 'port': 1}\"",
            "8:8:",
            "depend on changes",
            "use only",
        ),
        (
            SEND_ENTRY,
            "send = \"object.metadata.name + 'x'\"",
            "8:",
            "the result is text, expected an entry",
            "docs/notify.md",
        ),
        (
            SEND_ENTRY,
            "send = \"{'key': 'a', 'address': 'b'}\"",
            "8:",
            "an entry needs `port`; it has key, address",
            "docs/notify.md",
        ),
        (
            SEND_ENTRY,
            "send = \"{'key': 'a', 'adress': 'b', 'port': 1}\"",
            "8:22:",
            "an entry has no `adress`",
            "docs/notify.md",
        ),
        (
            SEND_ENTRY,
            "send = \"{'key': 'a', 'address': 'b', 'port': '80'}\"",
            "8:",
            "`port` is text, expected a number",
            "docs",
        ),
        (
            SEND_ENTRY,
            "send = \"[{'key': 'a', 'address': 'b', 'port': 1, 'ready': 1}]\"",
            "8:",
            "`ready` is a number",
            "docs",
        ),
        (
            SEND_ENTRY,
            "send = \"object.spec.ports.map(p, {'key': 'a', 'port': p})\"",
            "8:",
            "an entry needs `address`",
            "docs/notify.md",
        ),
    ]);
}

#[test]
fn invalid_dns_key_is_not_shown() {
    let folder = Folder::new("dns-key");
    let dns = "dns = {server = \"192.0.2.53\", zone = \"example.org\", mark = \"m\", secret = {file = \"key\"}}";
    let send = "send = \"{'key': 'a', 'name': 'a.example.org', 'type': 'A', 'data': object.status.podIP}\"";
    let text = VALID.replace(HAPROXY, dns).replace(SEND_ENTRY, send);
    let file = folder.join("a.toml").display().to_string();
    let missing = errors_in(&file, &text).expect("a missing file");
    assert!(missing.contains("a.toml:2:") && missing.contains("No such file"), "{missing}");
    assert!(missing.contains("store the key there as `ALGORITHM:NAME:SECRET`"), "{missing}");
    std::fs::write(folder.join("key"), "hmac-md5:mirror:aHVudGVyMg==").expect("enough space");
    let reported = errors_in(&file, &text).expect("an unsupported algorithm");
    assert!(reported.contains("a.toml:2:") && reported.contains("hmac-sha256"), "{reported}");
    assert!(!reported.contains("aHVudGVyMg"), "{reported}");
    std::fs::write(folder.join("key"), "hmac-sha256:mirror:c3RlYWRmYXN0IHN0ZWFkZmFzdCBzdGVhZGZhc3QhISE=\n")
        .expect("enough space");
    assert_eq!(self::errors_in(&file, &text), None);
}

#[test]
fn etcd_errors_have_remedies() {
    let send = "send = \"{'key': object.metadata.name, 'value': object.status.podIP}\"";
    let errors_of_fields = |etcd: &str| {
        errors_in("a.toml", &VALID.replace(HAPROXY, &format!("etcd = {{{etcd}}}")).replace(SEND_ENTRY, send))
    };
    let valid_fields = "endpoints = [\"http://10.0.0.1:2379\"], prefix = \"/services/\", mark = \"m\"";
    assert_eq!(errors_of_fields(valid_fields), None);
    assert_eq!(errors_of_fields(&format!("{valid_fields}, lease = \"2m\"")), None);
    for (etcd, description, remedy) in [
        (
            valid_fields.replace("http", "ftp"),
            "\"ftp://10.0.0.1:2379\" is not an endpoint of etcd",
            "list the client URLs",
        ),
        (valid_fields.replace("/services/", ""), "needs a prefix and a mark", "set the prefix of the keys"),
        (
            format!("{valid_fields}, lease = \"119s\""),
            "the lease could expire between two comparisons",
            "at least twice `compare`",
        ),
        (valid_fields.replace("prefix", "path"), "unknown field `path`", "correct the field"),
    ] {
        let reported = errors_of_fields(&etcd).expect(&etcd);
        assert!(
            reported.starts_with("a.toml:2:") && reported.contains(description) && reported.contains(remedy),
            "{etcd}: {reported}"
        );
    }
}

#[test]
fn registry_errors_have_remedies_without_secrets() {
    let send = "send = \"{'key': object.metadata.name, 'value': {'ip': object.status.podIP}}\"";
    let errors_of_fields = |registry: &str| {
        errors_in("a.toml", &VALID.replace(HAPROXY, &format!("registry = {{{registry}}}")).replace(SEND_ENTRY, send))
    };
    let url = "url = \"https://tree.example.test/services/{key}\"";
    let list = "list = \"https://tree.example.test/services?of={mark}&token=hunter2\"";
    let valid_fields = format!("{url}, {list}, mark = \"m\"");
    assert_eq!(errors_of_fields(&valid_fields), None);
    assert_eq!(
        errors_of_fields(&format!(
            "{valid_fields}, items = \"/all\", fields = {{key = \"name\"}}, headers = {{x = \"y\"}}"
        )),
        None
    );
    for (registry, description, remedy) in [
        (valid_fields.replace("\"m\"", "\"\""), "needs a mark", "set the owner of the items"),
        (valid_fields.replace("/{key}", ""), "has no `{key}` in its path", "correct the URL"),
        (
            valid_fields.replace("https://tree.example.test/services?", "https://other.example.test/?"),
            "has another server than",
            "correct the URL",
        ),
        (
            format!("{valid_fields}, secret_headers = {{authorization = {{file = \"none\"}}}}"),
            "none",
            "store the secret there",
        ),
        (format!("{valid_fields}, ca_file = \"none.pem\""), "none.pem", "correct the setting"),
        (valid_fields.replace("mark", "owner"), "unknown field `owner`", "correct the field"),
    ] {
        let reported = errors_of_fields(&registry).expect(&registry);
        assert!(
            reported.starts_with("a.toml:2:") && reported.contains(description) && reported.contains(remedy),
            "{registry}: {reported}"
        );
        assert!(!reported.contains("hunter2"), "{reported}");
    }
}

#[test]
fn overlapping_haproxy_prefixes_conflict() {
    let errors_of_prefixes = |first: &str, second: &str| {
        let sink = |prefix: &str| HAPROXY.replace('}', &format!(", prefix = \"{prefix}\"}}"));
        let text = VALID.replace(HAPROXY, &sink(first)).replace(TO_WEB, "to = [\"web\", \"cart\"]");
        errors_in("a.toml", &format!("{text}\n[sinks.cart]\n{}", sink(second)))
    };
    assert_eq!(errors_of_prefixes("web-", "cart-"), None);
    for (first, second) in [("web-", "web-"), ("web-", "web-cart-"), ("web-cart-", "web-")] {
        let reported =
            errors_of_prefixes(first, second).unwrap_or_else(|| panic!("{first} and {second} are two places"));
        assert!(reported.contains("the sink \"cart\" has the same target"), "{reported}");
    }
}
