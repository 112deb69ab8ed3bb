//! The recipes of docs/cookbook.md, each run against an API server and, if it feeds a mirror, its real target.

#![expect(clippy::needless_pass_by_value, reason = "the values are written in place")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::dns_server::{DnsKind, DnsServer, KEY};
use crate::external_systems::Etcd;
use crate::haproxy::{Haproxy, eventually};
use crate::run::{KillOnDrop, finish, start_with_variables, stderr_text, temp_path};

/// Folder of one test; removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(temp_path(&format!("cookbook-{name}")));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the text of a recipe, which the cookbook must contain verbatim.
fn recipe(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: String| std::fs::read_to_string(root.join(path)).expect("a file of the repository");
    let text = read(format!("examples/notify/cookbook/{name}.toml"));
    let page = read("docs/cookbook.md".to_owned());
    assert!(
        page.contains(&format!("```toml\n{text}```\n")),
        "docs/cookbook.md does not contain {name}.toml word for word"
    );
    text
}

/// Runs a recipe in `folder` until `is_reached` returns true. Each of the `replacements` replaces a documented text of
/// the recipe, such as an address. Returns the RBAC manifests of the recipe.
fn run_recipe(
    name: &str,
    folder: &Path,
    replacements: &[(&str, &str)],
    objects: &[Value],
    is_reached: impl FnMut(&ApiServer) -> bool,
) -> String {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::builder().tls(true).start()).expect("an API server");
    for namespace in ["shop", "other"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        server.create(&object).expect("a namespace");
    }
    for object in objects {
        server.create(object).unwrap_or_else(|status| panic!("{status}: {object}"));
    }
    let write = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).expect("a file");
        folder.join(name).display().to_string()
    };
    let text = replacements.iter().fold(recipe(name), |text, (documented, replacement)| {
        assert!(text.contains(documented), "{documented} is not in the recipe");
        text.replace(documented, replacement)
    });
    write("key", KEY);
    let kubeconfig = write("kubeconfig", &server.kubeconfig());
    let configuration = write("notify.toml", &text);
    let variables = [("KUBECONFIG", kubeconfig.as_str())];
    let check_output = finish(start_with_variables(&["notify", "check", "--online", "-c", &configuration], &variables));
    assert_eq!(check_output.status.code(), Some(0), "{}", stderr_text(&check_output));
    let rbac_output = finish(start_with_variables(&["notify", "rbac", "-c", &configuration], &variables));
    assert_eq!(rbac_output.status.code(), Some(0), "{}", stderr_text(&rbac_output));
    let _program = KillOnDrop(start_with_variables(&["notify", "-c", &configuration], &variables));
    let mut is_reached = is_reached;
    eventually(&format!("the target of {name}"), || is_reached(&server));
    String::from_utf8_lossy(&rbac_output.stdout).into_owned()
}

fn pod(namespace: &str, name: &str, address: &str, is_ready: bool) -> Value {
    let is_ready = if is_ready { "True" } else { "False" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
        "status": {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": is_ready}]},
    })
}

fn slice(name: &str, service: &str, endpoints: Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

fn endpoint(name: &str, address: &str, conditions: Value) -> Value {
    let target = json!({"kind": "Pod", "namespace": "shop", "name": name, "uid": format!("uid-{name}")});
    json!({"addresses": [address], "conditions": conditions, "hostname": name, "targetRef": target})
}

fn service(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "shop", "name": name, "labels": {"dns": "public"}, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}, {"ip": "2001:db8::7"}, {"hostname": "a.example.net"}]}},
    })
}

/// Returns the weights of the servers, matched by the pod or node in their names.
fn weights(haproxy: &Haproxy, names: &[&str]) -> Option<Vec<u32>> {
    let servers: BTreeMap<String, u32> = haproxy.servers();
    let weight = |name_part: &&str| {
        let matching_weights: Vec<u32> =
            servers.iter().filter(|(name, _)| name.contains(name_part)).map(|(_, weight)| *weight).collect();
        (matching_weights.len() == 1).then(|| matching_weights[0])
    };
    let weights: Option<Vec<u32>> = names.iter().map(weight).collect();
    weights.filter(|weights| weights.len() == servers.len())
}

