//! A misbehaving namespace next to a quiet one: limits of the sink queue and the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Checkpoint, Informer, InformerFactory, Lazy, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink::{DeliveryFuture, MessageSink};
use steadfast_notify::{ClusterInformers, Engine, MessageSinks, Plan, RuleSource, RuleSubscription};
use steadfast_testing::InMemory;
use tokio::time::sleep;

use crate::folder::Folder;

/// A receiver that accepts nothing of the namespace `hostile`.
#[derive(Default)]
struct Receiver(Mutex<Vec<String>>);

impl Receiver {
    fn names(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl MessageSink for Receiver {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            if messages.iter().any(|message| message.namespace == "hostile") {
                return DeliveryOutcome::Retry { retry_after: None, reason: "503".to_owned() };
            }
            let names = messages.iter().map(|message| message.name.clone());
            self.0.lock().extend(names);
            DeliveryOutcome::Delivered
        })
    }
}

struct Fixture {
    server: ApiServer,
    receiver: Arc<Receiver>,
    factory: InformerFactory,
    engine: Engine,
    informers: Vec<Informer<Lazy<DynamicObject>>>,
    _subscriptions: Vec<BTreeMap<String, RuleSubscription>>,
}

impl Fixture {
    /// Watches each of `scopes`, with a checkpoint in `folder` if possible.
    async fn start(scopes: &[Scope], memory_limit: Option<usize>, folder: Option<&Folder>, when: &str) -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("a running server");
        let factory = InformerFactory::new(&InMemory::default().connection(&server).await.expect("a connection"));
        let cluster_informers = ClusterInformers {
            connection_id: 0,
            factory: factory.clone(),
            checkpoint: folder
                .map(|folder| Checkpoint::open(folder.join("a.checkpoint")).expect("the checkpoint opens")),
            watermark_folder: None,
            audit_interval: Duration::from_secs(600),
            memory_limit,
            clock: Timestamp::now,
        };
        let text = format!(
            "[[rules]]\nname = \"each\"\nresources = [\"cm\"]\nwhen = \"{when}\"\nto = [\"log\"]\n\
             [sinks.log]\nexec = {{command = [\"none\"]}}\nretry = {{first = \"1s\", longest = \"1h\"}}\n"
        );
        let plan = Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let receiver = Arc::<Receiver>::default();
        let streams: MessageSinks = [("log".to_owned(), receiver.clone() as Arc<dyn MessageSink>)].into();
        let engine = Engine::start(&plan, streams, 1, |_| {});
        let subscriptions = scopes.iter().map(|scope| {
            let source = RuleSource {
                rule: "each".to_owned(),
                cluster: "default".to_owned(),
                resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")),
                scope: scope.clone(),
                lookups: Vec::new(),
            };
            let subscriptions =
                RuleSubscription::start(&cluster_informers, &source, &["log"], BTreeMap::new(), &engine)
                    .expect("the subscription starts");
            (subscriptions, source.informer(&cluster_informers, None).expect("the informer runs"))
        });
        let (subscriptions, informers) = subscriptions.unzip();
        sleep(Duration::from_secs(5)).await;
        let fixture = Self { server, receiver, factory, engine, informers, _subscriptions: subscriptions };
        for namespace in ["hostile", "quiet"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            // The server may have created the namespace already.
            let _ = fixture.server.create(&object);
        }
        fixture
    }

    fn create(&self, namespace: &str, name: &str, value: &str) {
        let metadata = json!({"namespace": namespace, "name": name});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}});
        self.server.create(&object).expect("the object is created");
    }

    /// Waits until as many messages as `names` were delivered, and returns the delivered names. Expressions run on real
    /// threads, so the wait combines real and virtual time.
    async fn wait_for_names(&self, names: &[&str]) -> Vec<String> {
        for _ in 0..2000 {
            if self.receiver.names().len() >= names.len() {
                break;
            }
            let pause = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5)));
            pause.await.expect("a pause");
            sleep(Duration::from_millis(100)).await;
        }
        self.receiver.names()
    }
}

async fn check_flood(folder: Option<&Folder>, when: &str, objects: usize) {
    let fixture = Fixture::start(&[Scope::all()], None, folder, when).await;
    for number in 0..objects {
        fixture.create("hostile", &format!("h-{number}"), "x");
    }
    for _ in 0..6000 {
        let stats = fixture.engine.stats();
        if stats.sinks["log"].waiting >= 5000 && stats.sinks["log"].throttled_total > 0 {
            break;
        }
        let pause = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5)));
        pause.await.expect("a pause");
        sleep(Duration::from_millis(10)).await;
    }
    fixture.create("quiet", "q", "x");
    assert_eq!(fixture.wait_for_names(&["q"]).await, ["q"]);
    let stats = fixture.engine.stats();
    assert_eq!(stats.sinks["log"].waiting, 5000, "half of the queue is the share of a single namespace");
    assert_eq!(stats.sinks["log"].throttled.keys().collect::<Vec<_>>(), ["default/hostile"]);
    fixture.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn namespace_flood_leaves_space_for_others() {
    check_flood(Some(&Folder::new("flood")), "true", 11_000).await;
}

#[tokio::test(start_paused = true)]
async fn flood_without_checkpoint_leaves_space_for_another() {
    check_flood(None, "now > timestamp('2020-01-01T00:00:00Z')", 5_500).await;
}

#[tokio::test(start_paused = true)]
async fn parked_changes_without_checkpoint_block_no_other() {
    // 5,000 changes fill the share of the namespace. The other 3,000 are more than the handler keeps separate.
    check_flood(None, "true", 5_000 + 3_000).await;
}

#[tokio::test(start_paused = true)]
async fn huge_objects_fill_only_namespace_cache() {
    let scopes = ["hostile", "quiet"].map(Scope::namespace);
    let fixture = Fixture::start(&scopes, Some(1_000_000), None, "true").await;
    let large_value = "x".repeat(400_000);
    for number in 0..5 {
        fixture.create("hostile", &format!("h-{number}"), &large_value);
    }
    sleep(Duration::from_secs(30)).await;
    for number in 0..5 {
        fixture.create("quiet", &format!("q-{number}"), "x");
    }
    sleep(Duration::from_secs(30)).await;
    let names = fixture.wait_for_names(&["q-0", "q-1", "q-2", "q-3", "q-4"]).await;
    assert_eq!(names, ["q-0", "q-1", "q-2", "q-3", "q-4"]);
    let memory_bytes = fixture.informers.iter().map(Informer::memory).map(|memory| memory.objects + memory.keys);
    let memory_bytes: Vec<usize> = memory_bytes.collect();
    // The object that exceeds the limit is decoded before its rejection, so its size is added to the bound.
    assert!(memory_bytes.iter().all(|bytes| *bytes <= 1_000_000 + 410_000), "{memory_bytes:?}");
    let states: Vec<&str> = fixture.informers.iter().map(|informer| informer.freshness().name()).collect();
    assert_eq!(states, ["failed", "fresh"]);
    fixture.factory.shutdown();
}
