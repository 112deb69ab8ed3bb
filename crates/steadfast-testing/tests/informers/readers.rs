//! Conditions, selectors, indexes and aggregated freshness: ways of reading caches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use steadfast::{Object, ObjectKey, Scope, Snapshot, WaitError, parse_selector};
use steadfast_apiserver::{InjectedResponse, RequestRule};
use steadfast_testing::{TestError, config_map, config_map_in, pod};
use tokio::time::Instant;

use super::{EVENT_TIMEOUT, InformerFixture, names, settle};

const HOUR: Duration = Duration::from_secs(3600);

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn has_value(value: &'static str) -> impl Fn(Option<&ConfigMap>) -> bool {
    move |object| object.and_then(|object| object.data.as_ref()?.get("value")).is_some_and(|actual| actual == value)
}

#[tokio::test(start_paused = true)]
async fn until_checks_only_after_changes() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    let checks = Arc::new(AtomicUsize::new(0));
    let (captured_checks, captured_informer) = (checks.clone(), informer.clone());
    let wait = tokio::spawn(async move {
        let condition = |cache: &Snapshot<ConfigMap>| {
            captured_checks.fetch_add(1, Ordering::Relaxed);
            cache.get(Some("default"), "a").found().filter(|object| has_value("3")(Some(object)))
        };
        captured_informer.until(condition, HOUR).await
    });
    tokio::time::sleep(Duration::from_secs(600)).await;
    fixture.write("a", "2")?;
    settle().await;
    let (start, written_object) = (Instant::now(), fixture.write("a", "3")?);
    let matching_object = wait.await??;
    assert_eq!(matching_object.resource_version(), written_object.resource_version());
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    assert!(checks.load(Ordering::Relaxed) < 30, "two changes, and only bookmarks in addition: {checks:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn until_object_waits_for_each_state() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let informer = fixture.synced_informer().await?;
    let (writer, key) = (fixture.server, key("a"));
    tokio::spawn(async move {
        for value in ["1", "2"] {
            settle().await;
            drop(writer.replace(&config_map("a", value)).or_else(|_| writer.create(&config_map("a", value))));
        }
        settle().await;
        drop(writer.delete_named("configmaps", "default", "a"));
        std::future::pending::<()>().await;
    });
    assert!(informer.until_object(&key, |object| object.is_some(), HOUR).await?.is_some());
    let changed_object = informer.until_object(&key, has_value("2"), HOUR).await?;
    assert_eq!(changed_object.map(|object| object.name_any()).as_deref(), Some("a"));
    assert!(informer.until_object(&key, |object| object.is_none(), HOUR).await?.is_none());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn until_timeout_reports_last_state() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let created: ConfigMap = serde_json::from_value(fixture.server.create(&config_map("a", "s3cr3t"))?)?;
    let informer = fixture.synced_informer().await?;
    let version = created.resource_version().unwrap_or_default();
    let error = informer
        .until_object(&key("a"), has_value("2"), EVENT_TIMEOUT)
        .await
        .expect_err("no client writes this value")
        .to_string();
    let prefix = format!(
        "configmaps in all namespaces: the condition on default/a did not hold within 2.0 s; \
         last seen: default/a at version {version}; fresh, proven "
    );
    assert!(error.starts_with(&prefix) && !error.contains("s3cr3t"), "{error}");

    let missing_error = informer
        .until_object(&key("b"), has_value("2"), EVENT_TIMEOUT)
        .await
        .expect_err("no client writes this value")
        .to_string();
    assert!(missing_error.contains("last seen: no default/b among 1 objects at version "), "{missing_error}");
    let snapshot_error =
        informer.until(|cache: &Snapshot<ConfigMap>| cache.is_empty().then_some(()), EVENT_TIMEOUT).await;
    let snapshot_error = snapshot_error.expect_err("the cache is not empty").to_string();
    assert!(
        snapshot_error.contains("the condition did not hold")
            && snapshot_error.contains("last seen: 1 objects at version "),
        "{snapshot_error}"
    );

    fixture.server.faults().cut();
    let stale_error = informer
        .until_object(&key("a"), has_value("2"), 15 * EVENT_TIMEOUT)
        .await
        .expect_err("the network is down")
        .to_string();
    assert!(stale_error.contains("; stale for "), "{stale_error}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn until_waits_for_sync_and_ends() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    fixture.server.faults().cut();
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let is_absent = |object: Option<&ConfigMap>| object.is_none();
    let error =
        informer.until_object(&key("a"), is_absent, EVENT_TIMEOUT).await.expect_err("the object exists").to_string();
    assert!(error.contains("last seen: nothing, because the cache is not synced; starting for "), "{error}");
    fixture.server.faults().heal();
    informer.wait_for_sync(HOUR).await?;

    let captured_informer = informer.clone();
    let wait = tokio::spawn(async move { captured_informer.until_object(&key("a"), is_absent, HOUR).await.map(drop) });
    settle().await;
    informer.stop();
    assert!(matches!(wait.await?, Err(WaitError::Stopped { .. })));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn until_ignores_undecodable_objects() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.synced_informer().await?;
    fixture.server.faults().undecodable("default", "a", true);
    fixture.write("a", "2")?;
    settle().await;
    let error = informer
        .until_object(&key("a"), |_| true, EVENT_TIMEOUT)
        .await
        .expect_err("the state of the object is unknown")
        .to_string();
    assert!(
        error.contains("last seen: default/a at version ") && error.contains(", which cannot be decoded;"),
        "{error}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn index_lists_values_with_counts() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for (name, node) in [("a", "n-1"), ("b", "n-2"), ("c", "n-1")] {
        fixture.server.create(&pod(name, node))?;
    }
    let pods = fixture.factory.informer::<Pod>(Scope::all())?;
    let by_node = pods.index(|pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
    assert_eq!(by_node.snapshot().counts().count(), 0);
    pods.wait_for_sync(EVENT_TIMEOUT).await?;
    let old_snapshot = by_node.snapshot();
    fixture.server.delete_named("pods", "default", "b")?;
    fixture.server.create(&pod("d", "n-3"))?;
    settle().await;
    let new_snapshot = by_node.snapshot();
    let counts = |snapshot: &steadfast::IndexSnapshot<Pod, String>| {
        snapshot.counts().map(|(node, pods)| format!("{node}: {pods}")).collect::<Vec<_>>()
    };
    assert_eq!(counts(&old_snapshot), ["n-1: 2", "n-2: 1"], "the old snapshot is unchanged");
    assert_eq!(counts(&new_snapshot), ["n-1: 2", "n-3: 1"]);
    assert_eq!((new_snapshot.count("n-1"), new_snapshot.count("n-2")), (2, 0));
    let pods_on_node: Vec<String> = new_snapshot.get("n-1").map(|pod| pod.name_any()).collect();
    assert_eq!(pods_on_node, ["a", "c"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn parsed_selector_matches_server_results() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }))?;
    let labels = [
        ("none", json!({})),
        ("web", json!({ "app": "web" })),
        ("web-a", json!({ "app": "web", "tier": "a" })),
        ("db-b", json!({ "app": "db", "tier": "b", "legacy": "" })),
        ("odd", json!({ "example.com/app": "web", "in": "in" })),
    ];
    for namespace in ["default", "shop"] {
        for (name, labels) in &labels {
            let mut object = config_map_in(namespace, name, "1");
            object.metadata.labels = Some(serde_json::from_value::<BTreeMap<String, String>>(labels.clone())?);
            fixture.server.create(&object)?;
        }
    }
    let lister = fixture.synced_informer().await?.lister()?;
    let client = fixture.factory.connection().client();
    let (all, shop) = (Api::<ConfigMap>::all(client.clone()), Api::<ConfigMap>::namespaced(client, "shop"));
    for text in [
        "",
        "app",
        "!app",
        "app=web",
        "app == web",
        "app!=web",
        "tier in (a,b)",
        "tier in (a,),app",
        "tier notin (a)",
        "app=web,tier in (a, b),!legacy",
        "legacy=",
        "example.com/app=web",
        "in in (in)",
    ] {
        let selector = parse_selector(text)?;
        let label_params = ListParams::default().labels(text);
        let cached_names = |objects: &[Object<ConfigMap>]| names(objects);
        let server_names = |objects: Vec<ConfigMap>| objects.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
        assert_eq!(
            cached_names(&lister.select(&selector)),
            server_names(all.list(&label_params).await?.items),
            "{text:?}"
        );
        assert_eq!(
            cached_names(&lister.select_in("shop", &selector)),
            server_names(shop.list(&label_params).await?.items),
            "{text:?}"
        );
        let snapshot = lister.snapshot();
        let snapshot_names: Vec<_> = snapshot.select(Some("shop"), &selector).map(|object| object.name_any()).collect();
        assert_eq!(snapshot_names, cached_names(&lister.select_in("shop", &selector)), "{text:?}");
    }
    for text in ["app=web,", "tier in a", "app=web tier", "-app", "app=-"] {
        let result = all.list(&ListParams::default().labels(text)).await;
        assert!(parse_selector(text).is_err() && result.is_err(), "{text:?}: {result:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn factory_freshness_is_worst_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    assert!(!fixture.factory.freshness().is_ready(), "a factory without informers is not ready");
    let config_maps = fixture.synced_informer().await?;
    let ready_freshness = fixture.factory.freshness();
    assert!(ready_freshness.is_ready(), "{ready_freshness}");
    assert_eq!((ready_freshness.status().as_u16(), ready_freshness.to_string().as_str()), (200, "ok\n"));

    // The server rejects requests for secrets.
    fixture.server.faults().respond(RequestRule::any().resource("secrets"), InjectedResponse::Forbidden);
    let secrets = fixture.factory.informer::<Secret>(Scope::all())?;
    settle().await;
    let failed_freshness = fixture.factory.freshness();
    assert_eq!(failed_freshness.status().as_u16(), 503);
    let (name, state) = failed_freshness.worst().ok_or("there are two")?;
    assert_eq!((name, state.name()), ("secrets in all namespaces", "failed"));
    let text = failed_freshness.to_string();
    assert!(
        text.starts_with("secrets in all namespaces: failed for ") && text.contains("needs list and watch on secrets"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "fresh caches need no line: {text}");

    secrets.stop();
    settle().await;
    assert!(fixture.factory.freshness().is_ready(), "stopped informers do not count");
    drop(config_maps);
    fixture.factory.shutdown();
    let stopped_freshness = fixture.factory.freshness();
    assert_eq!(
        (stopped_freshness.is_ready(), stopped_freshness.to_string().as_str()),
        (false, "stopped: the informer factory was shut down\n")
    );
    Ok(())
}
