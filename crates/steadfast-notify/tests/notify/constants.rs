//! Constants in entries are checked by the target that gets them, before there is an object.

use steadfast_notify::Plan;

const HAPROXY: &str = "haproxy = {socket = \"s\", backend = \"b\"}";
const DNS: &str = "dns = {server = \"s\", zone = \"example.org\", mark = \"m\", secret = {env = \"X\"}}";

/// What is wrong with a rule that sends an entry with these fields to this sink.
fn told(sink: &str, fields: &str) -> String {
    let text = format!(
        "[sinks.web]\n{sink}\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"web\"]\nsend = \"{{'key': object.a, {fields}}}\"\n"
    );
    Plan::read("a.toml", &text).err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn server_constants_are_checked() {
    assert_eq!(told(HAPROXY, "'address': '10.0.0.1', 'port': 80, 'weight': 256"), "");
    for (fields, place, what) in [
        ("'address': '10.0.0.300', 'port': 80", "7:38:", "`address`: \"10.0.0.300\" is not an IP address; correct it"),
        ("'address': '::1', 'port': 0", "7:53:", "`port`: 0 is not a whole number from 1 to 65535"),
        ("'address': '::1', 'port': 1, 'weight': 257", "7:66:", "from 0 to 256"),
    ] {
        let told = told(HAPROXY, fields);
        assert!(told.starts_with(&format!("a.toml:{place}")) && told.contains(what), "{fields}: {told}");
    }
}

#[test]
fn record_constants_are_checked() {
    assert_eq!(told(DNS, "'name': 'a.example.org', 'type': 'A', 'data': '10.0.0.1', 'ttl': 60"), "");
    for (fields, place, what) in [
        ("'name': 'a.example.org', 'type': 'MXX', 'data': object.a", "7:60:", "`type`: \"MXX\" is not a type"),
        ("'name': 'a.example.com', 'type': 'A', 'data': object.a", "7:35:", "`name`: "),
        ("'name': object.a, 'type': 'A', 'data': 'fd00::1'", "7:66:", "`data`: "),
        ("'name': object.a, 'type': 'A', 'data': object.b, 'ttl': -1", "7:8", "`ttl`: -1 is not a whole number"),
    ] {
        let told = told(DNS, fields);
        assert!(told.starts_with(&format!("a.toml:{place}")) && told.contains(what), "{fields}: {told}");
    }
}
