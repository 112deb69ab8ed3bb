//! A real etcd with its own folder, read by its own tool, and helpers for other real systems.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use parking_lot::Mutex;

use crate::haproxy::eventually;

/// Returns the path of a program. Reports a missing program. Panics instead if `STEADFAST_REQUIRE_REFERENCE` is 1.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let path_of_program = folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()));
    if path_of_program.is_none() {
        let is_required = std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1");
        assert!(!is_required, "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: there is no {program} on the path");
        // Written to the terminal, because the harness captures the output of passing tests.
        let message = format!("skipped: there is no {program} on the path\n");
        std::io::stderr().write_all(message.as_bytes()).expect("standard error is writable");
    }
    path_of_program
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// Returns the output of a tool; `None` if it fails.
pub(crate) fn tool_output(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
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
        let (etcd, _) = (find_program("etcd")?, find_program("etcdctl")?);
        let (url, peer) = (format!("http://127.0.0.1:{}", free_port()), format!("http://127.0.0.1:{}", free_port()));
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
        *process = spawn_etcd(&find_program("etcd").expect("the program is installed"), &self.arguments);
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
        let response: serde_json::Value = serde_json::from_str(&text).ok()?;
        let pairs = response["kvs"].as_array().into_iter().flatten();
        Some(pairs.filter_map(|pair| Some((decode_base64(&pair["key"])?, decode_base64(&pair["value"])?))).collect())
    }

    /// Removes a key, like a manual change.
    pub(crate) fn remove(&self, key: &str) {
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
        tool_output(command.env("ETCDCTL_API", "3").args(["--endpoints", &self.url]).args(arguments))
    }
}

/// Decodes a key or value from the Base64 of etcdctl. Replaces invalid UTF-8.
fn decode_base64(text: &serde_json::Value) -> Option<String> {
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
