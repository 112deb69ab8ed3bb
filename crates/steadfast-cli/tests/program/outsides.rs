//! A real DNS server and a real etcd, each with its own folder; read by their own tools.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use parking_lot::Mutex;

use crate::haproxy::eventually;

/// TSIG key for updates and reads of the zone, in the syntax of `nsupdate` and `dig`.
pub(crate) const KEY: &str = "hmac-sha256:mirror:bWlycm9yIG1pcnJvciBtaXJyb3IgbWlycm9yIG1pcnI=";

const ZONE: &str = "$ORIGIN example.org.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\nns A 127.0.0.1\n";

/// Returns the path of a program. Reports a missing program, or panics if references are required.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()));
    if found.is_none() {
        let is_required = std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1");
        assert!(!is_required, "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no {program} on the path");
        // Written to the terminal, because the harness captures the output of passing tests.
        let told = format!("skipped: there is no {program} on the path\n");
        std::io::stderr().write_all(told.as_bytes()).expect("standard error is writable");
    }
    found
}

pub(crate) fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// Returns the output of a tool; `None` if it fails.
fn answered(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Knot with the zone `example.org`; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Knot {
    pub(crate) port: u16,
    folder: PathBuf,
    process: Mutex<Child>,
}

impl Knot {
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        let (knotd, _) = (found("knotd")?, found("dig")?);
        let folder = folder.join("knot");
        std::fs::create_dir_all(&folder).expect("the folder is writable");
        let (port, place) = (free(), folder.display());
        let secret = KEY.rsplit(':').next().unwrap_or_default();
        let text = format!(
            "server:\n    rundir: {place}\n    listen: 127.0.0.1@{port}\n    tcp-workers: 2\n    udp-workers: 1\ndatabase:\n    \
             storage: {place}\n    journal-db-max-size: 16M\nkey:\n  - id: mirror\n    algorithm: hmac-sha256\n    secret: {secret}\n\
             acl:\n  - id: mirror\n    key: mirror\n    action: [transfer, update]\nzone:\n  - domain: example.org\n    \
             storage: {place}\n    file: zone\n    zonefile-sync: -1\n    acl: mirror\n"
        );
        std::fs::write(folder.join("conf"), text).expect("the folder is writable");
        std::fs::write(folder.join("zone"), ZONE).expect("the folder is writable");
        let process = Mutex::new(spawn_knot(&knotd, &folder));
        let knot = Self { port, folder, process };
        eventually("the zone", || knot.names().is_some());
        Some(knot)
    }

    /// Kills the server, restores the initial zone with its serial number, and restarts the server.
    pub(crate) fn restore(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
        for state in ["journal", "timers"] {
            let _ = std::fs::remove_dir_all(self.folder.join(state));
        }
        std::fs::write(self.folder.join("zone"), ZONE).expect("the folder is writable");
        *process = spawn_knot(&found("knotd").expect("the program is installed"), &self.folder);
        eventually("the zone", || self.names().is_some());
    }

    /// Returns the names with an address; `None` if the server does not respond.
    pub(crate) fn names(&self) -> Option<BTreeSet<String>> {
        let text = self.transfer()?;
        let records = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let addresses = records.filter(|record| record.get(3) == Some(&"A"));
        let names = addresses.filter_map(|record| record[0].strip_suffix(".example.org.").map(str::to_owned));
        Some(names.filter(|name| name != "ns").collect())
    }

    /// Returns all records by name, except the server's own records and ownership marks. Returns `None` if the server does not
    /// respond.
    pub(crate) fn records(&self) -> Option<Vec<(String, String)>> {
        let records = self.transfer()?;
        let records = records.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (name, ttl, kind, data) = (fields.first()?, fields.get(1)?, fields.get(3)?, fields.get(4..)?.join(" "));
            let is_own =
                ["SOA", "NS", "TSIG"].contains(kind) || *name == "ns.example.org." || name.contains("_steadfast");
            (!is_own).then(|| ((*name).to_owned(), format!("{ttl} {kind} {data}")))
        });
        Some(records.collect())
    }

    fn transfer(&self) -> Option<String> {
        let (port, mut command) = (self.port.to_string(), Command::new("dig"));
        command.args(["@127.0.0.1", "-p", &port, "+tcp", "+noall", "+answer", "-y", KEY, "example.org", "AXFR"]);
        answered(&mut command).filter(|text| text.contains("SOA"))
    }

    /// Removes a name and its ownership mark, like a manual change.
    pub(crate) fn take_out(&self, name: &str) {
        let lines = format!(
            "server 127.0.0.1 {}\nzone example.org\nupdate delete {name}.example.org A\nupdate delete \
             _steadfast.{name}.example.org TXT\nsend\n",
            self.port
        );
        let mut command = Command::new("nsupdate");
        let mut child = command.args(["-v", "-y", KEY]).stdin(Stdio::piped()).spawn().expect("installed with dig");
        child.stdin.take().expect("a piped stdin").write_all(lines.as_bytes()).expect("the process accepts input");
        assert!(child.wait().expect("an exit status").success());
    }
}

