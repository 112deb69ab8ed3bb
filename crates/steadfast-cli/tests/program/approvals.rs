//! Approvals of removals with several replicas: the leader applies an approval that was given to a standby.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use steadfast_apiserver::ApiServer;
use tokio::runtime::Runtime;

use crate::haproxy::{Haproxy, eventually, throughout};
use crate::run::{KillOnDrop, signal, start, stderr_text, steadfast};

/// Writes the configuration of a replica, and returns its path.
fn configure(folder: &Path, name: &str) -> String {
    let text = format!(
        "[replicas]\nlease = \"default/notify\"\nlease_duration = \"3s\"\nrenew_deadline = \"2s\"\nretry_period = \"300ms\"\n\
         [state]\nfolder = \"state-{name}\"\n[clusters.here]\nkubeconfig = \"kubeconfig\"\n\
         [sinks.web]\nhaproxy = {{socket = \"admin.sock\", backend = \"web\"}}\ndrain = \"0s\"\ncompare = \"1s\"\n\
         [[rules]]\nname = \"web\"\nresources = [\"pods\"]\nwhen = \"has(object.status.podIP)\"\n\
         send = \"{{'key': object.metadata.name, 'address': object.status.podIP, 'port': 80}}\"\nto = [\"web\"]\n"
    );
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, text).expect("the folder is writable");
    path.display().to_string()
}

/// A running replica and its output.
struct Replica {
    process: KillOnDrop,
    configuration: String,
    lines: Arc<Mutex<String>>,
}

impl Replica {
    fn start(folder: &Path, name: &str) -> Self {
        let configuration = configure(folder, name);
        let mut child = start(&["notify", "-c", &configuration, "--identity", name]);
        let stderr = BufReader::new(child.stderr.take().expect("a piped stderr"));
        let lines = Arc::<Mutex<String>>::default();
        let line_sink = lines.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                line_sink.lock().push_str(&(line + "\n"));
            }
        });
        Self { process: KillOnDrop(child), configuration, lines }
    }

    fn notify(&self, arguments: &[&str]) -> std::process::Output {
        steadfast(&[&["notify"], arguments, &["-c", &self.configuration]].concat())
    }

    fn lines(&self) -> String {
        self.lines.lock().clone()
    }

    fn leads(&self) -> bool {
        self.lines().contains("leader: this replica sends and writes")
    }
}

fn status(is_ready: bool) -> serde_json::Value {
    let ready_status = if is_ready { "True" } else { "False" };
    json!({"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": ready_status}]})
}

#[test]
fn approval_at_standby_reaches_leader() {
    let Some(haproxy) = Haproxy::start("approvals") else { return };
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(ApiServer::start()).expect("the server starts");
    std::fs::write(haproxy.folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
    for number in 0..6 {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": format!("web-{number}")},
            "spec": {"containers": [{"name": "main", "image": "example.test/web"}]}, "status": status(true),
        });
        server.create(&pod).expect("the pod is created");
    }
    let leader = Replica::start(&haproxy.folder, "first");
    eventually("a leader", || leader.leads());
    eventually("all pods in traffic", || haproxy.servers_in_service().len() == 6);
    let standby = Replica::start(&haproxy.folder, "second");
    let make_unready = |numbers: std::ops::Range<u64>| {
        // The leader sees all changes at once. Otherwise, it could remove the first server alone, without an approval.
        signal(&leader.process.0, "STOP");
        for number in numbers {
            let name = format!("web-{number}");
            server.merge_patch("pods", "default", &name, json!({"status": status(false)})).expect("the pod exists");
        }
        signal(&leader.process.0, "CONT");
    };
    let needs_approval = |replica: &Replica| {
        String::from_utf8_lossy(&replica.notify(&["status"]).stdout)
            .contains("needs approval: `steadfast notify approve")
    };

    make_unready(0..3);
    eventually("the request at the standby", || needs_approval(&standby));
    throughout(Duration::from_millis(500), || assert_eq!(haproxy.servers_in_service().len(), 6));
    let output = standby.notify(&["approve"]);
    let text = stderr_text(&output);
    assert!(output.status.success(), "{text}\n{}\n{}", leader.lines(), standby.lines());
    assert!(text.contains("this replica is a standby: the approval is forwarded to first_"), "{text}");
    eventually("the approved removal", || haproxy.servers_in_service().len() == 3);
    assert!(leader.lines().contains("mirror web: approved the removal of 3 entries"), "{}", leader.lines());
    assert!(standby.lines().contains("mirror web: forwarded 1 approvals to the leader"), "{}", standby.lines());

    // If no replica leads when an approval is given, the approval applies in the next term, whichever replica leads.
    make_unready(3..5);
    eventually("the next request at the standby", || needs_approval(&standby));
    signal(&leader.process.0, "STOP");
    let output = standby.notify(&["approve"]);
    signal(&leader.process.0, "CONT");
    assert!(output.status.success(), "{}\n{}\n{}", stderr_text(&output), leader.lines(), standby.lines());
    eventually("the second approved removal", || haproxy.servers_in_service().len() == 1);
    eventually("no approval is left", || {
        let secret = server.get("secrets", "default", "notify-settled").expect("the replicas have written it");
        secret["data"]["approvals.json"].is_null()
    });
    drop(runtime);
}
