//! Objects of a careless or hostile tenant: random nonsense within the rights of an ordinary user.

use serde_json::{Map, Value, json};
use steadfast::unstable::random::Random;

/// Namespace of the tenant. Sorts before all others.
pub(crate) const TENANT: &str = "aaa";

/// Label of the pods that rules select.
const SELECTED_LABEL: &str = "web";

/// Bytes of the largest value. All annotations of an object can have 256 KiB together.
const MAX_VALUE_BYTES: usize = 120_000;

/// Identities of other tenants that the hostile tenant claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClaimedIdentities {
    pub(crate) names: Vec<String>,
    pub(crate) addresses: Vec<String>,
    /// DNS names in full.
    pub(crate) hosts: Vec<String>,
    /// Keys of etcd without their prefix.
    pub(crate) keys: Vec<String>,
}

fn pick<'a>(rng: &mut Random, texts: &[&'a str]) -> &'a str {
    texts[rng.below(texts.len() as u64) as usize]
}

fn pick_claimed(rng: &mut Random, texts: &[String]) -> String {
    let default = String::from("nothing");
    texts.get(rng.below(texts.len().max(1) as u64) as usize).unwrap_or(&default).clone()
}

/// Text that no field expects.
fn garbage(rng: &mut Random) -> String {
    match rng.below(8) {
        0 => "x".repeat(rng.below(MAX_VALUE_BYTES as u64) as usize),
        1 => "\u{1b}[2J\u{1b}]0;owned\u{7}\r\n\u{0}mirror web: synced".to_owned(),
        2 => format!("{}.example.org", "l".repeat(64 + rng.below(200) as usize)),
        _ => pick(
            rng,
            &[
                "",
                " ",
                "..",
                "../../x",
                "/",
                "a//b",
                "-1",
                "0",
                "1e9",
                "86400",
                "65536",
                "99999999999999999999",
                "NaN",
                "grüße.example.org",
                "www.example.com",
                "*.example.org",
                "example.org",
                ".",
                "_steadfast.web.example.org",
                "weight 0; del server web/x",
                "\"'`$(id)",
                "{key}",
                "null",
                "A",
                "CNAME",
                "SOA",
                "0.0.0.0",
                "::",
                "fe80::1%lo",
            ],
        )
        .to_owned(),
    }
}

/// Values of the annotations that rules read: mostly garbage, sometimes another tenant's, sometimes valid.
fn annotations(rng: &mut Random, claimed: &ClaimedIdentities) -> Value {
    let mut annotations = Map::new();
    for name in ["port", "weight", "name", "type", "data", "ttl", "key", "value"] {
        let victim_value = match name {
            "name" => pick_claimed(rng, &claimed.hosts),
            "data" => pick_claimed(rng, &claimed.addresses),
            "key" => pick_claimed(rng, &claimed.keys),
            "type" => pick(rng, &["A", "AAAA", "CNAME", "SRV", "TXT", "MX", "NS", "SOA", "PTR", "a"]).to_owned(),
            "ttl" => pick(rng, &["0", "1", "60", "86400", "2147483647", "4294967296"]).to_owned(),
            "port" => pick(rng, &["80", "0", "65536"]).to_owned(),
            "weight" => pick(rng, &["1", "256", "257"]).to_owned(),
            _ => "value".to_owned(),
        };
        let value = match rng.below(4) {
            0 => continue,
            1 => garbage(rng),
            _ => victim_value,
        };
        annotations.insert(format!("example.org/{name}"), value.into());
    }
    // Within the limit of the API server.
    let size: usize = annotations.values().filter_map(Value::as_str).map(str::len).sum();
    if size < 250_000 { annotations.into() } else { json!({}) }
}

/// Returns a random pod, service or config map of the namespace [`TENANT`]. The API server rejects some of these
/// objects.
pub(crate) fn object(rng: &mut Random, claimed: &ClaimedIdentities) -> Value {
    let name = match rng.below(3) {
        0 => format!("n-{}", rng.below(20)),
        _ => pick_claimed(rng, &claimed.names),
    };
    let annotations = annotations(rng, claimed);
    let metadata = json!({
        "namespace": TENANT, "name": name, "labels": {"app": SELECTED_LABEL}, "annotations": annotations,
    });
    match rng.below(6) {
        0 => json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]},
        }),
        1 => {
            let mut data = Map::new();
            for number in 0..pick(rng, &["1", "10", "3000"]).parse().unwrap_or(1) {
                let key = match rng.below(4) {
                    0 => pick_claimed(rng, &claimed.keys).replace('/', "."),
                    1 => pick(rng, &["...", "a..b", "-", "_steadfast"]).to_owned(),
                    _ => format!("key-{number}"),
                };
                data.insert(key, json!(format!("value of the tenant {}", rng.below(100))));
            }
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        }
        _ => {
            let address = match rng.below(4) {
                0 => format!("10.66.{}.{}", rng.below(4), rng.below(250) + 1),
                1 => garbage(rng),
                _ => pick_claimed(rng, &claimed.addresses),
            };
            let ready_status = pick(rng, &["True", "False", "Unknown", "maybe"]);
            let conditions =
                if rng.below(4) == 0 { json!([]) } else { json!([{"type": "Ready", "status": ready_status}]) };
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
                "status": {"phase": "Running", "podIP": address, "conditions": conditions},
            })
        }
    }
}

/// Plural name of the resource of an object that [`object`] made.
pub(crate) fn resource(object: &Value) -> &'static str {
    match object["kind"].as_str() {
        Some("Service") => "services",
        Some("ConfigMap") => "configmaps",
        _ => "pods",
    }
}
