//! What clusters have and a server of ours cannot be believed about: users who may only list, APIs of other servers,
//! webhooks that never answer, objects nested deeper than most readers go, another cluster at the same address.
//!
//! All is told on one reference, for a start of it takes seconds.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, PostParams, WatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use steadfast::{Freshness, Informer, InformerFactory, Kept, Scope};
use steadfast_apiserver::{Answer, ApiServer, Corruption, RequestRule, ResourceDeclaration, Verb};
use steadfast_contract::check;
use steadfast_testing::WorldError;
use steadfast_testing::cluster::Writer;
use steadfast_testing::reference::Reference;

/// How long what must come about may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// How long those may be held up who have nothing to do with what hangs: on a busy machine too, far less than the half
/// minute in which a list is given up.
const AT_ONCE: Duration = Duration::from_secs(8);
/// How long after it is reached a server that began anew is taken for the old one, and how long a list may then take.
const NOTICED: Duration = Duration::from_secs(5);
/// How often is listed what cannot be watched.
const POLL: Duration = Duration::from_secs(1);
const GROUP: &str = "hardships.steadfast.test";
/// Deeper than `serde_json` and most others read; a real server takes thousands.
const LEVELS: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_hard_on_one_informer_is_nothing_to_the_others() -> Result<(), WorldError> {
    let Some(mut reference) = Reference::start().await? else { return Ok(()) };
    a_user_who_may_only_list(&reference).await?;
    an_aggregated_api_that_only_lists(&reference).await?;
    a_conversion_webhook_that_is_dead(&reference).await?;
    an_object_nested_too_deeply(&reference).await?;
    another_etcd_at_the_same_address(&mut reference).await
}

async fn a_user_who_may_only_list(reference: &Reference) -> Result<(), WorldError> {
    reference.allow("lister", &["list"], "", "configmaps").await?;
    let connection = reference.connection_as("lister").await?;
    let config_maps: Api<ConfigMap> = Api::namespaced(connection.client(), "default");
    config_maps.list(&ListParams::default()).await?;
    let watch = config_maps.watch(&WatchParams::default(), "0").await.err();
    assert!(matches!(&watch, Some(kube::Error::Api(status)) if status.code == 403), "{watch:?}");
    let namespaces = Api::<Namespace>::all(connection.client()).list(&ListParams::default()).await.err();
    assert!(matches!(&namespaces, Some(kube::Error::Api(status)) if status.code == 403), "{namespaces:?}");

    let factory = InformerFactory::new(&connection);
    let informer = factory.build::<ConfigMap>(Scope::namespace("default")).poll_every(POLL).start()?;
    informer.wait_for_sync(SOON).await?;
    let polled = until_polled(&informer).await?;
    assert!(polled.contains("403"), "{polled}");
    let writer = Writer::new(reference.connection().await?.client(), "default");
    writer.create("listed", "1").await?;
    let lister = informer.lister()?;
    until("it is listed", || lister.get("default", "listed").is_ok_and(|found| found.is_some())).await?;
    writer.delete("listed").await?;
    until("it is no longer listed", || lister.get("default", "listed").is_ok_and(|found| found.is_none())).await?;
    until_polled(&informer).await.map(drop)
}

async fn an_aggregated_api_that_only_lists(reference: &Reference) -> Result<(), WorldError> {
    let declared = ResourceDeclaration::cluster_scoped("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes");
    let behind = ApiServer::builder().tls(true).resource(declared).start().await?;
    let rule = RequestRule::any().resource("nodes.metrics.k8s.io");
    behind.faults().answer_with(rule.clone().verb(Verb::Watch).verb(Verb::StreamedList), Answer::code(405));
    // Nor has what it lists a UID or a version.
    behind.faults().corrupt(rule.verb(Verb::List), Corruption::Anonymous);
    let node =
        |name: &str| json!({"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": {"name": name}});
    behind.create(&node("a"))?;
    reference.aggregate("metrics.k8s.io", "v1beta1", behind.address(0).ok_or("no address")?).await?;

    let connection = reference.connection().await?;
    let mut kind = kind_of("metrics.k8s.io", "v1beta1", "NodeMetrics");
    "nodes".clone_into(&mut kind.plural);
    let nodes: Api<DynamicObject> = Api::all_with(connection.client(), &kind);
    let all = nodes.list(&ListParams::default()).await?;
    assert_eq!((all.items.len(), &all.metadata.resource_version, &all.items[0].metadata.uid), (1, &None, &None));
    let watch = nodes.watch(&WatchParams::default(), "0").await.err();
    assert!(matches!(&watch, Some(kube::Error::Api(status)) if status.code == 405), "{watch:?}");

    let factory = InformerFactory::new(&connection);
    let informer = factory.build_with::<DynamicObject>(&kind, Scope::all()).poll_every(POLL).start()?;
    informer.wait_for_sync(SOON).await?;
    let polled = until_polled(&informer).await?;
    assert!(polled.contains("no version to watch from"), "{polled}");
    behind.create(&node("b"))?;
    let lister = informer.lister()?;
    until("it is listed", || lister.get_cluster("b").is_ok_and(|found| found.is_some())).await?;
    assert!(lister.get_cluster("a")?.is_some());
    behind.merge_patch("nodes.metrics.k8s.io", "", "a", json!({"usage": {"cpu": "1"}}))?;
    until("it is changed", || {
        lister.get_cluster("a").is_ok_and(|found| found.is_some_and(|found| found.data["usage"]["cpu"] == "1"))
    })
    .await?;
    until_polled(&informer).await.map(drop)
}

