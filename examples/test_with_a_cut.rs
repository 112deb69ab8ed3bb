//! A test with network faults, in virtual time: `cargo run -p steadfast-examples --bin test_with_a_cut`.
//!
//! In your code, such a test starts with `#[tokio::test(start_paused = true)]`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, Recorder, config_map, history};

#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let started = tokio::time::Instant::now();
    // The server, the network and the client run in memory. Virtual time advances only while all tasks are idle.
    let server = ApiServer::builder().in_memory().start().await?;
    let connection = InMemory::default().connection(&server).await?;
    let informers = InformerFactory::new(&connection);
    let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
    let recorder = Recorder::of(&server);
    let seen = recorder.record(&config_maps);

    server.create(&config_map("a", "1"))?;
    seen.until_synced().await;
    assert!(config_maps.freshness().is_fresh());

    // During the disconnect, an object is deleted and recreated, and the server compacts the history in between.
    server.faults().cut();
    server.delete_named("configmaps", "default", "a")?;
    server.create(&config_map("a", "2"))?;
    server.compact();
    server.faults().expire_events();
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!("disconnected: {}", config_maps.freshness());
    assert_eq!(config_maps.freshness().name(), "stale", "the cache reports possible staleness");
    assert!(config_maps.lister()?.get("default", "a")?.is_some(), "the cached object stays readable");

    // The informer detects afterwards that the name belongs to another object.
    server.faults().heal();
    recorder.settle(&server).await;
    println!("afterwards: {}", config_maps.freshness());
    let deliveries = seen.descriptions("default/a");
    assert_eq!(deliveries, ["Added", "Deleted Inferred Replaced", "Added"]);
    let held = config_maps.lister()?.get("default", "a")?.and_then(|object| object.data.clone());
    assert_eq!(held.ok_or("the object must exist")?["value"], "2");

    // Checks all guarantees of the contract against the server's own history.
    steadfast_contract::check(&history(&server, "", "configmaps")?, &recorder.trace())?;
    println!("{:.0} s have passed", started.elapsed().as_secs_f64());
    Ok(())
}
