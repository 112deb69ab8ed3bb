//! Content, reads and sharing of caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::core::{Expression, NotUsed, Object, ObjectMeta, Selector};
use kube::{CustomResource, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use steadfast::{Diagnostic, Freshness, InformerError, InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, ResourceDeclaration};
use steadfast_testing::{TestError, config_map, config_map_in, labelled_config_map, pod};

use super::{EVENT_TIMEOUT, InformerFixture, names, settle};

fn without_data(config_map: ConfigMap) -> ConfigMap {
    ConfigMap { data: None, ..config_map }
}

#[tokio::test(start_paused = true)]
async fn other_transform_conflicts_with_shared_informer() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let builder = || fixture.factory.builder::<ConfigMap>(Scope::all());
    let without_data_informer = builder().transform(without_data).start()?;
    without_data_informer.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(without_data_informer.lister()?.all()[0].data.is_none());

    builder().transform(without_data).start()?.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_eq!(fixture.server.request_counts().full_transfers(), 1, "the same function requests the same cache");
    for result in [builder().start(), builder().transform(|object| object).start()] {
        let Err(error @ InformerError::Conflict { .. }) = result else { panic!("another transform must conflict") };
        assert!(error.to_string().contains("transform"), "{error}");
    }
    let keeping_managed_fields = builder().transform(without_data).keep_managed_fields().start();
    assert!(
        keeping_managed_fields
            .is_err_and(|error| error.to_string().contains("keep_managed_fields false (requested: true)"))
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn joined_informer_reports_differing_settings() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let builder = || fixture.factory.builder::<ConfigMap>(Scope::all());
    let running = builder().period(Duration::from_secs(20)).start()?;
    running.wait_for_sync(EVENT_TIMEOUT).await?;
    builder().period(Duration::from_secs(20)).start()?;
    let requests = [
        (builder(), "period 20s (requested: 60s)"),
        (builder().period(Duration::from_secs(20)).audit_every(EVENT_TIMEOUT), "audit_every none (requested: 2s)"),
        (builder().period(Duration::from_secs(20)).page_size(Some(7)), "page_size 500 (requested: 7)"),
        (builder().period(Duration::from_secs(20)).page_size(None), "page_size 500 (requested: none)"),
        (builder().period(Duration::from_secs(20)).object_limit(9), "object_limit 16777216 (requested: 9)"),
        (builder().period(Duration::from_secs(20)).poll_every(EVENT_TIMEOUT), "poll_every none (requested: 2s)"),
        (builder().period(Duration::from_secs(20)).streamed_lists(false), "streamed_lists none (requested: false)"),
    ];
    for (request, difference) in requests {
        let Err(error @ InformerError::Conflict { .. }) = request.start() else { panic!("dropped: {difference}") };
        let text = format!(
            "configmaps in all namespaces is already watched with other settings: {difference}; \
             use the same settings, or request it from another factory"
        );
        assert_eq!(error.to_string(), text);
    }
    let Err(InformerError::Conflict { differences, .. }) = builder().page_size(None).start() else {
        panic!("two differ")
    };
    assert_eq!(differences.iter().map(|difference| difference.setting).collect::<Vec<_>>(), ["page_size", "period"]);
    assert_eq!(fixture.server.request_counts().full_transfers(), 1, "equal requests share one informer");

    let other_factory = InformerFactory::new(fixture.factory.connection());
    other_factory
        .builder::<ConfigMap>(Scope::all())
        .audit_every(EVENT_TIMEOUT)
        .start()?
        .wait_for_sync(EVENT_TIMEOUT)
        .await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_kind_rejects_namespace() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    let connection = fixture.factory.connection();
    let errors = [
        fixture.factory.informer::<Node>(Scope::namespace("shop")).err(),
        fixture.factory.informer::<PartialObjectMeta<Node>>(Scope::object("shop", "node-1")).err(),
        steadfast::watch::<Node>(connection, Scope::namespace("shop")).err(),
    ];
    for error in errors {
        let error = error.ok_or("a namespace was taken")?.to_string();
        assert_eq!(
            error,
            "nodes are cluster-scoped, in no namespace, and were requested in namespace \"shop\"; \
             use Scope::all(), and fields(\"metadata.name=…\") for one object"
        );
    }
    fixture.factory.informer::<Node>(Scope::all())?.wait_for_sync(EVENT_TIMEOUT).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panicking_transform_taints_only_its_object() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let panicking_transform = |object: ConfigMap| {
        assert_ne!(object.name_any(), "a", "this one is not to my liking");
        object
    };
    let informer = fixture.factory.builder::<ConfigMap>(Scope::all()).transform(panicking_transform).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(informer.lister()?.get("default", "a").is_err());
    assert_eq!(names(&informer.lister()?.all()), ["b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn index_is_filled_and_maintained() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for (name, node) in [("a", "n-1"), ("b", "n-2"), ("c", "n-1")] {
        fixture.server.create(&pod(name, node))?;
    }
    let pods = fixture.factory.informer::<Pod>(Scope::all())?;
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let early_index = pods.index(node);
    pods.wait_for_sync(EVENT_TIMEOUT).await?;
    let late_index = pods.index(node);
    for index in [&early_index, &late_index] {
        assert_eq!(names(&index.get("n-1")), ["a", "c"]);
    }
    fixture.server.delete_named("pods", "default", "a")?;
    fixture.server.create(&pod("d", "n-1"))?;
    settle().await;
    for index in [&early_index, &late_index] {
        assert_eq!(names(&index.get("n-1")), ["c", "d"]);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn panicking_index_function_omits_one_object() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for name in ["a", "b"] {
        fixture.server.create(&config_map(name, "1"))?;
    }
    let informer = fixture.synced_informer().await?;
    let panicking_index = |object: &ConfigMap| {
        assert_ne!(object.name_any(), "a");
        Some(())
    };
    // This index function succeeds, and its iterator panics.
    let lazily_panicking_index = |object: &ConfigMap| {
        let name = object.name_any();
        std::iter::once_with(move || assert_ne!(name, "a"))
    };
    let (panicking_index, lazily_panicking_index) =
        (informer.index(panicking_index), informer.index(lazily_panicking_index));
    fixture.write("a", "2")?;
    let written_object = fixture.write("b", "2")?;
    informer.wait_for(&written_object).await?;
    assert_eq!(names(&panicking_index.get(&())), ["b"]);
    assert_eq!(names(&lazily_panicking_index.get(&())), ["b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn lister_reads_by_name_and_selector() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&labelled_config_map("web", "1", ("app", "web")))?;
    fixture.server.create(&labelled_config_map("db", "1", ("app", "db")))?;
    fixture.server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }))?;
    fixture.server.create(&config_map_in("shop", "plain", "1"))?;
    let lister = fixture.synced_informer().await?.lister()?;
    let web: Selector = Expression::Equal("app".to_owned(), "web".to_owned()).into();
    assert_eq!(names(&lister.select(&web)), ["web"]);
    assert_eq!(names(&lister.namespace("shop")), ["plain"]);
    assert_eq!(names(&lister.all()), ["db", "web", "plain"]);
    assert!(lister.get("shop", "plain")?.is_some() && lister.get("shop", "web")?.is_none());

    let shop = fixture.factory.informer::<ConfigMap>(Scope::namespace("shop"))?;
    let single_object = fixture.factory.informer::<ConfigMap>(Scope::object("default", "web"))?;
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_eq!(names(&shop.lister()?.all()), ["plain"]);
    assert_eq!(names(&single_object.lister()?.all()), ["web"]);
    Ok(())
}

/// Part of a config map, with the fields that its owner needs.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct PartialConfigMap {
    metadata: ObjectMeta,
    data: Option<std::collections::BTreeMap<String, String>>,
}

#[tokio::test(start_paused = true)]
async fn cache_keeps_requested_type() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let metadata = fixture.factory.informer::<PartialObjectMeta<ConfigMap>>(Scope::all())?;
    let partial = fixture.factory.informer::<PartialConfigMap>(Scope::all())?;
    let kind = ApiResource::erase::<ConfigMap>(&());
    let dynamic = fixture.factory.informer_with::<DynamicObject>(&kind, Scope::all())?;
    fixture.factory.wait_for_sync(EVENT_TIMEOUT).await?;
    assert_eq!(metadata.lister()?.all()[0].name_any(), "a");
    assert_eq!(partial.lister()?.all()[0].data.as_ref().map(|data| data["value"].as_str()), Some("1"));
    assert_eq!(dynamic.lister()?.all()[0].data["data"]["value"], "1");

    fixture.write("a", "2")?;
    settle().await;
    assert_eq!(partial.lister()?.all()[0].data.as_ref().map(|data| data["value"].as_str()), Some("2"));
    assert!(metadata.lister()?.all()[0].resource_version() == partial.lister()?.all()[0].resource_version());
    Ok(())
}

