//! `steadfast notify` with a virtual service of a real IPVS, in a separate guest: `ipvsadm` and the traffic are the
//! oracles.
#![cfg(target_os = "linux")]

#[path = "../../steadfast-targets/tests/netfilter/ipvs/guest.rs"]
mod guest;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use guest::{Result, as_guest, load, run_in_guest};

const SERVICE: &str = "10.9.0.1:80";

/// The only folder that a guest can write to.
const FOLDER: &str = "/mnt";

#[test]
fn ready_pods_are_lvs_real_servers() -> Result {
    run_in_guest("guest_process")
}

/// Not a test: the part of `ready_pods_are_lvs_real_servers` that runs in the guest.
#[test]
fn guest_process() -> Result {
    as_guest(check_in_guest)
}

fn check_in_guest(modules: &OsStr) -> Result {
    for module in ["ip_vs", "ip_vs_wrr"] {
        load(modules, module)?;
    }
    for number in 2..=4 {
        start_backend(number)?;
    }
    let runtime = Runtime::new()?;
    let server = runtime.block_on(ApiServer::builder().tls(true).start())?;
    fs::write(format!("{FOLDER}/kubeconfig"), server.kubeconfig())?;
    fs::write(format!("{FOLDER}/notify.toml"), CONFIGURATION)?;
    for (number, is_ready) in [(2, true), (3, true), (4, false)] {
        server.create(&pod(&format!("web-{number}"), number, is_ready))?;
    }
    // The address of this pod belongs to another pod by now.
    server.create(&pod("zombie", 2, false))?;

    let dry_run = notify(&["--dry-run"]).stderr(Stdio::inherit()).output()?;
    let commands = String::from_utf8(dry_run.stdout)?;
    assert!(commands.contains("ipvsadm -a -t 10.9.0.1:80 -r 10.8.0.2:8000 -m -w 1"), "{commands}");
    assert_eq!(servers()?, [""; 0]);

    let program = RunningProgram(notify(&[]).spawn()?);
    wait_for_servers(&["10.8.0.2:8000 1", "10.8.0.3:8000 1", "10.8.0.4:8000 0"])?;
    assert_eq!(responding_backends(6), BTreeSet::from([2, 3]));
    server.merge_patch("pods", "default", "web-4", json!({"status": status(4, true)}))?;
    server.merge_patch("pods", "default", "web-3", json!({"status": status(3, false)}))?;
    wait_for_servers(&["10.8.0.2:8000 1", "10.8.0.3:8000 0", "10.8.0.4:8000 1"])?;
    assert_eq!(responding_backends(6), BTreeSet::from([2, 4]));

    // The API server is unreachable: the deletion is unknown until `heal`.
    server.faults().cut();
    server.delete_named("pods", "default", "web-4")?;
    let status = Command::new("ipvsadm").arg("-C").status()?;
    assert!(status.success());
    wait_for_servers(&["10.8.0.2:8000 1", "10.8.0.3:8000 0", "10.8.0.4:8000 1"])?;
    server.compact();
    server.faults().heal();
    wait_for_servers(&["10.8.0.2:8000 1", "10.8.0.3:8000 0"])?;
    assert_eq!(responding_backends(4), BTreeSet::from([2]));
    drop(program);
    drop(runtime);
    Ok(())
}

const CONFIGURATION: &str = r#"
[clusters.here]
kubeconfig = "kubeconfig"

[sinks.web]
ipvs = {address = "10.9.0.1:80", scheduler = "wrr"}
drain = "1s"
compare = "1s"
guard = {share = 1.0}

[[rules]]
name = "web"
resources = ["pods"]
labels = "app=web"
when = "has(object.status.podIP)"
send = "{'key': object.metadata.name, 'address': object.status.podIP, 'port': 8000}"
to = ["web"]
"#;

fn pod(name: &str, number: u8, is_ready: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
        "status": status(number, is_ready),
    })
}

fn status(number: u8, is_ready: bool) -> Value {
    let ready_status = if is_ready { "True" } else { "False" };
    let address = format!("10.8.0.{number}");
    json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": ready_status}]})
}

fn notify(extra_arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.args(["notify", "-c", "/mnt/notify.toml"]).args(extra_arguments).stdin(Stdio::null());
    command.env_remove("KUBECONFIG").env("HOME", FOLDER);
    command
}

/// A running program; killed when dropped.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The real servers of the service, each with its weight.
fn servers() -> Result<Vec<String>> {
    let rules = Command::new("ipvsadm").args(["-S", "-n"]).output()?;
    let rules = String::from_utf8(rules.stdout)?;
    let lines = rules.lines().filter_map(|line| line.trim().strip_prefix(&format!("-a -t {SERVICE} -r ")));
    Ok(lines.map(|line| line.replace(" -m -w", "")).collect())
}

fn wait_for_servers(expected: &[&str]) -> Result {
    let start = Instant::now();
    while servers()? != expected {
        if start.elapsed() > Duration::from_secs(30) {
            return Err(format!("{:?} in place of {expected:?}", servers()?).into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Responds to every connection with the number of the backend.
fn start_backend(number: u8) -> Result {
    let listener = TcpListener::bind((format!("10.8.0.{number}"), 8000))?;
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A closed connection needs no response.
            let _ = stream.and_then(|mut stream| stream.write_all(&[number]));
        }
    });
    Ok(())
}

/// Connects `times` times and returns the backends that responded.
fn responding_backends(times: usize) -> BTreeSet<u8> {
    let address: SocketAddr = SERVICE.parse().expect("an address");
    let response_of = |_| {
        let mut number = [0];
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.read_exact(&mut number).ok()?;
        Some(number[0])
    };
    (0..times).filter_map(response_of).collect()
}
