//! Services, endpoints and ingresses.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::changes::phrases::{DescriptionBuilder, HealthEffect, at, list, listed, text, texts, transition};
use crate::changes::value_text::short;

pub(super) fn describe_service(description: &mut DescriptionBuilder<'_>) {
    description.add_field_change("type", "spec/type");
    description.add_field_change("address", "spec/clusterIP");
    description.consume_changed("spec/clusterIPs");
    description.add_field_change("external name", "spec/externalName");
    if description.consume_changed("spec/ports") {
        let (old, new) = (ports(description.old), ports(description.new));
        description.add_set_change("port", &old, &new);
    }
    if description.consume_changed("spec/selector") {
        let (old, new) = (selector(description.old), selector(description.new));
        description.add(HealthEffect::Neutral, transition("selector", &old, &new));
    }
    describe_load_balancer(description);
}

pub(super) fn describe_ingress(description: &mut DescriptionBuilder<'_>) {
    let hosts = |object: &Value| -> BTreeSet<String> {
        list(object, "spec/rules").iter().map(|rule| text(rule, "host").to_owned()).collect()
    };
    let (old, new) = (hosts(description.old), hosts(description.new));
    description.add_set_change("host", &old, &new);
    for host in old.symmetric_difference(&new) {
        description.mark_element_described("spec/rules", "host", host);
    }
    description.add_field_change("class", "spec/ingressClassName");
    describe_load_balancer(description);
}

fn describe_load_balancer(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("status/loadBalancer") {
        let addresses = |object: &Value| -> BTreeSet<String> {
            let entries = list(object, "status/loadBalancer/ingress").iter();
            let address = |entry: &Value| {
                let ip = text(entry, "ip");
                if ip.is_empty() { text(entry, "hostname").to_owned() } else { ip.to_owned() }
            };
            entries.map(address).collect()
        };
        let (old, new) = (addresses(description.old), addresses(description.new));
        description.add_set_change("load balancer", &old, &new);
    }
}

fn ports(service: &Value) -> BTreeSet<String> {
    let port = |port: &Value| {
        let target = at(port, "targetPort").filter(|target| Some(*target) != at(port, "port"));
        let target = target.map_or(String::new(), |target| format!("→{}", short(Some(target))));
        let protocol = Some(text(port, "protocol")).filter(|protocol| !["", "TCP"].contains(protocol));
        let protocol = protocol.map_or(String::new(), |protocol| format!("/{protocol}"));
        let node = at(port, "nodePort").map_or(String::new(), |node| format!(" (node port {node})"));
        format!("{}{protocol}{target}{node}", short(at(port, "port")))
    };
    list(service, "spec/ports").iter().map(port).collect()
}

fn selector(service: &Value) -> String {
    let labels = at(service, "spec/selector").and_then(Value::as_object).into_iter().flatten();
    let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={}", short(Some(value)))).collect();
    if labels.is_empty() { "none".to_owned() } else { labels.join(",") }
}

/// Addresses by their state.
#[derive(Default)]
struct Addresses {
    ready: BTreeSet<String>,
    not_ready: BTreeSet<String>,
    terminating: BTreeSet<String>,
}

impl Addresses {
    fn all(&self) -> BTreeSet<String> {
        [&self.ready, &self.not_ready, &self.terminating].into_iter().flatten().cloned().collect()
    }
}

pub(super) fn describe_endpoints(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("subsets") {
        let read_addresses = |object: &Value| {
            let mut addresses = Addresses::default();
            for subset in list(object, "subsets") {
                let ips = |field| list(subset, field).iter().map(|address| text(address, "ip").to_owned());
                addresses.ready.extend(ips("addresses"));
                addresses.not_ready.extend(ips("notReadyAddresses"));
            }
            addresses
        };
        let (old, new) = (read_addresses(description.old), read_addresses(description.new));
        describe_addresses(description, &old, &new);
        if old.all() == new.all() && old.ready == new.ready {
            description.add_fallback("ports or targets of endpoints changed");
        }
    }
}

pub(super) fn describe_endpoint_slice(description: &mut DescriptionBuilder<'_>) {
    if description.consume_changed("endpoints") {
        let read_addresses = |object: &Value| {
            let mut addresses = Addresses::default();
            for endpoint in list(object, "endpoints") {
                let condition_status =
                    |condition: &str| at(endpoint, &format!("conditions/{condition}")).and_then(Value::as_bool);
                let set = match (condition_status("terminating"), condition_status("ready")) {
                    (Some(true), _) => &mut addresses.terminating,
                    // A missing condition counts as ready.
                    (_, Some(false)) => &mut addresses.not_ready,
                    _ => &mut addresses.ready,
                };
                set.extend(texts(endpoint, "addresses"));
            }
            addresses
        };
        let (old, new) = (read_addresses(description.old), read_addresses(description.new));
        describe_addresses(description, &old, &new);
        let is_equal = old.ready == new.ready && old.not_ready == new.not_ready && old.terminating == new.terminating;
        if is_equal {
            description.add_fallback("details of endpoints changed");
        }
    }
    if description.consume_changed("ports") {
        let ports = |object: &Value| -> BTreeSet<String> {
            list(object, "ports").iter().map(|port| short(at(port, "port"))).collect()
        };
        let (old, new) = (ports(description.old), ports(description.new));
        description.add_set_change("port", &old, &new);
    }
}

fn describe_addresses(description: &mut DescriptionBuilder<'_>, old: &Addresses, new: &Addresses) {
    let (before, now) = (old.all(), new.all());
    description.add_set_change("endpoints", &before, &now);
    for (label, effect, set, set_before) in [
        ("ready", HealthEffect::Improved, &new.ready, &old.ready),
        ("not ready", HealthEffect::Degraded, &new.not_ready, &old.not_ready),
        ("terminating", HealthEffect::Degraded, &new.terminating, &old.terminating),
    ] {
        // A new endpoint is ready by default, so `ready` is stated only for endpoints that existed before.
        let is_stated = |address: &&String| label != "ready" || before.contains(*address);
        let now_in_state: Vec<String> = set.difference(set_before).filter(is_stated).cloned().collect();
        if !now_in_state.is_empty() {
            description.add(effect, format!("{label}: {}", listed(&now_in_state)));
        }
    }
}