/// Returns the records of the zone as `NAME TTL TYPE DATA`, without the zone's own records and ownership marks.
fn records(dns_server: &DnsServer) -> BTreeSet<String> {
    let (port, mut command) = (dns_server.port.to_string(), Command::new("dig"));
    command.args(["@127.0.0.1", "-p", &port, "+tcp", "+noall", "+answer", "-y", KEY, "example.org", "AXFR"]);
    let output = command.stderr(Stdio::null()).output().expect("dig");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let records = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let records = records.filter(|fields| fields.len() == 5 && ["A", "AAAA", "CNAME"].contains(&fields[3]));
    let records = records.filter(|fields| fields[0] != "ns.example.org.");
    records
        .map(|fields| {
            format!("{} {} {} {}", fields[0].trim_end_matches(".example.org."), fields[1], fields[3], fields[4])
        })
        .collect()
}

fn has_records(dns_server: &DnsServer, expected: &[&str]) -> bool {
    records(dns_server) == expected.iter().map(|&record| record.to_owned()).collect()
}

/// Starts a DNS server in a folder of its own, and runs a recipe until the zone has the `expected` records.
fn run_dns(name: &str, objects: &[Value], expected: &[&str]) {
    let folder = Folder::new(name);
    let Some(dns_server) = DnsServer::start(&folder.0, DnsKind::Knot) else { return };
    let server = format!("127.0.0.1:{}", dns_server.port);
    run_recipe(name, &folder.0, &[("192.0.2.53", &server)], objects, |_| has_records(&dns_server, expected));
}

#[test]
fn balancer_recipe_follows_endpoint_slices() {
    let Some(haproxy) = Haproxy::start("cookbook-balancer") else { return };
    let socket = haproxy.folder.join("admin.sock").display().to_string();
    let terminating = json!({"ready": false, "serving": true, "terminating": true});
    let objects = [
        slice(
            "web-a",
            "web",
            json!([
                endpoint("web-0", "10.0.0.1", json!({"ready": true})),
                endpoint("web-1", "10.0.0.2", json!({"ready": false})),
                endpoint("web-2", "10.0.0.3", terminating),
            ]),
        ),
        slice(
            "web-b",
            "web",
            json!([endpoint("web-0", "10.0.0.1", json!({})), endpoint("web-3", "10.0.0.4", json!({}))]),
        ),
        slice("web-c", "web", Value::Null),
        slice("cart-a", "cart", json!([endpoint("cart-0", "10.0.0.9", json!({}))])),
    ];
    let mut is_scaled = false;
    let rights =
        run_recipe("balancer", &haproxy.folder.clone(), &[("/run/haproxy/admin.sock", &socket)], &objects, |server| {
            if !is_scaled {
                if weights(&haproxy, &["web-0", "web-1", "web-2", "web-3"]) != Some(vec![1, 0, 0, 1]) {
                    return false;
                }
                // No endpoint is ready any more. The endpoint that still serves remains.
                let unready = json!({"endpoints": [endpoint("web-3", "10.0.0.4", json!({"ready": false}))]});
                server.merge_patch("endpointslices.discovery.k8s.io", "shop", "web-b", unready).expect("a slice");
                let terminating = json!({"ready": false, "serving": true, "terminating": true});
                let remaining = json!({"endpoints": [
                    endpoint("web-0", "10.0.0.1", json!({"ready": false})),
                    endpoint("web-1", "10.0.0.2", json!({"ready": false})),
                    endpoint("web-2", "10.0.0.3", terminating),
                ]});
                server.merge_patch("endpointslices.discovery.k8s.io", "shop", "web-a", remaining).expect("a slice");
                is_scaled = true;
            }
            weights(&haproxy, &["web-0", "web-1", "web-2", "web-3"]) == Some(vec![0, 0, 1, 0])
        });
    assert!(rights.contains("resources: [endpointslices]") && rights.contains("namespace: shop"), "{rights}");
}

