//! A test with a bad network in it, in virtual time: `cargo run -p steadfast-examples --bin test_with_a_cut`.
//!
//! As a test of yours it begins with `#[tokio::test(start_paused = true)]`.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_testing::{InMemory, Recorder, config_map, history};

#[tokio::main(flavor = "current_thread", start_paused = true)]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let begun = tokio::time::Instant::now();
    // The server, the network and the client are in memory, and time passes when there is nothing else to do.
    let server = ApiServer::builder().in_memory().start().await?;
    let connection = InMemory::default().connection(&server).await?;
    let informers = InformerFactory::new(&connection);
    let config_maps = informers.informer::<ConfigMap>(Scope::all())?;
    let recorder = Recorder::of(&server);
    let seen = recorder.record(&config_maps);

    server.create(&config_map("a", "1"))?;
    seen.until_synced().await;
    assert!(config_maps.freshness().is_fresh());

    // While nothing comes through, an object is deleted and made anew, and the server forgets how that came.
    server.faults().cut();
    server.delete_named("configmaps", "default", "a")?;
    server.create(&config_map("a", "2"))?;
    server.compact();
    server.faults().expire_events();
    tokio::time::sleep(Duration::from_secs(60)).await;
    println!("cut off: {}", config_maps.freshness());
    assert_eq!(config_maps.freshness().name(), "stale", "it says that it may be old");
    assert!(config_maps.lister()?.get("default", "a")?.is_some(), "and what it has can be read");

    // It is noticed afterwards, and as what it was: another object of the same name.
    server.faults().heal();
    recorder.settle(&server).await;
    println!("afterwards: {}", config_maps.freshness());
    let told = seen.in_words("default/a");
    assert_eq!(told, ["Added", "Deleted Inferred Replaced", "Added"]);
    let held = config_maps.lister()?.get("default", "a")?.and_then(|object| object.data.clone());
    assert_eq!(held.ok_or("it is there")?["value"], "2");

    // Every guarantee of the contract, judged by the server's own history.
    steadfast_contract::check(&history(&server, "", "configmaps")?, &recorder.trace())?;
    println!("{:.0} s have passed", begun.elapsed().as_secs_f64());
    Ok(())
}
