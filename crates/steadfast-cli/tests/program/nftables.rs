//! `steadfast notify` with the kernel's nftables in a separate network: the responding backends are the oracle.
//!
//! Needs root, `ip` and `nft`; skipped otherwise. Backends and client are a copy of this program.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::external_systems::find_program;
use crate::haproxy::eventually;
use crate::run::{KillOnDrop, signal, start, temp_path};

/// Environment variable that marks the copy of this program in the network.
const ROLE: &str = "STEADFAST_NOTIFY_NFTABLES";

const SERVICE: &str = "10.99.0.1:80";
const BACKENDS: [(&str, &str); 2] = [("a", "10.78.0.2:8001"), ("b", "10.78.0.3:8002")];

/// Not a test: backends and client in the separate network.
#[test]
fn guest_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    for (name, address) in BACKENDS {
        let listener = TcpListener::bind(address).expect("the network has this address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A closed connection needs no response.
                let _ = stream.and_then(|mut stream| stream.write_all(name.as_bytes()));
            }
        });
    }
    let service: SocketAddr = SERVICE.parse().expect("an address");
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        let mut name = String::new();
        if let Ok(mut stream) = TcpStream::connect_timeout(&service, Duration::from_secs(1)) {
            let _ = stream.read_to_string(&mut name);
        }
        println!("answer {name}");
    }
}

/// A network namespace with the copy; removed when dropped.
struct Network {
    name: String,
    ip: PathBuf,
    nft: PathBuf,
    copy: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Network {
    /// Creates the network; returns `None` without the rights or tools, which is reported.
    fn start() -> Option<Self> {
        let (ip, nft) = (find_program("ip")?, find_program("nft")?);
        let name = format!("steadfast-notify-{}", std::process::id());
        let commands = format!(
            "netns add {name}\n-n {name} link set lo up\n-n {name} addr add 10.99.0.1/32 dev lo\n\
             -n {name} addr add 10.78.0.2/32 dev lo\n-n {name} addr add 10.78.0.3/32 dev lo"
        );
        let is_created = commands.lines().all(|line| {
            let status = Command::new(&ip).args(line.split(' ')).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        });
        if !is_created {
            let is_required = std::env::var_os("STEADFAST_REQUIRE_REFERENCE").is_some_and(|value| value == "1");
            assert!(!is_required, "STEADFAST_REQUIRE_REFERENCE=1 allows no skip: this user may make no networks");
            // Written to the terminal, because the harness captures the output of passing tests.
            std::io::stderr()
                .write_all(b"skipped: this user may make no networks\n")
                .expect("standard error is writable");
            return None;
        }
        let mut command = Command::new(&ip);
        command.args(["netns", "exec", &name]).arg(std::env::current_exe().expect("the path of this program"));
        command.args(["--exact", "nftables::guest_process", "--nocapture"]).env(ROLE, "1");
        let mut copy = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the process starts");
        let (requests, responses) = (copy.stdin.take().expect("a pipe"), copy.stdout.take().expect("a pipe"));
        Some(Self { name, ip, nft, copy, requests, responses: BufReader::new(responses) })
    }

    /// Connects `times` times and returns the backends that responded.
    fn responding_backends(&mut self, times: usize) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for _ in 0..times {
            writeln!(self.requests, "ask").expect("the process accepts input");
            let mut line = String::new();
            while !line.contains("answer ") {
                line.clear();
                assert!(self.responses.read_line(&mut line).expect("a readable line") > 0, "the process has exited");
            }
            names.extend(line.split_once("answer ").map(|(_, name)| name.trim().to_owned()));
        }
        names
    }

    fn wait_for_backends(&mut self, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
        eventually(&format!("responses of {names:?}"), || self.responding_backends(6) == names);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.copy.kill();
        let _ = self.copy.wait();
        let _ = Command::new(&self.ip).args(["netns", "del", &self.name]).stderr(Stdio::null()).status();
    }
}

#[test]
fn nftables_forwards_to_ready_pods() {
    let Some(mut network) = Network::start() else { return };
    let folder = PathBuf::from(temp_path("notify-nftables"));
    // Remove files of an earlier test run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::start()).expect("the server starts");
    let write = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("the folder is writable");
    write("kubeconfig", &server.kubeconfig());
    let text = format!(
        "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.web]\nguard = {{share = 1.0}}\ndrain = \"0s\"\n\
         nftables = {{address = \"{SERVICE}\", command = [\"{}\", \"netns\", \"exec\", \"{}\", \"{}\"]}}\n\
         [[rules]]\nname = \"web\"\nresources = [\"pods\"]\nwhen = \"has(object.status.podIP)\"\nto = [\"web\"]\n\
         send = \"{{'key': object.metadata.name, 'address': object.status.podIP, 'port': int(object.metadata.annotations.port)}}\"\n",
        network.ip.display(),
        network.name,
        network.nft.display(),
    );
    write("notify.toml", &text);
    let status = |address: &str, is_ready: bool| {
        let ready_status = if is_ready { "True" } else { "False" };
        json!({"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": ready_status}]})
    };
    for (name, address) in BACKENDS {
        let (address, port) = address.split_once(':').expect("an address with a port");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "default", "name": name, "annotations": {"port": port}},
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]}, "status": status(address, true),
        });
        server.create(&pod).expect("the pod is created");
    }
    let path = folder.join("notify.toml").display().to_string();
    let mut program = KillOnDrop(start(&["notify", "-c", &path]));
    network.wait_for_backends(&["a", "b"]);
    let change = |is_ready: bool| {
        let status = json!({"status": status("10.78.0.3", is_ready)});
        server.merge_patch("pods", "default", "b", status).expect("the object exists");
    };
    change(false);
    network.wait_for_backends(&["a"]);
    change(true);
    network.wait_for_backends(&["a", "b"]);
    server.delete_named("pods", "default", "a").expect("the object exists");
    network.wait_for_backends(&["b"]);
    signal(&program.0, "TERM");
    assert!(program.0.wait().expect("an exit status").success());
    network.wait_for_backends(&["b"]);
    drop(runtime);
}
