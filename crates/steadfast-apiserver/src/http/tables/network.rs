//! Cells of services, endpoints and routes.

use serde_json::Value;

use super::row::{Row, or_none, text_of};

/// Maximum number of endpoints or ports in a cell.
const MAX_CELL_ITEMS: usize = 3;

fn join_non_empty<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(",")
}

fn balancer_addresses(row: &Row) -> String {
    let balancers = row.items("/status/loadBalancer/ingress").iter();
    join_non_empty(balancers.map(|balancer| match text_of(balancer, "ip") {
        "" => text_of(balancer, "hostname"),
        address => address,
    }))
}

pub(in crate::http::tables) fn balancer(row: &Row) -> Value {
    balancer_addresses(row).into()
}

pub(in crate::http::tables) fn external_address(row: &Row) -> Value {
    let external_ips = join_non_empty(row.items("/spec/externalIPs").iter().filter_map(Value::as_str));
    match row.text("/spec/type") {
        "ExternalName" => row.text("/spec/externalName").to_owned(),
        "LoadBalancer" => match join_non_empty([balancer_addresses(row).as_str(), external_ips.as_str()].into_iter()) {
            // A load balancer without an address is not ready yet.
            none if none.is_empty() => "<pending>".to_owned(),
            addresses => addresses,
        },
        _ => or_none(external_ips),
    }
    .into()
}

fn integer_field(item: &Value, key: &str) -> i64 {
    item.get(key).and_then(Value::as_i64).unwrap_or(0)
}

fn protocol(port: &Value) -> &str {
    match text_of(port, "protocol") {
        "" => "TCP",
        protocol => protocol,
    }
}

pub(in crate::http::tables) fn service_ports(row: &Row) -> Value {
    let ports = row.items("/spec/ports").iter().map(|port| match integer_field(port, "nodePort") {
        0 => format!("{}/{}", integer_field(port, "port"), protocol(port)),
        node_port => format!("{}:{node_port}/{}", integer_field(port, "port"), protocol(port)),
    });
    or_none(ports.collect::<Vec<_>>().join(",")).into()
}

/// Formats the first texts and the number of the remaining texts.
fn first_few(texts: &[String]) -> String {
    let listed = or_none(texts[..texts.len().min(MAX_CELL_ITEMS)].join(","));
    match texts.len().saturating_sub(MAX_CELL_ITEMS) {
        0 => listed,
        more => format!("{listed} + {more} more..."),
    }
}

fn array_field<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

pub(in crate::http::tables) fn endpoints(row: &Row) -> Value {
    let mut found = Vec::new();
    for subset in row.items("/subsets") {
        let ports = array_field(subset, "ports");
        for address in array_field(subset, "addresses") {
            // An address without ports still counts as an endpoint.
            let host = text_of(address, "ip");
            if ports.is_empty() {
                found.push(host.to_owned());
            }
            found.extend(ports.iter().map(|port| format!("{host}:{}", integer_field(port, "port"))));
        }
    }
    first_few(&found).into()
}

pub(in crate::http::tables) fn slice_ports(row: &Row) -> Value {
    let ports: Vec<String> =
        row.items("/ports").iter().filter_map(|port| port.get("port")).map(ToString::to_string).collect();
    if ports.is_empty() { "<unset>".into() } else { first_few(&ports).into() }
}

pub(in crate::http::tables) fn slice_endpoints(row: &Row) -> Value {
    let addresses = row.items("/endpoints").iter().flat_map(|endpoint| array_field(endpoint, "addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    if addresses.is_empty() { "<unset>".into() } else { first_few(&addresses).into() }
}

pub(in crate::http::tables) fn hosts(row: &Row) -> Value {
    match join_non_empty(row.items("/spec/rules").iter().map(|rule| text_of(rule, "host"))) {
        all if all.is_empty() => "*".into(),
        hosts => hosts.into(),
    }
}

pub(in crate::http::tables) fn ingress_ports(row: &Row) -> Value {
    if row.count("/spec/tls") > 0 { "80, 443" } else { "80" }.into()
}

pub(in crate::http::tables) fn parameters(row: &Row) -> Value {
    let part = |key: &str| row.text(&format!("/spec/parameters/{key}"));
    match (part("apiGroup"), part("kind"), part("name")) {
        (_, _, "") => "<none>".into(),
        ("", kind, name) => format!("{kind}/{name}").into(),
        (group, kind, name) => format!("{kind}.{group}/{name}").into(),
    }
}
