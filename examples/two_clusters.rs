//! Uses two clusters in one program, each with its own caches and freshness:
//! `cargo run -p steadfast-examples --bin two_clusters`.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use steadfast::{Event, Informer, InformerFactory, ObjectKey, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::config_map;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Embedded clusters for this example. In your program, create one connection for each context of the kubeconfig:
    // `Connection::new(Config::from_kubeconfig(&KubeConfigOptions { context, ..Default::default() }).await?)?`.
    let servers = BTreeMap::from([("north", ApiServer::start().await?), ("south", ApiServer::start().await?)]);

    let (events, mut received) = mpsc::unbounded_channel();
    let mut clusters: BTreeMap<&str, (InformerFactory, Informer<ConfigMap>)> = BTreeMap::new();
    for (name, server) in &servers {
        let (name, events) = (*name, events.clone());
        let informers = InformerFactory::new(&steadfast_testing::connection(server).await?);
        let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
        // An event does not contain its cluster, so each cluster has its own handler, which knows the cluster's name.
        config_maps.on_event(move |event: Event<ConfigMap>| {
            let _ = events.send(format!("{name}: {} {}", event.name(), event.object().name_any()));
        })?;
        clusters.insert(name, (informers, config_maps));
    }
    for (informers, _) in clusters.values() {
        informers.wait_for_sync(TIMEOUT).await?;
    }

    // Objects with the same name in both clusters are different objects.
    for (name, server) in &servers {
        server.create(&config_map("settings", name))?;
    }
    let mut lines = [received.recv().await, received.recv().await].map(Option::unwrap_or_default);
    lines.sort();
    assert_eq!(lines, ["north: Added settings", "south: Added settings"]);
    for (name, (_, config_maps)) in &clusters {
        let settings = config_maps.lister()?.get("default", "settings")?.ok_or("the object must be cached")?;
        assert_eq!(settings.data.as_ref().map(|data| data["value"].as_str()), Some(*name));
    }

    // One cluster is disconnected: its caches report doubt, while those of the other cluster stay fresh.
    servers["south"].faults().cut();
    let (south, stays) = (&clusters["south"].0, &clusters["north"]);
    while south.freshness().is_ready() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    servers["north"].delete_named("configmaps", "default", "settings")?;
    stays.1.until_object(&ObjectKey::namespaced("default", "settings"), |object| object.is_none(), TIMEOUT).await?;
    for (name, (informers, _)) in &clusters {
        print!("{name}: {}", informers.freshness());
    }
    assert!(stays.0.freshness().is_ready() && !south.freshness().is_ready());

    for (informers, _) in clusters.values() {
        informers.shutdown();
    }
    Ok(())
}
