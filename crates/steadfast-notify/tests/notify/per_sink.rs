//! Independent delivery state of each sink of a rule, across restarts and failures.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::core::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steadfast::{Checkpoint, Informer, InformerFactory, Lazy, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::message::Message;
use steadfast_notify::sink::{DeliveryFuture, MessageSink};
use steadfast_notify::{ClusterInformers, Engine, MessageSinks, Plan, RuleSource, RuleSubscription, forget_unlisted};
use steadfast_testing::{InMemory, config_map};
use tokio::time::sleep;

use crate::folder::Folder;
use steadfast::unstable::random::Random;

/// Receiver that outlives the program and records accepted messages.
#[derive(Default)]
struct Receiver {
    is_down: AtomicBool,
    /// True if messages are accepted, but the response is lost.
    loses_responses: AtomicBool,
    accepted: Mutex<Vec<Message>>,
}

impl Receiver {
    fn accepted(&self) -> Vec<Message> {
        self.accepted.lock().clone()
    }

    fn lines(&self) -> Vec<String> {
        self.accepted().iter().map(|message| format!("{} {} {}", message.kind, message.name, message.data)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.accepted().into_iter().map(|message| message.id).collect()
    }

    fn set_faults(&self, is_down: bool, loses_responses: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
        self.loses_responses.store(loses_responses, Ordering::Relaxed);
    }
}

/// Connection of one program run to a receiver. Sends nothing after the run was killed.
struct KillableStream {
    receiver: Arc<Receiver>,
    is_killed: Arc<AtomicBool>,
}

impl MessageSink for KillableStream {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            sleep(Duration::from_millis(20)).await;
            if self.is_killed.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            self.receiver.accept(messages)
        })
    }
}

impl Receiver {
    fn accept(&self, messages: &[Arc<Message>]) -> DeliveryOutcome {
        let fails = DeliveryOutcome::Retry { retry_after: None, reason: "503".to_owned() };
        if self.is_down.load(Ordering::Relaxed) {
            return fails;
        }
        let mut accepted = self.accepted.lock();
        accepted.extend(messages.iter().map(|message| Message::clone(message)));
        if self.loses_responses.load(Ordering::Relaxed) { fails } else { DeliveryOutcome::Delivered }
    }
}

/// A cluster, receivers, and the folder of a program that is started several times.
struct Fixture {
    server: ApiServer,
    folder: Folder,
    receivers: BTreeMap<&'static str, Arc<Receiver>>,
    run_number: u32,
    rule: &'static str,
}

