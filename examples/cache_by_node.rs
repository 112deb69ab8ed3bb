//! Reads the pods of each node from a cache: `cargo run -p steadfast-examples --bin cache_by_node`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use steadfast::{Event, InformerFactory, Object, ObjectKey, Scope, parse_selector};
use steadfast_apiserver::ApiServer;
use steadfast_testing::pod;

const TIMEOUT: Duration = Duration::from_secs(30);

fn node_of(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone()
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // An embedded cluster for this example. In your program, use `let connection = Connection::infer().await?;`.
    let server = ApiServer::start().await?;
    for (name, node) in [("web-0", "node-1"), ("web-1", "node-2"), ("db-0", "node-1")] {
        server.create(&pod(name, node))?;
    }
    let connection = steadfast_testing::connection(&server).await?;

    // One watch and one cache, which stay current while a handle exists.
    let informers = InformerFactory::new(&connection);
    let pods = informers.informer::<Pod>(Scope::all())?;
    let by_node = pods.index(node_of);
    pods.on_event(|event| match event {
        Event::Added { object: pod, .. } => println!("+ {} on {:?}", pod.name_any(), node_of(&pod)),
        Event::Updated { new: pod, .. } => println!("~ {} on {:?}", pod.name_any(), node_of(&pod)),
        Event::Deleted { last: pod, .. } => println!("- {} on {:?}", pod.name_any(), node_of(&pod)),
        Event::Resynced { .. } => {}
    })?;
    informers.wait_for_sync(TIMEOUT).await?;

    // The nodes with their number of pods, and then the pods of one node.
    let counts: Vec<String> = by_node.snapshot().counts().map(|(node, pods)| format!("{node}: {pods}")).collect();
    println!("{}", counts.join(", "));
    assert_eq!(counts, ["node-1: 2", "node-2: 1"]);
    let names = |pods: Vec<Object<Pod>>| pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>();
    assert_eq!(names(by_node.get("node-1")), ["db-0", "web-0"]);

    // A change is in the index as soon as it is in the cache.
    server.delete_named("pods", "default", "db-0")?;
    let key = ObjectKey::namespaced("default", "db-0");
    pods.until_object(&key, |pod| pod.is_none(), TIMEOUT).await?;
    assert_eq!(names(by_node.get("node-1")), ["web-0"]);

    // Selection by label, as with kubectl's `-l`.
    let unlabelled = parse_selector("!app")?;
    assert_eq!(pods.lister()?.select_in("default", &unlabelled).len(), 2);
    println!("{}", pods.freshness());

    informers.shutdown();
    Ok(())
}