/// Objects are stored in one version and asked for in another: the server asks a webhook, which takes connections and
/// says nothing on them.
async fn a_conversion_webhook_that_is_dead(reference: &Reference) -> Result<(), WorldError> {
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
        let stored = kind_of(GROUP, "v1", kind);
        let object = DynamicObject::new("a", &stored).data(json!({"spec": {}}));
        Api::<DynamicObject>::namespaced_with(client.clone(), "default", &stored)
            .create(&PostParams::default(), &object)
            .await?;
        kinds.push(kind_of(GROUP, "v2", kind));
    }
    let asked: Api<DynamicObject> = Api::namespaced_with(client, "default", &kinds[0]);
    let never = tokio::time::timeout(Duration::from_secs(2), asked.list(&ListParams::default())).await;
    assert!(never.is_err(), "the webhook is dead, and yet there is an answer: {never:?}");

    let factory = InformerFactory::new(&reference.connection().await?);
    let scope = || Scope::namespace("default");
    let hanging: Vec<Informer<DynamicObject>> =
        kinds.iter().map(|kind| factory.informer_with(kind, scope())).collect::<Result<_, _>>()?;
    // They have asked before the others do.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let others = [factory.informer::<ConfigMap>(scope())?, factory.informer::<ConfigMap>(Scope::all())?];
    for other in &others {
        other.wait_for_sync(AT_ONCE).await?;
    }
    println!("a dead webhook: others synced after {:.1?}", begun.elapsed());
    assert!(hanging.iter().all(|informer| !informer.has_synced()), "the webhook is dead");
    drop(webhook);
    Ok(())
}