#[derive(Clone, Debug, CustomResource, Deserialize, Serialize)]
#[kube(group = "shop.example", version = "v1", kind = "Order", namespaced, schema = "disabled")]
struct OrderSpec {
    item: String,
}

#[tokio::test(start_paused = true)]
async fn custom_resource_is_cached() -> Result<(), TestError> {
    let declared = ResourceDeclaration::namespaced("shop.example", "v1", "Order", "orders");
    let fixture = InformerFixture::with_builder(ApiServer::builder().resource(declared)).await?;
    let orders = fixture.factory.informer::<Order>(Scope::namespace("default"))?;
    orders.wait_for_sync(EVENT_TIMEOUT).await?;
    let mut order = Order::new("a", OrderSpec { item: "tea".to_owned() });
    order.metadata.namespace = Some("default".to_owned());
    let order: Order = serde_json::from_value(fixture.server.create(&order)?)?;
    orders.wait_for(&order).await?;
    assert_eq!(orders.lister()?.get("default", "a")?.map(|order| order.spec.item.clone()), Some("tea".to_owned()));
    assert_eq!(orders.name(), "orders.shop.example in namespace default");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn equal_requests_share_watch_per_cluster() -> Result<(), TestError> {
    let (first, second) = (InformerFixture::new().await?, InformerFixture::new().await?);
    first.server.create(&config_map("a", "1"))?;
    second.server.create(&config_map("b", "1"))?;
    let informers = [first.synced_informer().await?, first.synced_informer().await?, second.synced_informer().await?];
    let cached_names: Vec<_> = informers.iter().map(|informer| Ok(names(&informer.lister()?.all()))).collect();
    assert_eq!(cached_names.into_iter().collect::<Result<Vec<_>, TestError>>()?, [["a"], ["a"], ["b"]]);
    assert_eq!(first.server.request_counts().full_transfers(), 1);
    first.factory.shutdown();
    second.server.create(&config_map("c", "1"))?;
    settle().await;
    assert_eq!(informers[2].lister()?.len(), 2, "the end of one cluster's server must not affect another cluster");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sync_error_names_resource_and_cause() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.faults().cut();
    let informer = fixture.factory.informer::<ConfigMap>(Scope::namespace("shop").labels("app=web"))?;
    let Err(informer_error) = informer.wait_for_sync(EVENT_TIMEOUT).await else {
        panic!("the sync must fail while the network is down")
    };
    let Err(factory_error) = fixture.factory.wait_for_sync(EVENT_TIMEOUT).await else {
        panic!("the sync must fail while the network is down")
    };
    for text in [informer_error.to_string(), factory_error.to_string()] {
        for part in ["configmaps in namespace shop, labels app=web", "starting for", "refused", "attempts"] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    }
    Ok(())
}

/// Object with a `Drop` that panics once `PANICS_ON_DROP` is set.
#[derive(Deserialize, Resource)]
#[resource(inherit = ConfigMap)]
struct PanicsOnDrop {
    metadata: ObjectMeta,
}

static PANICS_ON_DROP: AtomicBool = AtomicBool::new(false);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        assert!(!PANICS_ON_DROP.load(Ordering::Relaxed) || std::thread::panicking(), "brittle");
    }
}