#[test]
fn services_recipe_names_load_balancers() {
    let mut pending = service("pending", json!({}));
    pending["status"] = json!({"loadBalancer": {}});
    let mut private = service("private", json!({}));
    private["metadata"]["labels"] = json!({});
    let expected = ["web.shop 30 A 198.51.100.7", "web.shop 30 AAAA 2001:db8::7"];
    run_dns("services", &[service("web", json!({})), pending, private], &expected);
}

#[test]
fn ingress_recipe_names_hosts() {
    let ingress = |namespace: &str, name: &str, hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"namespace": namespace, "name": name},
            "spec": {"rules": rules, "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
            "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}, {"ip": "198.51.100.8"}]}},
        })
    };
    let objects = [
        ingress("shop", "web", &["www.example.org", "shop.example.org", "*.example.org", "www.example.net"]),
        ingress("other", "web", &["stolen.example.org"]),
    ];
    let expected =
        ["shop 30 A 198.51.100.7", "shop 30 A 198.51.100.8", "www 30 A 198.51.100.7", "www 30 A 198.51.100.8"];
    run_dns("ingress", &objects, &expected);
}

#[test]
fn gateway_recipe_names_routes() {
    let definition = |plural: &str, kind: &str| {
        let singular = kind.to_lowercase();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.gateway.networking.k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "https://example.test/approved"},
            },
            "spec": {
                "group": "gateway.networking.k8s.io", "scope": "Namespaced",
                "names": {"plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        })
    };
    let object = |kind: &str, name: &str, spec: Value, status: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": kind,
            "metadata": {"namespace": "shop", "name": name}, "spec": spec, "status": status,
        })
    };
    let parents_status = |status: &str| json!({"parents": [{"conditions": [{"type": "Accepted", "status": status}]}]});
    let route = json!({"parentRefs": [{"name": "edge"}], "hostnames": ["www.example.org", "www.example.net"]});
    let pending = json!({"parentRefs": [{"name": "edge"}], "hostnames": ["pending.example.org"]});
    let objects = [
        definition("gateways", "Gateway"),
        definition("httproutes", "HTTPRoute"),
        object("Gateway", "edge", json!({}), json!({"addresses": [{"type": "IPAddress", "value": "198.51.100.7"}]})),
        object("HTTPRoute", "web", route, parents_status("True")),
        object("HTTPRoute", "pending", pending, parents_status("False")),
    ];
    let expected = ["edge.shop.gateways 30 A 198.51.100.7", "www 30 CNAME edge.shop.gateways.example.org."];
    run_dns("gateway", &objects, &expected);
}

#[test]
fn headless_recipe_names_pods() {
    let objects = [slice(
        "db-a",
        "db",
        json!([
            endpoint("db-0", "10.0.0.1", json!({"ready": true})),
            endpoint("db-1", "10.0.0.2", json!({"ready": false})),
            endpoint("db-2", "10.0.0.3", json!({})),
        ]),
    )];
    let expected =
        ["db-0.db.shop 30 A 10.0.0.1", "db-2.db.shop 30 A 10.0.0.3", "db.shop 30 A 10.0.0.1", "db.shop 30 A 10.0.0.3"];
    run_dns("headless", &objects, &expected);
}

#[test]
fn annotations_recipe_sets_ttl_and_weight() {
    let Some(haproxy) = Haproxy::start("cookbook-annotations") else { return };
    let Some(dns_server) = DnsServer::start(&haproxy.folder, DnsKind::Knot) else { return };
    let (server, socket) =
        (format!("127.0.0.1:{}", dns_server.port), haproxy.folder.join("admin.sock").display().to_string());
    let mut heavy = pod("shop", "heavy", "10.0.0.2", true);
    heavy["metadata"]["annotations"] = json!({"example.org/weight": "200"});
    let objects = [
        service("short", json!({"example.org/ttl": "5"})),
        service("usual", Value::Null),
        pod("shop", "plain", "10.0.0.1", true),
        heavy,
        pod("other", "foreign", "10.0.0.3", true),
    ];
    let replacements = [("192.0.2.53", server.as_str()), ("/run/haproxy/admin.sock", &socket)];
    run_recipe("annotations", &haproxy.folder.clone(), &replacements, &objects, |_| {
        let expected = [
            "short.shop 5 A 198.51.100.7",
            "short.shop 5 AAAA 2001:db8::7",
            "usual.shop 60 A 198.51.100.7",
            "usual.shop 60 AAAA 2001:db8::7",
        ];
        weights(&haproxy, &["plain", "heavy"]) == Some(vec![100, 200]) && has_records(&dns_server, &expected)
    });
}

