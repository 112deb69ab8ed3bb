#![expect(clippy::needless_pass_by_value, reason = "the values are written in place")]

use serde_json::{Value, json};

use super::*;
use crate::plan::Plan;

const SINKS: &str = "\
[sinks.web]\nhaproxy = {socket = \"s\", backend = \"b\"}\n\
[sinks.names]\ndns = {server = \"s\", zone = \"example.org\", secret = {env = \"X\"}, mark = \"m\"}\n\
[sinks.keys]\netcd = {endpoints = [\"http://127.0.0.1:1\"], prefix = \"/p/\", mark = \"m\"}\n\
[sinks.items]\nregistry = {url = \"http://a/{key}\", list = \"http://a/?o={mark}\", mark = \"m\"}\n\
[sinks.four]\nipvs = {address = \"192.0.2.1:80\"}\n";

/// Reads the rule with these `fields` for the sink named `to`.
fn source(to: &str, fields: &str) -> EndpointSource {
    let sink = SINKS.split_inclusive('\n').collect::<Vec<_>>();
    let at = sink.iter().position(|line| line.trim() == format!("[sinks.{to}]")).expect("a sink of this name");
    let text = format!("{}{}[[rules]]\nname = \"r\"\nto = [\"{to}\"]\n{fields}\n", sink[at], sink[at + 1]);
    let plan = Plan::read("a.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    plan.rules[0].endpoints.clone().expect("a rule with endpoints")
}

fn slice(name: &str, kind: &str, ports: Value, endpoints: Value) -> EndpointSlice {
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": kind,
        "metadata": {"namespace": "shop", "name": name, "labels": {SERVICE_LABEL: "web"}},
        "ports": ports, "endpoints": endpoints,
    });
    EndpointSlice::read(&object).expect("an EndpointSlice")
}

fn http() -> Value {
    json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
}

/// Returns an endpoint: the pod `name` at this address with these conditions.
fn pod(name: &str, address: &str, conditions: Value) -> Value {
    let target = json!({"kind": "Pod", "namespace": "shop", "name": name, "uid": format!("uid-{name}")});
    json!({"addresses": [address], "conditions": conditions, "targetRef": target})
}

/// Returns keys with readiness, or the error for endpoints with unknown entries.
fn resolved_entries(source: &EndpointSource, slices: &[EndpointSlice]) -> Vec<(String, Option<bool>)> {
    let endpoints = source.resolve("here", slices.iter(), source.entry_fields);
    let reported = endpoints.into_iter().flat_map(|endpoint| match endpoint.entries {
        Ok(entries) => entries
            .into_iter()
            .map(|entry| (entry["key"].as_str().expect("a key").to_owned(), entry["ready"].as_bool()))
            .collect(),
        Err(reason) => vec![(reason, None)],
    });
    reported.collect()
}

fn ready(slices: &[EndpointSlice]) -> Vec<bool> {
    let resolved_entries = resolved_entries(&source("web", "endpoints = \"shop/web\""), slices);
    resolved_entries.into_iter().map(|(key, ready)| ready.unwrap_or_else(|| panic!("{key}"))).collect()
}

#[test]
fn endpoint_conditions_default_as_documented() {
    for (conditions, is_ready) in [
        (json!(null), true),
        (json!({}), true),
        (json!({"ready": null, "serving": null, "terminating": null}), true),
        (json!({"ready": true, "serving": true, "terminating": false}), true),
        (json!({"ready": false}), false),
        (json!({"ready": false, "serving": false, "terminating": true}), false),
    ] {
        let slice_with_conditions = slice("a", "IPv4", http(), json!([pod("web-0", "10.0.0.1", conditions.clone())]));
        assert_eq!(ready(&[slice_with_conditions]), [is_ready], "{conditions}");
    }
}

#[test]
fn terminating_endpoints_serve_only_without_ready_ones() {
    let terminating_conditions = json!({"ready": false, "serving": true, "terminating": true});
    let old = || slice("a", "IPv4", http(), json!([pod("old", "10.0.0.1", terminating_conditions.clone())]));
    let new = |is_ready: bool| slice("b", "IPv4", http(), json!([pod("new", "10.0.0.2", json!({"ready": is_ready}))]));
    assert_eq!(ready(&[old(), new(true)]), [true, false], "new and old, by name");
    assert_eq!(ready(&[old(), new(false)]), [false, true]);
    assert_eq!(ready(&[old()]), [true]);
    // A Service with publishNotReadyAddresses reports terminating pods as ready.
    let both = pod("old", "10.0.0.1", json!({"ready": true, "serving": true, "terminating": true}));
    assert_eq!(ready(&[slice("a", "IPv4", http(), json!([both])), new(true)]), [true, false]);
}