#[tokio::test(start_paused = true)]
async fn panicking_object_drop_is_reported() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let informer = fixture.factory.informer::<PanicsOnDrop>(Scope::all())?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let changes = informer.changed();
    PANICS_ON_DROP.store(true, Ordering::Relaxed);
    fixture.write("a", "2")?;
    settle().await;
    PANICS_ON_DROP.store(false, Ordering::Relaxed);
    assert!(changes.has_changed()?, "the end must wake waiting tasks");
    let Freshness::Stopped(doubt) = informer.freshness() else { panic!("{}", informer.freshness()) };
    assert!(doubt.reason.contains("dropping an object panicked"), "{}", doubt.reason);
    let factory_freshness = fixture.factory.freshness();
    assert!(
        !factory_freshness.is_ready() && factory_freshness.to_string().contains("dropping an object panicked"),
        "{factory_freshness}"
    );
    Ok(())
}

/// Type that cannot be decoded from any object.
#[derive(Clone, Debug, Deserialize)]
struct Strict {
    #[allow(dead_code)]
    replicas: u32,
}

#[tokio::test(start_paused = true)]
async fn undecodable_version_is_reported_once() -> Result<(), TestError> {
    let fixture = InformerFixture::new().await?;
    for number in 0..500 {
        fixture.server.create(&config_map(&format!("c-{number}"), "1"))?;
    }
    let kind = ApiResource::erase::<ConfigMap>(&());
    let informer = fixture.factory.informer_with::<Object<Strict, NotUsed>>(&kind, Scope::all())?;
    let report_count = Arc::new(AtomicUsize::new(0));
    let captured_count = report_count.clone();
    informer.on_diagnostic(move |note| {
        captured_count.fetch_add(usize::from(matches!(note, Diagnostic::Undecodable { .. })), Ordering::SeqCst);
    });
    let reports = || report_count.load(Ordering::SeqCst);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    settle().await;
    assert_eq!(reports(), 500);
    for round in 1..=3 {
        fixture.server.faults().cut();
        settle().await;
        fixture.write("c-7", &format!("{round}."))?;
        fixture.server.compact();
        fixture.server.faults().expire_events();
        fixture.server.faults().heal();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(reports(), 500 + round, "one object has a new version");
    }
    fixture.write("c-8", "2")?;
    settle().await;
    assert_eq!(reports(), 504);
    assert_eq!(fixture.server.request_counts().full_transfers(), 4);
    Ok(())
}