/// One run of the program.
struct Run {
    engine: Engine,
    factory: InformerFactory,
    informer: Informer<Lazy<DynamicObject>>,
    is_killed: Arc<AtomicBool>,
    _subscriptions: BTreeMap<String, RuleSubscription>,
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let server = ApiServer::builder().in_memory().start().await.expect("a running server");
        let receivers = ["pager", "chat", "mail"].map(|name| (name, Arc::default()));
        Self { server, folder: Folder::new(name), receivers: receivers.into(), run_number: 0, rule: "each" }
    }

    fn checkpoint_file(&self) -> PathBuf {
        self.folder.join(format!("{}.checkpoint", self.run_number))
    }

    async fn cluster_informers(&self) -> ClusterInformers {
        let network = InMemory { seed: u64::from(self.run_number), ..InMemory::default() };
        let connection = network.connection(&self.server).await.expect("a connection");
        let factory = InformerFactory::new(&connection);
        let checkpoint = Some(Checkpoint::open(self.checkpoint_file()).expect("the checkpoint opens"));
        ClusterInformers {
            connection_id: u64::from(self.run_number),
            factory,
            checkpoint,
            watermark_folder: None,
            audit_interval: Duration::from_secs(600),
            memory_limit: None,
            clock: Timestamp::now,
        }
    }

    fn source(&self) -> RuleSource {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let cluster = "default".to_owned();
        RuleSource {
            rule: self.rule.to_owned(),
            cluster,
            resource,
            scope: Scope::namespace("default"),
            lookups: Vec::new(),
        }
    }

    async fn start(&self, sinks: &[&'static str]) -> Run {
        let cluster_informers = self.cluster_informers().await;
        let mut text = format!(
            "[[rules]]\nname = \"{}\"\nresources = [\"cm\"]\nsend = \"object.data.value\"\nto = {sinks:?}\n",
            self.rule
        );
        for sink in sinks {
            text.push_str(&["[sinks.", sink, "]\nexec = {command = [\"none\"]}\n"].concat());
            text.push_str("retry = {first = \"200ms\", longest = \"2s\"}\n");
        }
        let plan = Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let is_killed = Arc::new(AtomicBool::new(false));
        let killable_stream =
            |sink| KillableStream { receiver: self.receivers[sink].clone(), is_killed: is_killed.clone() };
        let streams: MessageSinks = sinks
            .iter()
            .map(|sink| ((*sink).to_owned(), Arc::new(killable_stream(*sink)) as Arc<dyn MessageSink>))
            .collect();
        let engine = Engine::start(&plan, streams, u64::from(self.run_number), |_| {});
        let source = self.source();
        let subscriptions = RuleSubscription::start(&cluster_informers, &source, sinks, BTreeMap::new(), &engine)
            .expect("the subscription starts");
        let informer = source.informer(&cluster_informers, None).expect("an existing file");
        Run { engine, factory: cluster_informers.factory, informer, is_killed, _subscriptions: subscriptions }
    }

    /// Kills the program: the next run starts with a copy of the current file.
    fn kill(&mut self, run: &Run) {
        let before = self.checkpoint_file();
        self.run_number += 1;
        std::fs::copy(before, self.checkpoint_file()).expect("enough space");
        run.is_killed.store(true, Ordering::Relaxed);
        run.factory.shutdown();
    }

    fn set(&self, name: &str, value: &str) {
        let object = config_map(name, value);
        self.server.replace(&object).or_else(|_| self.server.create(&object)).expect("the config map is stored");
    }

    fn delete(&self, name: &str) {
        // The object may already be deleted.
        let _ = self.server.delete_named("configmaps", "default", name);
    }

    async fn settle(&self, run: &Run) {
        let version = self.server.revision().to_string();
        run.informer
            .wait_for_version(&version.as_str().into(), Duration::from_secs(60))
            .await
            .expect("the informer reaches the version");
        sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn dead_sink_delays_no_other_sink() {
    let fixture = Fixture::new("dead-sink").await;
    fixture.receivers["pager"].set_faults(true, false);
    let run = fixture.start(&["pager", "chat"]).await;
    sleep(Duration::from_secs(1)).await;
    for value in ["1", "2", "3"] {
        fixture.set("a", value);
        sleep(Duration::from_secs(2)).await;
    }
    fixture.delete("a");
    fixture.settle(&run).await;
    let all = ["Added a \"1\"", "Updated a \"2\"", "Updated a \"3\"", "Deleted a \"3\""];
    assert_eq!(fixture.receivers["chat"].lines(), all);
    assert_eq!(fixture.receivers["pager"].lines(), Vec::<String>::new());

    // The pager receives two pending events: the first change with its original ID, and the merged later changes.
    fixture.receivers["pager"].set_faults(false, false);
    fixture.settle(&run).await;
    assert_eq!(fixture.receivers["pager"].lines(), ["Added a \"1\"", "Deleted a \"3\""]);
    let chat = fixture.receivers["chat"].ids();
    assert!(fixture.receivers["pager"].ids().iter().all(|id| chat.contains(id)), "{chat:?}");
    run.factory.shutdown();
}

/// Starts a handler as in an older version, which acknowledges once for all sinks. This handler never acknowledges.
async fn start_older_version(fixture: &Fixture, name: &str) -> InformerFactory {
    let cluster_informers = fixture.cluster_informers().await;
    let informer = fixture.source().informer(&cluster_informers, None).expect("an existing file");
    let pending = informer.durable(name).deadline(Duration::from_secs(1_000_000));
    pending
        .on_event(|reported: steadfast::DurableEvent<Lazy<DynamicObject>>| async move {
            if reported.id.is_empty() || reported.event.object().key().name() != "old" {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::io::Error>(())
        })
        .expect("the handler is added");
    cluster_informers.factory
}

async fn check_migration_of_older_state(rule: &'static str, name: &str, older: &str) {
    let mut fixture = Fixture::new(name).await;
    fixture.rule = rule;
    fixture.set("old", "1");
    let factory = start_older_version(&fixture, older).await;
    sleep(Duration::from_secs(5)).await;
    fixture.set("a", "1");
    sleep(Duration::from_secs(5)).await;
    fixture.set("a", "2");
    sleep(Duration::from_secs(5)).await;
    let before = fixture.checkpoint_file();
    fixture.run_number += 1;
    std::fs::copy(before, fixture.checkpoint_file()).expect("enough space");
    factory.shutdown();
    fixture.set("old", "2");

    fixture.receivers["pager"].set_faults(true, false);
    let run = fixture.start(&["pager", "chat"]).await;
    fixture.settle(&run).await;
    let mut lines = fixture.receivers["chat"].lines();
    lines.sort();
    assert_eq!(lines, ["Added a \"1\"", "Updated a \"2\"", "Updated old \"2\""]);
    let all = [(rule, "pager"), (rule, "chat")];
    forget_unlisted(&run.informer, &all, &[]);
    fixture.settle(&run).await;
    fixture.kill(&run);

    // `mail` is new and receives no earlier change. The pager receives the pending events of the older version.
    fixture.receivers["pager"].set_faults(false, false);
    let run = fixture.start(&["pager", "chat", "mail"]).await;
    fixture.settle(&run).await;
    fixture.set("b", "1");
    fixture.settle(&run).await;
    assert_eq!(fixture.receivers["mail"].lines(), ["Added b \"1\""]);
    let sorted = |name: &str| {
        let mut ids = fixture.receivers[name].ids();
        ids.sort();
        ids
    };
    assert_eq!(sorted("pager"), sorted("chat"));
    assert_eq!(sorted("chat").len(), 4, "{:?}", sorted("chat"));
    assert!(sorted("chat").iter().all(|id| id.contains('@') && id.ends_with(&format!("/{rule}"))));
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn older_version_state_is_migrated() {
    check_migration_of_older_state("each", "older", "each").await;
}

#[tokio::test(start_paused = true)]
async fn long_rule_name_state_is_migrated() {
    // The older version stored the first 16 bytes of the SHA-256 of the name.
    let rule = "a-rule-whose-name-is-longer-than-the-sixty-three-bytes-of-a-handler-name";
    let mut hash = String::new();
    for byte in Sha256::digest(rule.as_bytes()).iter().take(16) {
        write!(hash, "{byte:02x}").expect("writing to a text does not fail");
    }
    check_migration_of_older_state(rule, "older-long", &hash).await;
}

/// Runs random changes, failures of receivers and kills of the program, and checks the accepted messages.
async fn scenario(seed: u64) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut rng = Random::new(seed);
    let mut fixture = Fixture::new(&format!("scenario-{seed}")).await;
    let sinks = ["pager", "chat"];
    let mut run = fixture.start(&sinks).await;
    sleep(Duration::from_secs(1)).await;
    for step in 0..60_u64 {
        match rng.below(10) {
            0..=4 => fixture.set(NAMES[rng.below(3) as usize], &step.to_string()),
            5 => fixture.delete(NAMES[rng.below(3) as usize]),
            6 | 7 => {
                let receiver = &fixture.receivers[sinks[rng.below(2) as usize]];
                receiver.set_faults(rng.below(2) == 0, rng.below(3) == 0);
            }
            8 => {
                fixture.kill(&run);
                if rng.below(2) == 0 {
                    fixture.set(NAMES[rng.below(3) as usize], &step.to_string());
                }
                run = fixture.start(&sinks).await;
            }
            _ => {}
        }
        sleep(Duration::from_millis(rng.below(1500))).await;
    }
    for sink in sinks {
        fixture.receivers[sink].set_faults(false, false);
    }
    fixture.settle(&run).await;
    assert_eq!(run.engine.drain(Duration::from_secs(100)).await, 0, "seed {seed}");

    let mut contents_by_id: BTreeMap<String, Value> = BTreeMap::new();
    for sink in sinks {
        let accepted = fixture.receivers[sink].accepted();
        for name in NAMES {
            let last = accepted.iter().rev().find(|message| message.name == name);
            match fixture.server.get("configmaps", "default", name) {
                Ok(object) => {
                    let last = last.unwrap_or_else(|| panic!("seed {seed}: {sink} has nothing of {name}"));
                    assert_ne!(last.kind, "Deleted", "seed {seed}: {sink}, {name}");
                    assert_eq!(last.data, object["data"]["value"], "seed {seed}: {sink}, {name}");
                }
                Err(_) => assert!(last.is_none_or(|last| last.kind == "Deleted"), "seed {seed}: {sink}, {name}"),
            }
            // The first copies of an object's messages arrive in order: no older message follows after a newer one was
            // acknowledged.
            let (mut known_ids, mut newest_rank) = (BTreeSet::new(), 0);
            for message in accepted.iter().filter(|message| message.name == name) {
                let version = message.id.split(['@', '-', '/']).rev().find_map(|part| part.parse::<u64>().ok());
                let version = version.unwrap_or_else(|| panic!("{}", message.id));
                let rank = 2 * version + u64::from(message.kind == "Deleted");
                if known_ids.insert(message.id.clone()) {
                    assert!(rank > newest_rank, "seed {seed}: {sink}: {} after {newest_rank}", message.id);
                    newest_rank = rank;
                }
                // Equal IDs must have equal contents, for every sink and in every run.
                let content = json!([message.kind, message.data]);
                let previous =
                    contents_by_id.entry(format!("{}{}", message.id, message.kind)).or_insert_with(|| content.clone());
                assert_eq!(*previous, content, "seed {seed}: {}", message.id);
            }
        }
    }
    run.factory.shutdown();
}

#[test]
fn random_failures_leave_each_sink_complete() {
    for seed in 0..10 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.expect("a runtime").block_on(scenario(seed));
    }
}
