//! Hostile namespace next to a quiet one: limits of the sink queue and the cache.

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
use steadfast_notify::sink::{DeliveryFuture, MessageStream};
use steadfast_notify::{Engine, Plan, RuleSource, RuleSubscription, Streams, WatchSpec};
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

impl MessageStream for Receiver {
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

struct World {
    server: ApiServer,
    receiver: Arc<Receiver>,
    factory: InformerFactory,
    engine: Engine,
    informers: Vec<Informer<Lazy<DynamicObject>>>,
    _following: Vec<BTreeMap<String, RuleSubscription>>,
}

impl World {
    /// Watches each of `scopes`, with a checkpoint in `folder` if possible.
    async fn start(scopes: &[Scope], memory_limit: Option<usize>, folder: Option<&Folder>, when: &str) -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("a running server");
        let factory = InformerFactory::new(&InMemory::default().connection(&server).await.expect("a connection"));
        let watch_spec = WatchSpec {
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
        let streams: Streams = [("log".to_owned(), receiver.clone() as Arc<dyn MessageStream>)].into();
        let engine = Engine::start(&plan, streams, 1, |_| {});
        let following = scopes.iter().map(|scope| {
            let source = RuleSource {
                rule: "each".to_owned(),
                cluster: "default".to_owned(),
                resource: ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap")),
                scope: scope.clone(),
                lookups: Vec::new(),
            };
            let following = RuleSubscription::start(&watch_spec, &source, &["log"], BTreeMap::new(), &engine)
                .expect("the subscription starts");
            (following, source.informer(&watch_spec, None).expect("the informer runs"))
        });
        let (following, informers) = following.unzip();
        sleep(Duration::from_secs(5)).await;
        let world = Self { server, receiver, factory, engine, informers, _following: following };
        for namespace in ["hostile", "quiet"] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            // The server may have created the namespace already.
            let _ = world.server.create(&object);
        }
        world
    }

    fn create(&self, namespace: &str, name: &str, value: &str) {
        let metadata = json!({"namespace": namespace, "name": name});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}});
        self.server.create(&object).expect("the object is created");
    }

    /// Waits until as many messages as `names` were delivered, and returns the delivered names. Expressions run on real
    /// threads, so the wait combines real and virtual time.
    async fn until(&self, names: &[&str]) -> Vec<String> {
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

async fn flood(folder: Option<&Folder>, when: &str, objects: usize) {
    let world = World::start(&[Scope::all()], None, folder, when).await;
    for number in 0..objects {
        world.create("hostile", &format!("h-{number}"), "x");
    }
    for _ in 0..6000 {
        let counts = world.engine.stats();
        if counts.sinks["log"].waiting >= 5000 && counts.sinks["log"].throttled_total > 0 {
            break;
        }
        let pause = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5)));
        pause.await.expect("a pause");
        sleep(Duration::from_millis(10)).await;
    }
    world.create("quiet", "q", "x");
    assert_eq!(world.until(&["q"]).await, ["q"]);
    let counts = world.engine.stats();
    assert_eq!(counts.sinks["log"].waiting, 5000, "half of the queue is the share of a single namespace");
    assert_eq!(counts.sinks["log"].throttled.keys().collect::<Vec<_>>(), ["default/hostile"]);
    world.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn namespace_flood_leaves_space_for_others() {
    flood(Some(&Folder::new("flood")), "true", 11_000).await;
}

#[tokio::test(start_paused = true)]
async fn flood_without_checkpoint_leaves_space_for_another() {
    flood(None, "now > timestamp('2020-01-01T00:00:00Z')", 5_500).await;
}

#[tokio::test(start_paused = true)]
async fn parked_changes_without_checkpoint_block_no_other() {
    // The share of the namespace, and more waiting changes than are kept unmerged.
    flood(None, "true", 5_000 + 3_000).await;
}

#[tokio::test(start_paused = true)]
async fn huge_objects_fill_only_namespace_cache() {
    let scopes = ["hostile", "quiet"].map(Scope::namespace);
    let world = World::start(&scopes, Some(1_000_000), None, "true").await;
    let huge = "x".repeat(400_000);
    for number in 0..5 {
        world.create("hostile", &format!("h-{number}"), &huge);
    }
    sleep(Duration::from_secs(30)).await;
    for number in 0..5 {
        world.create("quiet", &format!("q-{number}"), "x");
    }
    sleep(Duration::from_secs(30)).await;
    let names = world.until(&["q-0", "q-1", "q-2", "q-3", "q-4"]).await;
    assert_eq!(names, ["q-0", "q-1", "q-2", "q-3", "q-4"]);
    let used = world.informers.iter().map(Informer::memory).map(|memory| memory.objects + memory.keys);
    let used: Vec<usize> = used.collect();
    // The object that exceeds the limit is decoded before its rejection, so its size is added to the bound.
    assert!(used.iter().all(|bytes| *bytes <= 1_000_000 + 410_000), "{used:?}");
    let states: Vec<&str> = world.informers.iter().map(|informer| informer.freshness().name()).collect();
    assert_eq!(states, ["failed", "fresh"]);
    world.factory.shutdown();
}