#[test]
fn registry_recipe_has_key_per_ready_pod() {
    let folder = Folder::new("registry");
    let Some(etcd) = Etcd::start(&folder.0) else { return };
    let objects = [
        pod("shop", "web-0", "10.0.0.1", true),
        pod("shop", "web-1", "10.0.0.2", false),
        pod("other", "web-0", "10.0.0.3", true),
    ];
    run_recipe("registry", &folder.0, &[("http://127.0.0.1:2379", &etcd.url)], &objects, |_| {
        etcd.keys().is_some_and(|keys| keys.iter().map(String::as_str).eq(["shop/web/web-0"]))
    });
}

#[test]
fn nodes_recipe_balances_ready_nodes() {
    let Some(haproxy) = Haproxy::start("cookbook-nodes") else { return };
    let socket = haproxy.folder.join("admin.sock").display().to_string();
    let node = |name: &str, address: &str, is_ready: &str, labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": is_ready}],
            },
        })
    };
    let excluded = json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""});
    let objects = [
        node("node-1", "192.0.2.1", "True", json!({})),
        node("node-2", "192.0.2.2", "Unknown", json!({})),
        node("node-3", "192.0.2.3", "True", excluded),
    ];
    run_recipe("nodes", &haproxy.folder.clone(), &[("/run/haproxy/admin.sock", &socket)], &objects, |_| {
        weights(&haproxy, &["node-1", "node-2"]) == Some(vec![1, 0])
    });
}

#[test]
fn pending_recipe_reports_overdue_pod() {
    let folder = Folder::new("pending");
    let file = folder.0.join("lines");
    let sink = format!("exec = {{ command = [\"sh\", \"-c\", \"cat >> '{}'\"] }}", file.display());
    let mut pending = pod("shop", "web-0", "10.0.0.1", false);
    pending["status"] = json!({"phase": "Pending"});
    let running = pod("shop", "web-1", "10.0.0.2", true);
    let replacements = [("stdout = {}", sink.as_str()), ("duration('10m')", "duration('3s')")];
    run_recipe("pending", &folder.0, &replacements, &[pending, running], |_| {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(lines.len() <= 1, "{text}");
        let Some(line) = lines.first() else { return false };
        let id = line["id"].as_str().unwrap_or_default();
        assert!(
            line["name"] == "web-0" && line["data"].as_str().is_some_and(|data| data.starts_with("pending")),
            "{line}"
        );
        // If the program starts slowly, the pod is already old enough at the start. The ID then contains no instant.
        assert!(
            id.ends_with(&format!("~{}/pending", line["time"].as_str().unwrap_or_default())) || !id.contains('~'),
            "{id}"
        );
        true
    });
}

#[test]
fn tiers_recipe_follows_namespace_label() {
    let folder = Folder::new("tiers");
    let Some(etcd) = Etcd::start(&folder.0) else { return };
    let label = |server: &ApiServer, tier: Value| {
        let patch = json!({"metadata": {"labels": {"tier": tier}}});
        server.merge_patch("namespaces", "", "shop", patch).expect("the object exists");
    };
    let objects = [pod("shop", "web-0", "10.0.0.1", true), pod("other", "web-0", "10.0.0.3", true)];
    // The pod itself never changes.
    let expected = ["standard", "gold", "silver", "standard"];
    let mut reached = 0;
    let rights = run_recipe("tiers", &folder.0, &[("http://127.0.0.1:2379", &etcd.url)], &objects, |server| {
        if etcd.pairs("/tiers/") == Some(vec![("/tiers/shop/web-0".to_owned(), expected[reached].to_owned())]) {
            reached += 1;
            if reached < expected.len() {
                label(server, if reached == 3 { Value::Null } else { expected[reached].into() });
            }
        }
        reached == expected.len()
    });
    assert!(rights.contains("resources: [namespaces]") && rights.contains("resources: [pods]"), "{rights}");
}
