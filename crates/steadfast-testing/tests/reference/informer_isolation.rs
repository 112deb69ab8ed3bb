//! Situations of real clusters for which the embedded server is not sufficient evidence. Examples are users with only
//! the list permission, APIs of other servers, webhooks that never respond, and deeply nested objects. In other
//! situations, responses stay unread, or another cluster takes over the address.
//!
//! All situations use one reference, because its start takes seconds.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DynamicObject, ListParams, PostParams, WatchParams};
use serde_json::json;
use steadfast::{Informer, InformerFactory, Scope};
use steadfast_contract::check;
use steadfast_testing::TestError;
use steadfast_testing::cluster::Writer;
use steadfast_testing::reference::Reference;

use crate::support::{
    EVENT_TIMEOUT, GROUP, POLL_INTERVAL, define, definition, kind_of, until, until_fresh, until_polled,
};
use crate::{aggregated, objects, unread};

/// Maximum delay of unrelated informers. Even on a busy machine, it is far below the half minute after which a list
/// times out.
const UNRELATED_MAX_DELAY: Duration = Duration::from_secs(8);
/// Maximum time until a restarted server is recognized as another one, and maximum time of the list after that.
const NEW_CLUSTER_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_affected_informer_does_not_delay_others() -> Result<(), TestError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    list_only_user(&reference).await?;
    aggregated::list_only_api(&reference).await?;
    aggregated::api_with_counter_per_namespace(&reference).await?;
    dead_conversion_webhook(&reference).await?;
    objects::deeply_nested_object(&reference).await?;
    unread::unread_responses(&reference).await?;
    replaced_etcd(&mut reference).await
}

async fn list_only_user(reference: &Reference) -> Result<(), TestError> {
    reference.allow("lister", &["list"], "", "configmaps").await?;
    let connection = reference.connection_as("lister").await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(connection.client(), "default");
    config_maps.list(&ListParams::default()).await?;
    let watch_error = config_maps.watch(&WatchParams::default(), "0").await.err();
    assert!(matches!(&watch_error, Some(kube::Error::Api(status)) if status.code == 403), "{watch_error:?}");
    let namespaces_error = Api::<Namespace>::all(connection.client()).list(&ListParams::default()).await.err();
    assert!(matches!(&namespaces_error, Some(kube::Error::Api(status)) if status.code == 403), "{namespaces_error:?}");

    let factory = InformerFactory::new(&connection);
    let informer = factory.builder::<ConfigMap>(Scope::namespace("default")).poll_every(POLL_INTERVAL).start()?;
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    let polled = until_polled(&informer).await?;
    assert!(polled.contains("403"), "{polled}");
    let writer = Writer::new(reference.connection().await?.client(), "default");
    writer.create("listed", "1").await?;
    let lister = informer.lister()?;
    until("the object is listed", || lister.get("default", "listed").is_ok_and(|found| found.is_some())).await?;
    writer.delete("listed").await?;
    until("the object is no longer listed", || lister.get("default", "listed").is_ok_and(|found| found.is_none()))
        .await?;
    until_polled(&informer).await.map(drop)
}

/// Objects are stored in one version and requested in another. The server calls a webhook that accepts connections and
/// never responds.
async fn dead_conversion_webhook(reference: &Reference) -> Result<(), TestError> {
    let webhook = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("https://{}/convert", webhook.local_addr()?);
    let client = reference.connection().await?.client();
    let mut kinds = Vec::new();
    for kind in ["Hanger", "Hook", "Peg", "Rail", "Rack"] {
        let mut definition = definition(kind, &[("v1", true), ("v2", false)]);
        definition["spec"]["conversion"] = json!({
            "strategy": "Webhook", "webhook": {"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"]},
        });
        define(reference, definition).await?;
        let stored_kind = kind_of(GROUP, "v1", kind);
        let object = DynamicObject::new("a", &stored_kind).data(json!({"spec": {}}));
        Api::<DynamicObject>::namespaced_with(client.clone(), "default", &stored_kind)
            .create(&PostParams::default(), &object)
            .await?;
        kinds.push(kind_of(GROUP, "v2", kind));
    }
    // A list in another version than the stored one needs the webhook, which never responds.
    let requested_api: Api<DynamicObject> = Api::namespaced_with(client, "default", &kinds[0]);
    let response = tokio::time::timeout(Duration::from_secs(2), requested_api.list(&ListParams::default())).await;
    assert!(response.is_err(), "the webhook is dead, but a response arrived: {response:?}");

    let factory = InformerFactory::new(&reference.connection().await?);
    let scope = || Scope::namespace("default");
    let hanging_informers: Vec<Informer<DynamicObject>> =
        kinds.iter().map(|kind| factory.informer_with(kind, scope())).collect::<Result<_, _>>()?;
    // These informers send their requests before the others.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let other_informers = [factory.informer::<ConfigMap>(scope())?, factory.informer::<ConfigMap>(Scope::all())?];
    for other in &other_informers {
        other.wait_for_sync(UNRELATED_MAX_DELAY).await?;
    }
    println!("a dead webhook: others synced after {:.1?}", start.elapsed());
    assert!(
        hanging_informers.iter().all(|informer| !informer.has_synced()),
        "the informers must not sync with a dead webhook"
    );
    drop(webhook);
    Ok(())
}

/// The server returns at its address with another cluster: versions restart, and no object exists.
async fn replaced_etcd(reference: &mut Reference) -> Result<(), TestError> {
    let recorder = reference.recorder();
    let writer = Writer::new(reference.connection().await?.client(), "default");
    for name in ["gone", "again"] {
        writer.create(name, "old").await?;
    }
    let connection = reference.connection().await?;
    let factory = InformerFactory::new(&connection);
    let informer = factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    let recording = recorder.record(&informer);
    informer.wait_for_sync(EVENT_TIMEOUT).await?;
    until_fresh(&informer).await?;

    reference.replace_etcd().await?;
    let dials_before = steadfast::unstable::dial_count(&connection);
    let reach_time = tokio::spawn(async move {
        while steadfast::unstable::dial_count(&connection) == dials_before {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    });
    reference.start_again(0).await?;
    let reach_time = tokio::time::timeout(EVENT_TIMEOUT, reach_time).await??;
    let writer = Writer::new(reference.connection().await?.client(), "default");
    let lister = informer.lister()?;
    while lister.get("default", "gone")?.is_some() {
        let freshness = informer.freshness();
        assert!(!freshness.is_fresh(), "a missing object is readable, and the freshness is {freshness}");
        assert!(reach_time.elapsed() < 2 * NEW_CLUSTER_TIMEOUT, "{freshness}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("another etcd: reported {:.1?} after the server was reached again", reach_time.elapsed());
    assert!(writer.get("gone").await.is_err(), "the old objects still exist");
    until_namespace(reference, "default").await?;
    writer.create("again", "new").await?;
    until_fresh(&informer).await?;
    reference.settle(&recorder).await?;
    check(&reference.history("", "configmaps").await?, &recorder.trace())?;
    let events = recording.descriptions("default/gone");
    assert_eq!(events, ["Added", "Deleted Inferred Deleted"]);
    Ok(())
}

async fn until_namespace(reference: &Reference, name: &str) -> Result<(), TestError> {
    let namespaces = Api::<Namespace>::all(reference.connection().await?.client());
    let start = Instant::now();
    while namespaces.get_opt(name).await?.is_none() {
        assert!(start.elapsed() < EVENT_TIMEOUT, "the namespace {name} does not exist");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
