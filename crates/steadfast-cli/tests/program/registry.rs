//! A mirror of `steadfast notify` in an HTTP registry: the contents of a small server are the oracle.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use tokio::runtime::Runtime;

use crate::haproxy::{eventually, throughout};
use crate::registry_server::RegistryServer;
use crate::run::{signal, start, stderr_text, steadfast, temp_path};

fn pod(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
        "status": {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn items(entries: &[(&str, Value)]) -> BTreeMap<String, Value> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

#[test]
fn registry_follows_cluster_and_keeps_foreign_items() {
    let runtime = Runtime::new().expect("a runtime");
    let (server, registry) = runtime
        .block_on(async { (ApiServer::start().await.expect("the server starts"), RegistryServer::start().await) });
    registry.state().token = Some("Bearer hunter2".to_owned());
    registry.state().put("/services/theirs", json!({"key": "theirs", "owner": "somebody", "value": 1}));
    let folder = PathBuf::from(temp_path("registry"));
    // Remove files of an earlier test run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder is writable");
    std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("the folder is writable");
    std::fs::write(folder.join("token"), "Bearer hunter2\n").expect("the folder is writable");
    let text = format!(
        "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.tree]\nguard = {{share = 1.0}}\ncompare = \"1s\"\n\
         [sinks.tree.registry]\nurl = \"{0}/services/{{key}}\"\nlist = \"{0}/services\"\nitems = \"/services\"\n\
         mark = \"story\"\nsecret_headers = {{Authorization = {{file = \"token\"}}}}\n\
         [[rules]]\nname = \"tree\"\nresources = [\"pods\"]\nwhen = \"has(object.status.podIP)\"\nto = [\"tree\"]\n\
         send = \"{{'key': object.metadata.name, 'value': {{'ip': object.status.podIP, 'port': 80}}}}\"\n",
        registry.url
    );
    std::fs::write(folder.join("notify.toml"), text).expect("the folder is writable");
    let configuration = folder.join("notify.toml").display().to_string();
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        server.create(&pod(name, address)).expect("the pod is created");
    }

    // The dry run changes nothing.
    let output = steadfast(&["notify", "--dry-run", "-c", &configuration]);
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(
        output_text.contains("mirror tree: 2 steps")
            && output_text.contains("curl -X PUT")
            && !output_text.contains("hunter2"),
        "{output_text}"
    );
    assert_eq!(registry.state().values(), items(&[("theirs", json!(1))]));

    let start_program = || {
        let mut child = start(&["notify", "-c", &configuration]);
        // A full pipe would block the program.
        let mut stderr = child.stderr.take().expect("a piped stderr");
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        child
    };
    let value = |address: &str| json!({"ip": address, "port": 80});
    let expected_items = items(&[("a", value("10.0.0.1")), ("b", value("10.0.0.2")), ("theirs", json!(1))]);
    let mut program = start_program();
    eventually("both", || registry.state().values() == expected_items);
    signal(&program, "KILL");
    let _ = program.wait();

    // The deletion is unconfirmed until the server responds, so the item must stay.
    server.delete_named("pods", "default", "a").expect("the object exists");
    server.faults().respond(RequestRule::any().resource("pods"), InjectedResponse::code(503));
    let mut program = start_program();
    throughout(Duration::from_secs(2), || assert_eq!(registry.state().values(), expected_items));
    server.faults().clear_rules();
    let remaining_items = items(&[("b", value("10.0.0.2")), ("theirs", json!(1))]);
    eventually("the remaining entries", || registry.state().values() == remaining_items);
    signal(&program, "TERM");
    assert!(program.wait().expect("an exit status").success());
    assert_eq!(registry.state().values(), remaining_items, "a shutdown removes no entry");

    // `check` reports rejected credentials.
    registry.state().token = Some("another".to_owned());
    let output = steadfast(&["notify", "check", "--online", "-c", &configuration]);
    let output_text = stderr_text(&output);
    assert!(
        output_text.contains("the registry needs credentials: set a header") && !output_text.contains("hunter2"),
        "{output_text}"
    );
    drop(runtime);
}
