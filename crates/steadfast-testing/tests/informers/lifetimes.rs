//! When what an informer holds is let go.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Informer, Scope};
use steadfast_testing::{WorldError, config_map};

use super::{SOON, World, follow, settled};

/// Something that lives as long as the informer's store does.
fn in_store(informer: &Informer<ConfigMap>) -> std::sync::Weak<()> {
    let token = Arc::new(());
    let weak = Arc::downgrade(&token);
    drop(informer.index(move |_: &ConfigMap| Some(Arc::strong_count(&token))));
    weak
}

/// A program whose namespaces come and go: an informer for each, stopped and dropped with it.
#[tokio::test(start_paused = true)]
async fn an_informer_that_was_stopped_and_dropped_is_gone() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let mut stores = Vec::new();
    for number in 0..20 {
        let scope = Scope::namespace("default").labels(format!("n!={number}"));
        let informer = world.factory.informer::<ConfigMap>(scope)?;
        informer.wait_for_sync(SOON).await?;
        stores.push(in_store(&informer));
        informer.stop();
    }
    settled().await;
    assert_eq!(stores.iter().filter(|store| store.strong_count() > 0).count(), 0, "stores that nobody holds");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_factory_keeps_what_runs_and_forgets_what_was_stopped_and_nothing_else() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let running = in_store(&world.synced().await?);
    settled().await;
    assert!(running.strong_count() > 0, "nobody else holds it, and it runs");

    let stopped = world.synced().await?;
    stopped.stop();
    let next = world.synced().await?;
    let next_store = in_store(&next);
    let snapshot = stopped.snapshot();
    drop(stopped);
    settled().await;
    assert_eq!(snapshot.len(), 1, "what a reader has in hand lives on");
    drop(snapshot);
    assert_eq!(running.strong_count(), 0, "the one that was stopped");
    next.stop();
    next.stop();
    drop(next);
    settled().await;
    assert_eq!(next_store.strong_count(), 0);
    world.factory.wait_for_sync(SOON).await?;
    Ok(())
}

/// A handler for each client that is connected, say: they come and go while changes are told.
#[tokio::test(start_paused = true)]
async fn a_handler_that_was_removed_is_told_nothing_and_listed_no_more() -> Result<(), WorldError> {
    let world = World::new().await?;
    world.server.create(&config_map("a", "1"))?;
    let informer = world.synced().await?;
    let (stays, _registration) = follow(&informer);
    let registrations: Vec<_> = (0..50).map(|_| follow(&informer)).collect();
    settled().await;
    assert_eq!(informer.handlers().len(), 51);
    for (_, registration) in &registrations {
        registration.remove();
    }
    world.write("a", "2")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.handlers().len(), 1);
    assert_eq!(stays.all(), ["Added a initially", "Updated a"]);
    assert!(registrations.iter().all(|(told, _)| told.all() == ["Added a initially"]));
    Ok(())
}
