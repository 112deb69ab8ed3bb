//! Mirrors of a DNS zone and of etcd under common faults: impossible entries, unresponsive members, a revoked lease.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::json;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::dns_server::{DnsKind, DnsServer, KEY};
use crate::external_systems::Etcd;
use crate::haproxy::eventually;
use crate::run::start;

/// A cluster, and a folder with its kubeconfig and a configuration.
struct Fixture {
    _runtime: Runtime,
    server: ApiServer,
    folder: PathBuf,
}

impl Fixture {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-names-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let runtime = Runtime::new().expect("a runtime");
        let server = runtime.block_on(ApiServer::builder().tls(true).start()).expect("a server");
        for name in ["shop", "other"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            server.create(&namespace).expect("a namespace");
        }
        std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("a file");
        std::fs::write(folder.join("key"), KEY).expect("a file");
        Self { _runtime: runtime, server, folder }
    }

    /// Starts the program with one sink and one rule.
    fn start_program(&self, sink: &str, rule: &str) -> RunningProgram {
        let text = format!(
            "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.target]\n{sink}\n[[rules]]\nname = \"rule\"\n{rule}\nto = [\"target\"]\n"
        );
        let path = self.folder.join("notify.toml");
        std::fs::write(&path, text).expect("a file");
        RunningProgram(start(&["notify", "-c", &path.display().to_string()]))
    }

    fn create_config_map(&self, namespace: &str, name: &str, data: &[(&str, &str)]) {
        let data: serde_json::Map<_, _> = data.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": data,
        });
        self.server.create(&object).expect("a ConfigMap");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name_set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn wrong_dns_entries_affect_only_themselves() {
    let fixture = Fixture::start("dns");
    let Some(dns_server) = DnsServer::start(&fixture.folder, DnsKind::Bind) else { return };
    let sink = format!(
        "dns = {{ server = \"127.0.0.1:{}\", zone = \"example.org\", secret = {{ file = \"key\" }}, mark = \"trial\" }}",
        dns_server.port
    );
    let rule = "resources = [\"configmaps\"]\nwhen = \"'host' in object.data\"\n\
        send = \"\"\"{'key': object.metadata.namespace + '/' + object.metadata.name, 'name': object.data.host, 'type': object.data.type, \
        'data': object.data.data, 'ttl': int(object.data.ttl)}\"\"\"";
    fixture.create_config_map(
        "shop",
        "web",
        &[("host", "web.example.org"), ("type", "A"), ("data", "10.0.0.1"), ("ttl", "60")],
    );
    let _program = fixture.start_program(&sink, rule);
    eventually("the first name", || dns_server.names() == Some(name_set(&["web"])));
    let long_name = format!("{}.example.org", "x".repeat(70));
    let invalid_entries = [
        ("shop.example.net", "A", "10.0.0.2", "60"),
        ("bücher.example.org", "A", "10.0.0.2", "60"),
        (&*long_name, "A", "10.0.0.2", "60"),
        ("", "A", "10.0.0.2", "60"),
        ("minus.example.org", "A", "10.0.0.2", "-1"),
        ("word.example.org", "A", "10.0.0.2", "1h"),
        ("address.example.org", "A", "10.0.0", "60"),
        ("kind.example.org", "NS", "ns.example.org.", "60"),
        ("example.org", "CNAME", "web.example.org", "60"),
        ("web.example.org", "CNAME", "elsewhere.example.org", "60"),
        ("ns.example.org", "A", "10.0.0.2", "1"),
    ];
    for (number, (host, kind, data, ttl)) in invalid_entries.into_iter().enumerate() {
        let fields = [("host", host), ("type", kind), ("data", data), ("ttl", ttl)];
        fixture.create_config_map("other", &format!("wrong-{number}"), &fields);
    }
    // The invalid entries must not stop additions, changes and removals of other names.
    let long_ttl = [("host", "day.example.org"), ("type", "A"), ("data", "10.0.0.3"), ("ttl", "86400")];
    fixture.create_config_map("shop", "day", &long_ttl);
    eventually("the next name", || dns_server.names() == Some(name_set(&["day", "web"])));
    let patch = json!({"data": {"host": "moved.example.org"}});
    fixture.server.merge_patch("configmaps", "shop", "web", patch).expect("the object exists");
    eventually("the moved name", || {
        dns_server.names().is_some_and(|names| names.contains("moved") && !names.contains("web"))
    });
}

#[test]
fn etcd_keys_survive_failures() {
    let fixture = Fixture::start("etcd");
    let Some(etcd) = Etcd::start(&fixture.folder) else { return };
    // Accepts connections, and never responds.
    let silent_listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let sink = format!(
        "etcd = {{ endpoints = [\"http://{}\", \"{}\"], prefix = \"/services/\", mark = \"trial\" }}",
        silent_listener.local_addr().expect("an address"),
        etcd.url
    );
    let rule = "resources = [\"configmaps\"]\nwhen = \"'value' in object.data\"\n\
        send = \"{'key': object.metadata.name, 'value': object.data.value}\"";
    fixture.create_config_map("shop", "one", &[("value", "1")]);
    fixture.create_config_map("shop", "two", &[("value", "2")]);
    let large = "x".repeat(900_000);
    for name in ["large-1", "large-2", "large-3"] {
        fixture.create_config_map("other", name, &[("value", &large)]);
    }
    let _program = fixture.start_program(&sink, rule);
    let all_keys = Some(name_set(&["large-1", "large-2", "large-3", "one", "two"]));
    eventually("all keys", || etcd.keys() == all_keys);
    for lease in etcd.leases() {
        etcd.revoke(&lease);
    }
    let revocation_time = Instant::now();
    eventually("all keys again", || etcd.keys() == all_keys);
    assert!(revocation_time.elapsed() < Duration::from_secs(10), "{:?}", revocation_time.elapsed());
}
