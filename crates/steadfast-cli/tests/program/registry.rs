//! A mirror of `steadfast notify` in a registry by HTTP: a small server that is one, and what it keeps is the judge.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_apiserver::{Answer, ApiServer, RequestRule};
use tokio::runtime::Runtime;

use crate::haproxy::{eventually, throughout};
use crate::run::{place, said, signal, start, steadfast};
use crate::tree::Tree;

fn pod(name: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": [{"name": "main", "image": "example.test/web"}]},
        "status": {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn items(all: &[(&str, Value)]) -> BTreeMap<String, Value> {
    all.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

#[test]
fn registry_follows_cluster_and_keeps_foreign_items() {
    let runtime = Runtime::new().expect("there are threads");
    let (server, tree) =
        runtime.block_on(async { (ApiServer::start().await.expect("it starts"), Tree::start().await) });
    tree.now().token = Some("Bearer hunter2".to_owned());
    tree.now().put("/services/theirs", json!({"key": "theirs", "owner": "somebody", "value": 1}));
    let folder = PathBuf::from(place("registry"));
    // What a run of long ago left.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("there is room");
    std::fs::write(folder.join("kubeconfig"), server.kubeconfig()).expect("there is room");
    std::fs::write(folder.join("token"), "Bearer hunter2\n").expect("there is room");
    let text = format!(
        "[clusters.here]\nkubeconfig = \"kubeconfig\"\n[sinks.tree]\nguard = {{share = 1.0}}\ncompare = \"1s\"\n\
         [sinks.tree.registry]\nurl = \"{0}/services/{{key}}\"\nlist = \"{0}/services\"\nitems = \"/services\"\n\
         mark = \"story\"\nsecret_headers = {{Authorization = {{file = \"token\"}}}}\n\
         [[rules]]\nname = \"tree\"\nresources = [\"pods\"]\nwhen = \"has(object.status.podIP)\"\nto = [\"tree\"]\n\
         send = \"{{'key': object.metadata.name, 'value': {{'ip': object.status.podIP, 'port': 80}}}}\"\n",
        tree.url
    );
    std::fs::write(folder.join("notify.toml"), text).expect("there is room");
    let configuration = folder.join("notify.toml").display().to_string();
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        server.create(&pod(name, address)).expect("it is a pod");
    }

    // Seen first, and nothing is done.
    let output = steadfast(&["notify", "--dry-run", "-c", &configuration]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        told.contains("mirror tree: 2 steps") && told.contains("curl -X PUT") && !told.contains("hunter2"),
        "{told}"
    );
    assert_eq!(tree.now().values(), items(&[("theirs", json!(1))]));

    let begin = || {
        let mut child = start(&["notify", "-c", &configuration]);
        // Nobody reads it, and a pipe that is full would hold it up.
        let mut stderr = child.stderr.take().expect("it is piped");
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        child
    };
    let value = |address: &str| json!({"ip": address, "port": 80});
    let both = items(&[("a", value("10.0.0.1")), ("b", value("10.0.0.2")), ("theirs", json!(1))]);
    let mut acting = begin();
    eventually("both", || tree.now().values() == both);
    signal(&acting, "KILL");
    let _ = acting.wait();

    // Nobody knows yet what is gone, and what is gone is not guessed at.
    server.delete_named("pods", "default", "a").expect("it is there");
    server.faults().answer_with(RequestRule::any().resource("pods"), Answer::code(503));
    let mut acting = begin();
    throughout(Duration::from_secs(2), || assert_eq!(tree.now().values(), both));
    server.faults().answer_truly();
    let left = items(&[("b", value("10.0.0.2")), ("theirs", json!(1))]);
    eventually("what is left", || tree.now().values() == left);
    signal(&acting, "TERM");
    assert!(acting.wait().expect("it can be waited for").success());
    assert_eq!(tree.now().values(), left, "what is there stays there");

    // Whom the registry does not know is told so before anything begins.
    tree.now().token = Some("another".to_owned());
    let output = steadfast(&["notify", "check", "--online", "-c", &configuration]);
    let told = said(&output);
    assert!(told.contains("give it what it wants in a header") && !told.contains("hunter2"), "{told}");
    drop(runtime);
}
