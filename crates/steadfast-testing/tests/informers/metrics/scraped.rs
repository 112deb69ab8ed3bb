//! The format of a scrape, and the owners of its series.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use steadfast::{InformerFactory, Scope};
use steadfast_testing::{Exposition, InMemory, TestError, config_map};

use super::{EVENT_TIMEOUT, MetricsFixture, registry, settle};

#[tokio::test(start_paused = true)]
async fn equal_informers_have_separate_series() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let first = fixture.synced_informer().await?;
    let other_factory = InformerFactory::new(fixture.factory.connection());
    let second = other_factory.informer::<ConfigMap>(Scope::all())?;
    let third = other_factory.informer::<ConfigMap>(Scope::namespace("default").labels("app=web"))?;
    other_factory.wait_for_sync(EVENT_TIMEOUT).await?;
    let synced = |labels: &[(&str, &str)]| fixture.value("steadfast_informer_synced", labels);
    assert_eq!((synced(&[("informer", "0")])?, synced(&[("informer", "1")])?), (2.0, 1.0));
    assert_eq!(synced(&[("namespace", "default"), ("resource", "configmaps"), ("version", "v1"), ("group", "")])?, 1.0);

    drop((second, third, other_factory));
    settle().await;
    assert_eq!(synced(&[])?, 1.0, "a dropped informer is not in the scrape");
    let stream = steadfast::watch::<ConfigMap>(fixture.factory.connection(), Scope::all())?;
    settle().await;
    assert_eq!((synced(&[("informer", "0")])?, synced(&[("informer", "1")])?), (1.0, 1.0));
    drop((first, stream));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn collector_does_not_keep_connection_alive() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    drop(fixture.synced_informer().await?);
    let MetricsFixture { server, factory, registry } = fixture;
    assert!(steadfast::unstable::dial_count(factory.connection()) > 0);
    drop(factory);
    settle().await;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    let scraped = Exposition::parse(&text)?;
    assert!(scraped.samples.is_empty(), "{:?}", scraped.samples);
    assert!(scraped.families.len() > 20, "the metadata of the families is kept");
    drop(server);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn scrape_contains_no_object_data() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    fixture.server.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "planted-name"},
        "stringData": {"planted-key": "planted-value"}, "data": {"planted-data": "cGxhbnRlZA=="},
    }))?;
    let secrets = fixture.factory.informer::<Secret>(Scope::object("default", "planted-name"))?;
    let labelled_secrets = fixture.factory.informer::<Secret>(Scope::all().labels("planted=label"))?;
    secrets.on_event(|_| panic!("planted panic"))?;
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    fixture.server.faults().undecodable("default", "planted-name", true);
    fixture.server.faults().reset();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.value("steadfast_informer_synced", &[("resource", "secrets")])?, 2.0);
    let text = fixture.text()?;
    for hidden in ["planted", "cGxhbnRlZA", "metadata.name"] {
        assert!(!text.contains(hidden), "{hidden} is in {text}");
    }
    drop(labelled_secrets);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn age_grows_while_driver_is_stuck() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let age = || fixture.value("steadfast_informer_freshness_age_seconds", &[]);
    let age_before = age()?;
    // The clock is advanced without running a task of this runtime, which simulates a stuck driver.
    assert!(tokio::time::advance(Duration::from_secs(300)).now_or_never().is_none());
    let later_age = age()?;
    assert!(later_age - age_before >= 299.0, "{age_before} {later_age}");
    assert_eq!(fixture.value("steadfast_informer_freshness", &[("state", "fresh")])?, 0.0);
    drop(informer);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn servers_with_equal_names_are_distinguished() -> Result<(), TestError> {
    let fixture = MetricsFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let other_connection = InMemory::default().connection(&fixture.server).await?;
    let mut combined_registry = prometheus_client::registry::Registry::default();
    combined_registry.register_collector(Box::new(steadfast::metrics::Metrics::new([
        fixture.factory.connection(),
        &other_connection,
    ])));
    let informer = fixture.synced_informer().await?;
    let theirs = InformerFactory::new(&other_connection).informer::<ConfigMap>(Scope::all())?;
    theirs.wait_for_sync(EVENT_TIMEOUT).await?;
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &combined_registry)?;
    assert_eq!(Exposition::parse(&text)?.sum("steadfast_informer_objects", &[]), (2.0, 2));
    drop((informer, registry(&other_connection)));
    Ok(())
}