#[test]
fn endpoint_in_two_slices_counts_once() {
    let slice_with_conditions = |slice_name: &str, conditions: Value| {
        slice(slice_name, "IPv4", http(), json!([pod("web-0", "10.0.0.1", conditions)]))
    };
    assert_eq!(
        ready(&[
            slice_with_conditions("a", json!({"ready": false})),
            slice_with_conditions("b", json!({"ready": true}))
        ]),
        [true]
    );
    let terminated = json!({"ready": false, "serving": false, "terminating": true});
    assert_eq!(
        ready(&[slice_with_conditions("a", json!({"ready": true})), slice_with_conditions("b", terminated)]),
        [false],
        "the end is newer"
    );
}

#[test]
fn null_and_absent_lists_give_no_entries() {
    let source = source("web", "endpoints = \"shop/web\"\nport = \"http\"");
    for (ports, endpoints) in [(json!(null), json!(null)), (http(), json!(null)), (json!([]), json!([]))] {
        assert_eq!(resolved_entries(&source, &[slice("a", "IPv4", ports, endpoints)]), []);
    }
    let without_addresses = json!([{"addresses": null}, {}]);
    assert_eq!(resolved_entries(&source, &[slice("a", "IPv4", http(), without_addresses)]), []);
}

#[test]
fn endpoint_key_includes_pod_address_port() {
    let endpoints = json!([
        pod("web-0", "10.0.0.1", json!({})),
        {"addresses": ["10.0.0.2"]},
        {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Node", "name": "node-1"}},
    ]);
    let ipv6_slice = slice("b", "IPv6", http(), json!([pod("web-0", "fd00::1", json!({}))]));
    let slices = [slice("a", "IPv4", http(), endpoints), ipv6_slice];
    let keys = resolved_entries(&source("web", "endpoints = \"shop/web\""), &slices).into_iter().map(|(key, _)| key);
    assert_eq!(
        keys.collect::<Vec<_>>(),
        [
            "here.shop.web-0_10.0.0.1_8080",
            "here.shop.web-0_fd000000000000000000000000000001_8080",
            "here.shop.web_10.0.0.2_8080",
            "here.shop.web_10.0.0.3_8080",
        ]
    );
    let endpoint_entries = source("web", "endpoints = \"shop/web\"").resolve("here", slices.iter(), SERVER);
    let pod = endpoint_entries.iter().find(|entry| entry.name == "web-0").expect("the pod");
    assert_eq!((pod.uid.as_str(), pod.namespace.as_str()), ("uid-web-0", "shop"));
    assert_eq!(pod.entries.as_ref().map(Vec::len), Ok(2), "both families belong to the pod");
}

#[test]
fn family_selects_addresses() {
    let ipv4_slice = slice("a", "IPv4", http(), json!([pod("web-0", "10.0.0.1", json!({}))]));
    let ipv6_slice = slice("b", "IPv6", http(), json!([pod("web-0", "fd00::1", json!({}))]));
    for (to, fields, count) in
        [("web", "", 2), ("web", "family = \"ipv4\"", 1), ("web", "family = \"ipv6\"", 1), ("four", "", 1)]
    {
        let source = source(to, &format!("endpoints = \"shop/web\"\n{fields}"));
        assert_eq!(resolved_entries(&source, &[ipv4_slice.clone(), ipv6_slice.clone()]).len(), count, "{to} {fields}");
    }
}

#[test]
fn port_is_selected_by_name_or_number() {
    let two_ports = json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090}]);
    let first_entry = |fields: &str, ports: &Value| {
        let slices = [slice("a", "IPv4", ports.clone(), json!([pod("p", "10.0.0.1", json!({}))]))];
        resolved_entries(&source("web", &format!("endpoints = \"shop/web\"\n{fields}")), &slices).remove(0)
    };
    let key = |port: u16| (format!("here.shop.p_10.0.0.1_{port}"), Some(true));
    assert_eq!(first_entry("port = \"metrics\"", &two_ports), key(9090));
    assert_eq!(first_entry("port = 8080", &two_ports), key(8080));
    assert_eq!(first_entry("", &http()), key(8080));
    assert_eq!(first_entry("port = 7000", &json!(null)), key(7000));
    assert_eq!(first_entry("port = 7000", &json!([{"name": "all", "port": null}])), key(7000));
    for (fields, ports, reason) in [
        ("", &two_ports, "the ports http (8080), metrics (9090); choose one with `port`"),
        ("port = 80", &two_ports, "none is 80; `port` takes the name, or the number at the endpoints"),
        ("port = \"https\"", &two_ports, "none is \"https\""),
        ("", &json!(null), "has no port"),
        ("", &json!([{"port": 70_000}]), "none is a number"),
    ] {
        let (reported, is_ready) = first_entry(fields, ports);
        assert!(reported.contains(reason) && is_ready.is_none(), "{fields}: {reported}");
    }
}