fn spawn_knot(program: &Path, folder: &Path) -> Child {
    let mut command = Command::new(program);
    command.arg("-c").arg(folder.join("conf")).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the process starts")
}

impl Drop for Knot {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        let _ = process.kill();
        let _ = process.wait();
    }
}

/// An etcd of one member; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Etcd {
    pub(crate) url: String,
    arguments: Vec<OsString>,
    process: Mutex<Child>,
}

impl Etcd {
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        let (etcd, _) = (found("etcd")?, found("etcdctl")?);
        let (url, peer) = (format!("http://127.0.0.1:{}", free()), format!("http://127.0.0.1:{}", free()));
        let mut arguments: Vec<OsString> = vec!["--data-dir".into(), folder.join("etcd").into()];
        arguments.extend(["--listen-client-urls", &url, "--advertise-client-urls", &url].map(OsString::from));
        arguments.extend(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer].map(OsString::from));
        arguments.extend(["--initial-cluster".into(), format!("default={peer}").into()]);
        let etcd = Self { url, process: Mutex::new(spawn_etcd(&etcd, &arguments)), arguments };
        eventually("etcd", || etcd.keys().is_some());
        Some(etcd)
    }

    /// Kills the member and starts it again with its data.
    pub(crate) fn restart(&self) {
        let mut process = self.process.lock();
        let _ = process.kill();
        let _ = process.wait();
        *process = spawn_etcd(&found("etcd").expect("the program is installed"), &self.arguments);
        eventually("etcd", || self.keys().is_some());
    }

    /// Revokes all leases, which removes their keys.
    pub(crate) fn revoke_leases(&self) {
        let leases = self.etcdctl(&["lease", "list"]).expect("etcd responds");
        // The first line is the number of leases. Each further line is the ID of one lease in hexadecimal.
        let is_lease = |line: &&str| line.len() == 16 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        for lease in leases.lines().map(str::trim).filter(is_lease) {
            self.etcdctl(&["lease", "revoke", lease]).expect("the lease exists");
        }
    }

    /// Returns the values of the keys under `prefix`; `None` if etcd does not respond.
    pub(crate) fn values(&self, prefix: &str) -> Option<Vec<String>> {
        let text = self.etcdctl(&["get", prefix, "--prefix", "--print-value-only"])?;
        Some(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }

    /// Returns the keys under `/services/`; `None` if etcd does not respond.
    pub(crate) fn keys(&self) -> Option<BTreeSet<String>> {
        let text = self.etcdctl(&["get", "/services/", "--prefix", "--keys-only"])?;
        Some(text.lines().filter_map(|line| line.strip_prefix("/services/").map(str::to_owned)).collect())
    }

    /// Returns the keys under `prefix` with their values; `None` if etcd does not respond.
    pub(crate) fn pairs(&self, prefix: &str) -> Option<Vec<(String, String)>> {
        let text = self.etcdctl(&["get", prefix, "--prefix", "-w", "json"])?;
        let read: serde_json::Value = serde_json::from_str(&text).ok()?;
        let pairs = read["kvs"].as_array().into_iter().flatten();
        Some(pairs.filter_map(|pair| Some((decoded(&pair["key"])?, decoded(&pair["value"])?))).collect())
    }

    /// Removes a key, like a manual change.
    pub(crate) fn take_out(&self, key: &str) {
        self.etcdctl(&["del", &format!("/services/{key}")]).expect("etcd responds");
    }

    /// Returns all leases.
    pub(crate) fn leases(&self) -> Vec<String> {
        let text = self.etcdctl(&["lease", "list"]).expect("a response");
        text.lines().skip(1).map(|line| line.trim().to_owned()).collect()
    }

    pub(crate) fn revoke(&self, lease: &str) {
        self.etcdctl(&["lease", "revoke", lease]).expect("a lease");
    }

    fn etcdctl(&self, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("etcdctl");
        answered(command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url]).args(arguments))
    }
}

/// Decodes a key or value from the Base64 of etcdctl. Replaces invalid UTF-8.
fn decoded(text: &serde_json::Value) -> Option<String> {
    let bytes = BASE64_STANDARD.decode(text.as_str().unwrap_or_default()).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn spawn_etcd(program: &Path, arguments: &[OsString]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the process starts")
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        let _ = process.kill();
        let _ = process.wait();
    }
}
