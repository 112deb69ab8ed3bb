//! Checks of constants in entries against the target.

use steadfast_notify::Plan;

const HAPROXY: &str = "haproxy = {socket = \"s\", backend = \"b\"}";
const DNS: &str = "dns = {server = \"s\", zone = \"example.org\", mark = \"m\", secret = {env = \"X\"}}";

/// Returns the errors of a rule that sends an entry with these fields to this sink.
fn errors_in(sink: &str, fields: &str) -> String {
    let text = format!(
        "[sinks.web]\n{sink}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"web\"]\nsend = \"{{'key': object.a, {fields}}}\"\n"
    );
    Plan::read("a.toml", &text).err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn server_constants_are_checked() {
    assert_eq!(errors_in(HAPROXY, "'address': '10.0.0.1', 'port': 80, 'weight': 256"), "");
    for (fields, position, description) in [
        (
            "'address': '10.0.0.300', 'port': 80",
            "7:38:",
            "`address`: \"10.0.0.300\" is not an IP address; correct the value",
        ),
        ("'address': '::1', 'port': 0", "7:53:", "`port`: 0 is not a whole number from 1 to 65535"),
        ("'address': '::1', 'port': 1, 'weight': 257", "7:66:", "from 0 to 256"),
    ] {
        let reported = errors_in(HAPROXY, fields);
        assert!(
            reported.starts_with(&format!("a.toml:{position}")) && reported.contains(description),
            "{fields}: {reported}"
        );
    }
}

#[test]
fn record_constants_are_checked() {
    assert_eq!(errors_in(DNS, "'name': 'a.example.org', 'type': 'A', 'data': '10.0.0.1', 'ttl': 60"), "");
    for (fields, position, description) in [
        ("'name': 'a.example.org', 'type': 'MXX', 'data': object.a", "7:60:", "`type`: \"MXX\" is not a type"),
        ("'name': 'a.example.com', 'type': 'A', 'data': object.a", "7:35:", "`name`: "),
        ("'name': object.a, 'type': 'A', 'data': 'fd00::1'", "7:66:", "`data`: "),
        ("'name': object.a, 'type': 'A', 'data': object.b, 'ttl': -1", "7:8", "`ttl`: -1 is not a whole number"),
    ] {
        let reported = errors_in(DNS, fields);
        assert!(
            reported.starts_with(&format!("a.toml:{position}")) && reported.contains(description),
            "{fields}: {reported}"
        );
    }
}

/// Returns the warnings of `check`.
fn warnings_of(rule: &str) -> Vec<String> {
    let etcd = "etcd = {endpoints = [\"http://10.0.0.1:2379\"], prefix = \"/s/\", mark = \"m\"}";
    let text =
        format!("[sinks.web]\n{etcd}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"web\"]\n{rule}\n");
    let plan = Plan::read("a.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    plan.inspect().warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn constant_key_of_a_mirror_is_reported() {
    let warnings = warnings_of("send = \"{'key': 'leader', 'value': object.status.podIP}\"");
    let [warnings] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warnings.starts_with("a.toml:7:17:"), "{warnings}");
    assert!(warnings.contains("all objects of the rule share the key \"leader\""), "{warnings}");
    let warnings_of_list = warnings_of("send = \"object.status.podIPs.map(ip, {'key': 'a' , 'value': ip.ip})\"");
    assert_eq!(warnings_of_list.len(), 1, "{warnings_of_list:?}");
    assert_eq!(warnings_of("send = \"{'key': object.metadata.name, 'value': ''}\""), Vec::<String>::new());
    let rule_for_one_object =
        "send = \"{'key': 'leader', 'value': ''}\"\nnamespaces = [\"shop\"]\nfields = \"metadata.name=web\"";
    assert_eq!(warnings_of(rule_for_one_object), Vec::<String>::new());
}

/// Returns the errors of a webhook body, with the `send` of a rule.
fn errors_of_body(mode: &str, body: &str, send: &str) -> String {
    let text = format!(
        "[sinks.web]\nwebhook = {{url = \"https://e.com\", secrets = {{token = {{env = \"X\"}}}}, mode = \"{mode}\",\n\
         body = \"{body}\"}}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"web\"]\n{send}\n"
    );
    Plan::read("a.toml", &text).err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn unknown_fields_of_bodies_are_reported() {
    let send = "send = \"{'ip': object.status.podIP, 'node': object.spec}\"";
    for good in [
        "{'text': message.name + message.data.ip, 'at': message.unix_nanos, 'token': secrets.token}",
        "message.data.node.nodeName",
        "message.?namespace.orValue('')",
        "message[message.name]",
    ] {
        assert_eq!(errors_of_body("structured", good, send), "", "{good}");
    }
    assert_eq!(errors_of_body("batched", "messages.map(m, m.data.ip)", send), "");
    assert_eq!(
        errors_of_body("structured", "message.data.anything", "send = \"object.spec\""),
        "",
        "the fields are unknown"
    );
    assert_eq!(errors_of_body("structured", "message.data.resourceVersion", ""), "");
    for (mode, text, description, remedy) in [
        (
            "structured",
            "message.nme",
            "`message` has no `nme`, did you mean `name`?",
            "known fields are cluster, data, id",
        ),
        (
            "structured",
            "message.data.ipp",
            "`message.data` has no `ipp`, did you mean `ip`?",
            "known fields are ip, node",
        ),
        ("structured", "secrets.tokn", "`secrets` has no `tokn`, did you mean `token`?", "known fields are token"),
        ("batched", "messages.map(m, m.kind)", "`messages[]` has no `kind`", "known fields are cluster"),
        (
            "batched",
            "messages[0].data.nod",
            "`messages[].data` has no `nod`, did you mean `node`?",
            "known fields are ip",
        ),
    ] {
        let errors = errors_of_body(mode, text, send);
        assert!(
            errors.starts_with("a.toml:3:") && errors.contains(description) && errors.contains(remedy),
            "{text}: {errors}"
        );
    }
    let errors = errors_of_body("structured", "message.data.status", "");
    assert!(errors.contains("`message.data` has no `status`"), "{errors}");
}

#[test]
fn unknown_fields_of_groups_are_reported() {
    let errors_of_group =
        |group: &str| errors_in(&format!("{HAPROXY}\nguard = {{group = \"{group}\"}}"), "'address': '::1', 'port': 1");
    assert_eq!(errors_of_group("entry.address + object.metadata.namespace"), "");
    let errors = errors_of_group("entry.adress");
    assert!(errors.contains("`entry` has no `adress`, did you mean `address`?"), "{errors}");
}