#[test]
fn unusable_slice_concerns_only_its_endpoints() {
    let good = slice("a", "IPv4", http(), json!([pod("good", "10.0.0.1", json!({}))]));
    let names = slice("b", "FQDN", http(), json!([{"addresses": ["web.example.org"]}]));
    let bad = slice("c", "IPv4", http(), json!([pod("bad", "10.0.0.300", json!({}))]));
    let endpoints = source("web", "endpoints = \"shop/web\"").resolve("here", [good, names, bad].iter(), SERVER);
    let reported: Vec<_> =
        endpoints.iter().map(|endpoint| (endpoint.name.as_str(), endpoint.entries.is_ok())).collect();
    assert_eq!(reported, [("b", false), ("bad", false), ("good", true)]);
    let reason = endpoints[0].entries.as_ref().expect_err("names");
    assert!(reason.contains("FQDN"), "{reason}");
}

#[test]
fn unselected_services_are_skipped() {
    let source = source("web", "endpoints = [\"shop/web\", \"other/cart\"]\nport = 8080");
    let mut slice_of_service = slice("a", "IPv4", http(), json!([pod("p", "10.0.0.1", json!({}))]));
    assert_eq!(resolved_entries(&source, &[slice_of_service.clone()]).len(), 1);
    // The label selector also matches `cart` of the namespace shop, which the rule does not name.
    slice_of_service = EndpointSlice::read(&json!({
        "metadata": {"namespace": "shop", "name": "a", "labels": {SERVICE_LABEL: "cart"}},
        "ports": http(), "endpoints": [pod("p", "10.0.0.1", json!({}))],
    }))
    .expect("an EndpointSlice");
    assert_eq!(resolved_entries(&source, &[slice_of_service]), []);
}

#[test]
fn dns_and_registries_get_specific_entries() {
    let mut endpoint = pod("web-0", "10.0.0.1", json!({}));
    endpoint["hostname"] = "web-0".into();
    let slices = [slice("a", "IPv4", http(), json!([endpoint]))];
    let first_entries =
        |source: &EndpointSource| source.resolve("here", slices.iter(), source.entry_fields).remove(0).entries;
    let records =
        first_entries(&source("names", "endpoints = \"shop/web\"\nhost = \"web.example.org\"")).expect("records");
    let names: Vec<_> = records.iter().map(|record| (&record["name"], &record["type"], &record["data"])).collect();
    let (a, data) = (json!("A"), json!("10.0.0.1"));
    assert_eq!(names, [(&json!("web.example.org"), &a, &data), (&json!("web-0.web.example.org"), &a, &data)]);
    let keys = first_entries(&source("keys", "endpoints = \"shop/web\"")).expect("keys");
    assert_eq!(keys[0]["value"], "10.0.0.1:8080");
    assert_eq!(keys[0]["key"], "here.shop.web.web-0_10.0.0.1_8080");
    let items = first_entries(&source("items", "endpoints = \"shop/web\"")).expect("items");
    assert_eq!((&items[0]["value"]["pod"], &items[0]["value"]["port"]), (&json!("web-0"), &json!(8080)));
}

#[test]
fn rule_with_endpoints_watches_its_slices() {
    let text = format!(
        "{SINKS}[[rules]]\nname = \"r\"\nto = [\"web\"]\nendpoints = [\"shop/web\", \"shop/cart\", \"a/web\"]\nport = \"http\"\n\
         [[rules]]\nname = \"s\"\nto = [\"names\", \"keys\", \"items\", \"four\"]\nendpoints = \"shop/web\"\nhost = \"a.example.org\"\n"
    );
    let plan = Plan::read("a.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let rule = &plan.rules[0].config;
    assert_eq!(rule.resources, ["endpointslices.discovery.k8s.io"]);
    assert_eq!(rule.namespaces, ["a", "shop"]);
    assert_eq!(rule.labels.as_deref(), Some("kubernetes.io/service-name in (cart,web)"));
    assert_eq!(plan.rules[1].config.labels.as_deref(), Some("kubernetes.io/service-name=web"));
}
