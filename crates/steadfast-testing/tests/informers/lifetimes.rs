//! Times at which an informer releases its resources.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use steadfast::{Freshness, Informer, Scope};
use steadfast_testing::{TestError, config_map};

use super::{EVENT_TIMEOUT, InformerFixture, follow, settle};

/// Returns a weak reference to a value that exists as long as the informer's store.
fn track_store_drop(informer: &Informer<ConfigMap>) -> std::sync::Weak<()> {
    let token = Arc::new(());
    let weak = Arc::downgrade(&token);
    drop(informer.index(move |_: &ConfigMap| Some(Arc::strong_count(&token))));
    weak
}

/// Models a program that stops and drops the informer of each deleted namespace.
#[tokio::test(start_paused = true)]
async fn stopped_informer_is_removed_when_dropped() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let mut stores = Vec::new();
    for number in 0..20 {
        let scope = Scope::namespace("default").labels(format!("n!={number}"));
        let informer = fixture.factory.informer::<ConfigMap>(scope)?;
        informer.wait_for_sync(EVENT_TIMEOUT).await?;
        stores.push(track_store_drop(&informer));
        informer.stop();
    }
    settle().await;
    assert_eq!(stores.iter().filter(|store| store.strong_count() > 0).count(), 0, "all stores must be dropped");
    Ok(())
}

/// Regression test: two hundred dropped informers kept two hundred watches until the end of their factory.
#[tokio::test(start_paused = true)]
async fn dropped_informers_end_their_watches() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let mut stores = Vec::new();
    for number in 0..200 {
        let informer = fixture.factory.informer::<ConfigMap>(Scope::all().labels(format!("round!={number}")))?;
        if number % 2 == 0 {
            informer.wait_for_sync(EVENT_TIMEOUT).await?;
            let other_informer =
                fixture.factory.informer::<ConfigMap>(Scope::all().labels(format!("round!={number}")))?;
            drop(informer);
            settle().await;
            assert_eq!(other_informer.snapshot().len(), 1, "another handle keeps it");
            stores.push(track_store_drop(&other_informer));
        }
    }
    settle().await;
    assert_eq!(fixture.server.open_watches(0), 0);
    assert_eq!(stores.iter().filter(|store| store.strong_count() > 0).count(), 0, "stores without a reader");
    assert_eq!(fixture.factory.freshness().informers().count(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn listers_and_indexes_keep_an_informer_running() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let lister = informer.lister()?;
    let index = informer.index(|map: &ConfigMap| map.metadata.name.clone());
    drop(informer);
    fixture.server.create(&config_map("a", "1"))?;
    settle().await;
    assert!(lister.get("default", "a")?.is_some());
    drop(lister);
    fixture.server.create(&config_map("b", "1"))?;
    settle().await;
    assert_eq!(index.get("b").len(), 1);
    assert_eq!(fixture.server.open_watches(0), 1);
    drop(index);
    settle().await;
    assert_eq!(fixture.server.open_watches(0), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handlers_keep_informer_running() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let (log, registration) = follow(&fixture.synced_informer().await?);
    fixture.server.create(&config_map("a", "1"))?;
    settle().await;
    assert_eq!(log.all(), ["Added a"]);
    let next_informer = fixture.synced_informer().await?;
    assert_eq!(next_informer.handlers().len(), 1, "the informer that is running is returned");
    drop(next_informer);
    settle().await;
    assert_eq!(fixture.server.open_watches(0), 1);
    registration.remove();
    settle().await;
    assert_eq!(fixture.server.open_watches(0), 0);
    fixture.synced_informer().await?;
    assert_eq!(log.all(), ["Added a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn snapshot_outlives_a_stopped_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    informer.stop();
    let next = fixture.synced_informer().await?;
    let next_store = track_store_drop(&next);
    let snapshot = informer.snapshot();
    drop(informer);
    settle().await;
    assert_eq!(snapshot.len(), 1, "a snapshot outlives its informer");
    drop(snapshot);
    next.stop();
    next.stop();
    drop(next);
    settle().await;
    assert_eq!(next_store.strong_count(), 0);
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    Ok(())
}

/// Handlers are added and removed while events are delivered, for example in a program with one handler per client.
#[tokio::test(start_paused = true)]
async fn removed_handler_receives_nothing() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let (remaining_log, _registration) = follow(&informer);
    let registrations: Vec<_> = (0..50).map(|_| follow(&informer)).collect();
    settle().await;
    assert_eq!(informer.handlers().len(), 51);
    for (_, registration) in &registrations {
        registration.remove();
    }
    fixture.write("a", "2")?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.handlers().len(), 1);
    assert_eq!(remaining_log.all(), ["Added a initially", "Updated a"]);
    assert!(registrations.iter().all(|(log, _)| log.all() == ["Added a initially"]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn freshness_after_stop_is_stopped() -> Result<(), TestError> {
    for is_cut_off in [false, true] {
        let fixture = InformerFixture::new().await?;
        let informer = fixture.synced_informer().await?;
        if is_cut_off {
            fixture.server.faults().cut();
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        assert!(!matches!(informer.freshness(), Freshness::Stopped(_)));
        informer.stop();
        // No other task has run since the stop, in particular not the driver.
        let Freshness::Stopped(doubt) = informer.freshness() else { panic!("{}", informer.freshness()) };
        assert_eq!((doubt.elapsed, &*doubt.reason, doubt.next_attempt), (Duration::ZERO, "stopped", None));
        settle().await;
        assert!(matches!(informer.freshness(), Freshness::Stopped(_)));

        let other_informer = fixture.factory.informer::<Pod>(Scope::all())?;
        fixture.factory.shutdown();
        assert!(matches!(other_informer.freshness(), Freshness::Stopped(_)), "{}", other_informer.freshness());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn factory_waits_for_existing_informers() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let first = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let factory_sync = fixture.factory.wait_for_sync(EVENT_TIMEOUT);
    tokio::pin!(factory_sync);
    assert!(futures::poll!(&mut factory_sync).is_pending());
    // This informer starts during the wait, which does not cover it. It never syncs.
    let undefined_kind = ApiResource::from_gvk(&GroupVersionKind::gvk("shop.example", "v1", "Order"));
    let _orders = fixture.factory.informer_with::<DynamicObject>(&undefined_kind, Scope::all())?;
    factory_sync.await?;
    assert!(first.has_synced());
    assert!(fixture.factory.wait_for_sync(EVENT_TIMEOUT).await.is_err(), "a new wait covers both informers");

    let fixture = InformerFixture::new().await?;
    let _maps = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let factory_sync = fixture.factory.wait_for_sync(EVENT_TIMEOUT);
    tokio::pin!(factory_sync);
    assert!(futures::poll!(&mut factory_sync).is_pending());
    fixture.factory.shutdown();
    let error = factory_sync.await.expect_err("the informer was stopped before its sync").to_string();
    assert!(error.contains("configmaps in all namespaces: stopped for 0.0 s: stopped"), "{error}");
    Ok(())
}