async fn an_object_nested_too_deeply(reference: &Reference) -> Result<(), WorldError> {
    define(reference, definition("Well", &[("v1", true)])).await?;
    let kind = kind_of(GROUP, "v1", "Well");
    let client = reference.connection().await?.client();
    let wells: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let shallow = DynamicObject::new("shallow", &kind).data(json!({"spec": {}}));
    wells.create(&PostParams::default(), &shallow).await?;
    // As text: whoever reads the answer into a tree fails.
    let (down, up) = (r#"{"down":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let metadata = r#"{"name":"deep"}"#;
    let deep = format!(r#"{{"apiVersion":"{GROUP}/v1","kind":"Well","metadata":{metadata},"spec":{down}1{up}}}"#);
    let path = format!("/apis/{GROUP}/v1/namespaces/default/wells");
    let request = http::Request::post(&path).header("content-type", "application/json").body(deep.into_bytes())?;
    client.request_text(request).await?;
    let answer = client.request_text(http::Request::get(format!("{path}/deep")).body(Vec::new())?).await?;
    assert_eq!(answer.matches("\"down\"").count(), LEVELS);
    assert!(wells.list(&ListParams::default()).await.is_err(), "it is no deeper than others read");

    let factory = InformerFactory::new(&reference.connection().await?);
    let informer = factory.informer_with::<DynamicObject>(&kind, Scope::namespace("default"))?;
    informer.wait_for_sync(SOON).await?;
    let lister = informer.lister()?;
    assert!(lister.get("default", "shallow")?.is_some());
    let unknown = lister.get("default", "deep").expect_err("it is too deep").to_string();
    assert!(unknown.contains("default/deep"), "{unknown}");
    // Its deletion is told from its identity alone, and what comes after it as ever.
    let request = http::Request::delete(format!("{path}/deep")).body(Vec::new())?;
    client.request_text(request).await?;
    let later = wells.create(&PostParams::default(), &DynamicObject::new("later", &kind)).await?;
    informer.wait_for(&later).await?;
    assert!(lister.get("default", "deep")?.is_none(), "it is deleted");
    assert!(informer.freshness().is_fresh(), "{}", informer.freshness());
    Ok(())
}

/// The server comes back at its address with another cluster in it: versions begin anew, and nothing is there.
async fn another_etcd_at_the_same_address(reference: &mut Reference) -> Result<(), WorldError> {
    let recorder = reference.recorder();
    let writer = Writer::new(reference.connection().await?.client(), "default");
    for name in ["gone", "again"] {
        writer.create(name, "old").await?;
    }
    let connection = reference.connection().await?;
    let factory = InformerFactory::new(&connection);
    let informer = factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    let seen = recorder.record(&informer);
    informer.wait_for_sync(SOON).await?;
    until_fresh(&informer).await?;

    reference.replace_etcd().await?;
    let opened = steadfast::unstable::dialled(&connection);
    let reached = tokio::spawn(async move {
        while steadfast::unstable::dialled(&connection) == opened {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Instant::now()
    });
    reference.start_again(0).await?;
    let reached = tokio::time::timeout(SOON, reached).await??;
    let writer = Writer::new(reference.connection().await?.client(), "default");
    let lister = informer.lister()?;
    while lister.get("default", "gone")?.is_some() {
        let freshness = informer.freshness();
        assert!(!freshness.is_fresh(), "what is not there is read, and said to be {freshness}");
        assert!(reached.elapsed() < 2 * NOTICED, "{freshness}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("another etcd: told {:.1?} after the server was reached again", reached.elapsed());
    assert!(writer.get("gone").await.is_err(), "the old objects are still there");
    until_namespace(reference, "default").await?;
    writer.create("again", "new").await?;
    until_fresh(&informer).await?;
    reference.settle(&recorder).await?;
    check(&reference.history("", "configmaps").await?, &recorder.trace())?;
    let scenario = seen.in_words("default/gone");
    assert_eq!(scenario, ["Added", "Deleted Inferred Deleted"]);
    Ok(())
}

fn kind_of(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The definition of a kind of any form, in versions that are served, of which one is stored.
fn definition(kind: &str, versions: &[(&str, bool)]) -> Value {
    let plural = kind_of(GROUP, "v1", kind).plural;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, stored)| json!({"name": name, "served": true, "storage": stored, "schema": {"openAPIV3Schema": any}}))
        .collect();
    json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": versions,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        },
    })
}

/// Defines a resource, and waits until it is served.
async fn define(reference: &Reference, definition: Value) -> Result<(), WorldError> {
    let client = reference.connection().await?.client();
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    let kind = kind_of(GROUP, "v1", &definition.spec.names.kind);
    Api::<CustomResourceDefinition>::all(client.clone()).create(&PostParams::default(), &definition).await?;
    let served: Api<DynamicObject> = Api::all_with(client, &kind);
    let begun = Instant::now();
    while let Err(error) = served.list(&ListParams::default()).await {
        if begun.elapsed() > SOON {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn until_namespace(reference: &Reference, name: &str) -> Result<(), WorldError> {
    let namespaces = Api::<Namespace>::all(reference.connection().await?.client());
    let begun = Instant::now();
    while namespaces.get_opt(name).await?.is_none() {
        assert!(begun.elapsed() < SOON, "there is no namespace {name}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn until_fresh(informer: &Informer<ConfigMap>) -> Result<(), WorldError> {
    until("it is fresh", || informer.freshness().is_fresh()).await
}

/// Waits until the informer says that it is fresh by lists alone, and returns why.
async fn until_polled<K: Kept>(informer: &Informer<K>) -> Result<String, WorldError> {
    let told = || match informer.freshness() {
        Freshness::Fresh { polled: Some(polled), .. } => Some(polled.why.to_string()),
        _ => None,
    };
    until("it is fresh by lists", || told().is_some()).await?;
    Ok(told().unwrap_or_default())
}

async fn until(what: &str, holds: impl Fn() -> bool) -> Result<(), WorldError> {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > SOON {
            return Err(format!("it was not to be seen in {SOON:?} that {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
