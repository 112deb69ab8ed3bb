//! Messages caused by time or by a looked-up object.
//!
//! In random histories, three concurrent runs of the program must report the current state of each object. They may skip
//! different earlier states. The third run is killed and restarted in each round.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use steadfast::{Checkpoint, InformerFactory, Scope};
use steadfast_apiserver::ApiServer;
use steadfast_notify::delivery_outcome::DeliveryOutcome;
use steadfast_notify::engine_event::EngineEvent;
use steadfast_notify::message::Message;
use steadfast_notify::sink::{DeliveryFuture, MessageSink};
use steadfast_notify::{
    ClusterInformers, Engine, LookupResource, MessageSinks, Plan, Replication, RuleSource, RuleSubscription, Supervisor,
};
use steadfast_testing::InMemory;
use tokio::time::{Instant, sleep};

mod doubt;
mod replicas;
mod restarts;

use crate::folder::Folder;
use steadfast::unstable::random::Random;

/// Age at which an object is reported.
const REPORT_AGE_SECONDS: i64 = 30;

thread_local! {
    /// Virtual instant that corresponds to the wall-clock time [`start_time`].
    static CLOCK_START: Cell<Option<Instant>> = const { Cell::new(None) };

    /// Total duration of the simulated suspends of the machine, and of the jumps of the wall clock.
    static SUSPENDED_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };

    /// Number of reads of the wall clock.
    static CLOCK_READS: Cell<u32> = const { Cell::new(0) };
}

fn start_time() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

/// Advance of the wall clock at each read. Two reads on a real machine never return the same time. Without the advance,
/// the handler and the timer task would always read equal times.
const READ_STEP: Duration = Duration::from_micros(20);

/// Returns the wall-clock time, which follows the virtual clock of the runtime.
fn clock() -> Timestamp {
    CLOCK_READS.set(CLOCK_READS.get() + 1);
    let origin = CLOCK_START.get().unwrap_or_else(|| {
        let now = Instant::now();
        CLOCK_START.set(Some(now));
        now
    });
    start_time()
        + SignedDuration::try_from(origin.elapsed() + SUSPENDED_TIME.get() + READ_STEP * CLOCK_READS.get())
            .expect("a short time")
}

async fn real_pause() {
    let pause = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(5)));
    pause.await.expect("a pause");
}

/// Recording receiver.
#[derive(Default)]
pub(crate) struct Receiver(Mutex<Vec<Message>>);

/// Connection of one program run to a receiver. Delivers nothing after the run was killed.
struct EngineRunStream {
    receiver: Arc<Receiver>,
    is_killed: Arc<AtomicBool>,
}

impl MessageSink for EngineRunStream {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            if self.is_killed.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let messages = messages.iter().map(|message| Message::clone(message));
            self.receiver.0.lock().extend(messages);
            DeliveryOutcome::Delivered
        })
    }
}

impl Receiver {
    fn messages(&self) -> Vec<Message> {
        self.0.lock().clone()
    }

    /// Returns name and data of each message after the first `skipped` ones.
    fn messages_after(&self, skipped: usize) -> Vec<(String, Value)> {
        self.messages().into_iter().skip(skipped).map(|message| (message.name, message.data)).collect()
    }

    /// Waits in real time until `count` messages have arrived. Virtual time does not advance during the wait:
    /// expressions are evaluated on threads that all tests share.
    async fn wait_for_messages(&self, count: usize) -> Vec<Message> {
        for _ in 0..2000 {
            if self.messages().len() >= count {
                break;
            }
            real_pause().await;
        }
        self.messages()
    }
}

/// Checks that nothing is sent while the server is frozen, although the cache lacks the time `since` of the object. After
/// the freeze, the object must be reported once, at its age.
async fn expect_report_after_unread_change(fixture: &Fixture, receiver: &Receiver, since: Timestamp) {
    real_pause().await;
    assert!(receiver.messages().is_empty(), "the cache is behind: {:?}", receiver.messages());
    fixture.server.faults().freeze(false);
    sleep(Duration::from_secs(60)).await;
    assert!(receiver.messages().is_empty(), "the object is too young: {:?}", receiver.messages());
    sleep(Duration::from_secs(100)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(message.time, since + SignedDuration::from_secs(REPORT_AGE_SECONDS));
}

pub(crate) struct EngineRun {
    pub(crate) receiver: Arc<Receiver>,
    factory: InformerFactory,
    cluster_informers: ClusterInformers,
    source: RuleSource,
    engine: Engine,
    subscriptions: BTreeMap<String, RuleSubscription>,
    is_killed: Arc<AtomicBool>,
}

/// Settings of a run.
pub(crate) struct Settings<'a> {
    pub(crate) seed: u64,
    pub(crate) when: &'a str,
    pub(crate) send: &'a str,
    /// State folder with the number of its checkpoint.
    pub(crate) folder: Option<(&'a Folder, u64)>,
    pub(crate) replication: Replication,
}

impl Default for Settings<'_> {
    fn default() -> Self {
        Self { seed: 1, when: "true", send: DEFAULT_SEND, folder: None, replication: Replication::none() }
    }
}

pub(crate) const DEFAULT_SEND: &str = "{'value': object.data.value, 'of': get('services', 'default', object.data.ref)\
                           .?metadata.?annotations[?'v'].orValue('none')}";

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

fn plan(when: &str, send: &str) -> Plan {
    let text = format!(
        "[[rules]]\nname = \"aged\"\nresources = [\"cm\"]\nwhen = \"\"\"{when}\"\"\"\nto = [\"log\"]\n\
         events = [\"Added\", \"Updated\"]\ninitial = true\nsend = \"\"\"{send}\"\"\"\n\
         [sinks.log]\nexec = {{command = [\"none\"]}}\nretry = {{first = \"200ms\", longest = \"2s\"}}\n"
    );
    Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

impl EngineRun {
    async fn start(server: &ApiServer, seed: u64, when: &str, receiver: Arc<Receiver>) -> Self {
        Self::start_with(server, receiver, Settings { seed, when, ..Settings::default() }).await
    }

    pub(crate) async fn start_with(server: &ApiServer, receiver: Arc<Receiver>, settings: Settings<'_>) -> Self {
        let Settings { seed, when, send, folder, replication } = settings;
        let seed = seed + 1000 * folder.map_or(0, |(_, number)| number);
        let network = InMemory { seed, ..InMemory::default() };
        let factory = InformerFactory::new(&network.connection(server).await.expect("a connection"));
        let checkpoint = folder.map(|(folder, number)| {
            let file = folder.join(format!("{number}.checkpoint"));
            Checkpoint::open(file).expect("the checkpoint opens")
        });
        let cluster_informers = ClusterInformers {
            connection_id: seed,
            factory: factory.clone(),
            checkpoint,
            watermark_folder: folder.map(|(folder, number)| folder.join(format!("{number}.rechecks"))),
            audit_interval: Duration::from_secs(600),
            memory_limit: None,
            clock,
        };
        if let Some(folder) = &cluster_informers.watermark_folder {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        let plan = plan(when, send);
        let is_killed = Arc::new(AtomicBool::new(false));
        let stream = EngineRunStream { receiver: receiver.clone(), is_killed: is_killed.clone() };
        let streams: MessageSinks = [("log".to_owned(), Arc::new(stream) as Arc<dyn MessageSink>)].into();
        let report: Arc<dyn Fn(EngineEvent) + Send + Sync> = Arc::new(|_| {});
        let engine =
            Engine::start_replicated(&plan, streams, seed, Supervisor::new(report.clone()), report, replication);
        let lookups = plan.rules[0].lookups().into_iter().map(|name| LookupResource {
            name: name.to_owned(),
            resource: resource(if name == "secrets" { "Secret" } else { "Service" }),
            is_namespaced: true,
            namespace: Some("default".to_owned()),
        });
        let source = RuleSource {
            rule: "aged".to_owned(),
            cluster: "default".to_owned(),
            resource: resource("ConfigMap"),
            scope: Scope::namespace("default"),
            lookups: lookups.collect(),
        };
        let subscriptions = RuleSubscription::start(&cluster_informers, &source, &["log"], BTreeMap::new(), &engine)
            .expect("the subscription starts");
        Self { receiver, factory, cluster_informers, source, engine, subscriptions, is_killed }
    }

    /// Applies a changed rule, as a reload does.
    fn reload(&mut self, when: &str, send: &str) {
        let stream = EngineRunStream { receiver: self.receiver.clone(), is_killed: self.is_killed.clone() };
        let streams: MessageSinks = [("log".to_owned(), Arc::new(stream) as Arc<dyn MessageSink>)].into();
        self.engine.apply_plan(&plan(when, send), streams);
        let previous = std::mem::take(&mut self.subscriptions);
        let subscriptions =
            RuleSubscription::start(&self.cluster_informers, &self.source, &["log"], previous, &self.engine);
        self.subscriptions = subscriptions.expect("the subscription starts");
    }

    /// Kills the program: the next run starts with copies of the current files, under the next number.
    pub(crate) fn kill(&self, folder: &Folder, number: u64) {
        let next = number + 1;
        let rechecks = folder.join(format!("{next}.rechecks"));
        std::fs::create_dir_all(&rechecks).expect("a folder");
        let (checkpoint, files) = read_until_unchanged(|| state_of_run(folder, number));
        std::fs::write(folder.join(format!("{next}.checkpoint")), checkpoint).expect("a file");
        for (name, content) in files {
            std::fs::write(rechecks.join(name), content).expect("a file");
        }
        self.is_killed.store(true, Ordering::Relaxed);
        self.factory.shutdown();
    }
}

/// Checkpoint of a run, and its other files by name.
type StateFiles = (Vec<u8>, BTreeMap<OsString, Vec<u8>>);

fn state_of_run(folder: &Folder, number: u64) -> StateFiles {
    let checkpoint = std::fs::read(folder.join(format!("{number}.checkpoint"))).expect("the checkpoint exists");
    let files = std::fs::read_dir(folder.join(format!("{number}.rechecks"))).expect("a folder");
    // A task of the killed run may rename a file at this time, so errors are ignored.
    let files =
        files.filter_map(Result::ok).filter_map(|file| Some((file.file_name(), std::fs::read(file.path()).ok()?)));
    (checkpoint, files.collect())
}

/// Reads until two consecutive values are equal. Threads of the program may write during a read. Files of different
/// times would be a state that no kill can leave behind.
fn read_until_unchanged<T: PartialEq>(mut read: impl FnMut() -> T) -> T {
    let mut previous = read();
    for _ in 0..1000 {
        let current = read();
        if current == previous {
            return current;
        }
        previous = current;
    }
    panic!("the files of the run change all the time");
}

/// State of the cluster.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, ExpectedObject>,
    services: BTreeMap<String, u64>,
}

/// Current state of an object on the server.
struct ExpectedObject {
    value: u64,
    /// The time from which the age counts.
    since: Timestamp,
    /// Name of the looked-up Service.
    service: String,
    version: String,
}

impl Model {
    /// Returns the expected report of an object, if the object is old enough.
    fn expected(&self, name: &str) -> Option<Value> {
        let ExpectedObject { value, since, service, .. } = self.objects.get(name)?;
        if clock().duration_since(*since) < SignedDuration::from_secs(REPORT_AGE_SECONDS) {
            return None;
        }
        let service_value = self.services.get(service).map_or("none".to_owned(), u64::to_string);
        Some(json!({"value": value.to_string(), "of": service_value}))
    }
}

impl Model {
    /// Checks for each receiver that the last message of each object reports the object's current state. Skips objects
    /// whose due instant is less than a second before or after now.
    fn check(&self, receivers: &[Arc<Receiver>]) -> Result<(), String> {
        for (name, ExpectedObject { since, version, .. }) in &self.objects {
            let due = *since + SignedDuration::from_secs(REPORT_AGE_SECONDS);
            if clock().duration_since(due).abs() < SignedDuration::from_secs(1) {
                continue;
            }
            for receiver in receivers {
                let messages = receiver.messages();
                let last = last_message_of(&messages, name);
                let Some(expected) = self.expected(name) else {
                    // No message about the current state is due yet. An older message about an earlier state may exist.
                    match last.filter(|message| message.time >= due) {
                        Some(message) => return Err(format!("sent too early: {message:?}")),
                        None => continue,
                    }
                };
                let message = last.ok_or_else(|| format!("nothing was sent of {name}: {expected}"))?;
                if message.data != expected {
                    return Err(format!("not {expected}: {message:?}"));
                }
                // A new version with equal data causes no message, so the last message may name an earlier version.
                let id_rest = message.id.split_once(&format!("@{version}~"));
                let instant = id_rest.and_then(|(_, instant)| instant.split(['+', '/']).next());
                if instant.is_some_and(|instant| message.time != due || instant != due.to_string()) {
                    return Err(format!("not due at {due}: {message:?}"));
                }
            }
        }
        Ok(())
    }
}

struct Fixture {
    server: ApiServer,
    model: Model,
}

impl Fixture {
    async fn new() -> Self {
        CLOCK_START.set(None);
        SUSPENDED_TIME.set(Duration::ZERO);
        CLOCK_READS.set(0);
        clock();
        let server = ApiServer::builder().in_memory().start().await.expect("a running server");
        Self { server, model: Model::default() }
    }

    fn set(&mut self, name: &str, value: u64, since: Timestamp, service: &str) {
        let data = json!({"value": value.to_string(), "since": since.to_string(), "ref": service});
        let metadata = json!({"namespace": "default", "name": name});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        let written = self.server.replace(&object).or_else(|_| self.server.create(&object)).expect("a config map");
        let version = written["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
        let service = service.to_owned();
        self.model.objects.insert(name.to_owned(), ExpectedObject { value, since, service, version });
    }

    fn set_service(&mut self, name: &str, value: u64) {
        let metadata = json!({"namespace": "default", "name": name, "annotations": {"v": value.to_string()}});
        let spec = json!({"ports": [{"port": 80}]});
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        self.server.replace(&object).or_else(|_| self.server.create(&object)).expect("the service is stored");
        self.model.services.insert(name.to_owned(), value);
    }

    fn step(&mut self, rng: &mut Random) {
        let (object, service) = (format!("o-{}", rng.below(4)), format!("s-{}", rng.below(3)));
        match rng.below(8) {
            0..4 => {
                let ago = i64::try_from(rng.below(40)).expect("a small number");
                let mut since = clock() - SignedDuration::from_secs(ago);
                if rng.below(2) == 0 {
                    // The object reaches the age within 5 ms, close to the evaluation of this change, to provoke races.
                    let soon = i64::try_from(rng.below(5000)).expect("a small number");
                    since = clock() - SignedDuration::from_secs(REPORT_AGE_SECONDS) + SignedDuration::from_micros(soon);
                }
                self.set(&object, rng.below(100), since, &service);
            }
            4 if self.model.objects.remove(&object).is_some() => {
                self.server.delete_named("configmaps", "default", &object).expect("the object exists");
            }
            5 if self.model.services.remove(&service).is_some() => {
                self.server.delete_named("services", "default", &service).expect("the object exists");
            }
            _ => self.set_service(&service, rng.below(100)),
        }
    }
}

fn last_message_of<'m>(messages: &'m [Message], name: &str) -> Option<&'m Message> {
    messages.iter().rev().find(|message| message.name == name)
}

const OLD_ENOUGH: &str = "now - timestamp(object.data.since) >= duration('30s')";

async fn check_history(seed: u64) {
    let (mut fixture, mut rng) = (Fixture::new().await, Random::new(seed));
    let receivers = [Arc::<Receiver>::default(), Arc::default(), Arc::default()];
    let folder = Folder::new(&format!("rechecks-{seed}"));
    let mut runs = Vec::new();
    for (number, receiver) in receivers.iter().take(2).enumerate() {
        runs.push(EngineRun::start(&fixture.server, seed * 3 + number as u64, OLD_ENOUGH, receiver.clone()).await);
    }
    let checkpoint_settings = |number| Settings {
        seed: seed * 3 + 2,
        when: OLD_ENOUGH,
        folder: Some((&folder, number)),
        ..Settings::default()
    };
    runs.push(EngineRun::start_with(&fixture.server, receivers[2].clone(), checkpoint_settings(0)).await);
    sleep(Duration::from_secs(5)).await;
    for round in 0..12 {
        // The third run is killed before, during or after the changes.
        let (changes, mut kill) = (rng.below(7), rng.below(14));
        for _ in 0..=changes {
            if kill == 0 {
                runs.pop().expect("the third run").kill(&folder, round);
            }
            kill = kill.wrapping_sub(1);
            fixture.step(&mut rng);
            sleep(Duration::from_millis(rng.below(3000))).await;
        }
        if runs.len() == 3 {
            runs.pop().expect("the third run").kill(&folder, round);
        }
        sleep(Duration::from_secs(rng.below(50))).await;
        runs.push(EngineRun::start_with(&fixture.server, receivers[2].clone(), checkpoint_settings(round + 1)).await);
        sleep(Duration::from_secs(15 + rng.below(40))).await;
        let location = format!("seed {seed}, round {round}, {}", clock());
        let mut violation = Ok(());
        for _ in 0..2000 {
            violation = fixture.model.check(&receivers);
            if violation.is_ok() {
                break;
            }
            // Real time, for evaluations on shared threads: see `Receiver::wait_for_messages`.
            real_pause().await;
        }
        violation.unwrap_or_else(|violation| panic!("{location}: {violation}"));
    }
    let reported = receivers.iter().map(|receiver| receiver.messages()).collect::<Vec<_>>();
    // Runs may skip different states, but messages with equal IDs must have equal contents.
    let mut contents = BTreeMap::new();
    for message in reported.iter().flatten() {
        let first_content = contents.entry(message.id.clone()).or_insert_with(|| message.data.clone());
        assert_eq!(*first_content, message.data, "seed {seed}: {} has two contents", message.id);
    }
    for messages in &reported {
        let time_messages = messages.iter().filter(|message| message.id.contains('~')).count();
        assert!(time_messages > 0, "seed {seed}: no message was caused by time");
    }
    for run in &runs {
        run.factory.shutdown();
    }
}

#[tokio::test(start_paused = true)]
async fn rechecks_are_deterministic_across_runs() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let seeds = match number("STEADFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("STEADFAST_SEEDS").unwrap_or(4),
    };
    for seed in seeds {
        check_history(seed).await;
    }
}

/// Seeds in which a kill loses the record of a delivered message, and a looked-up object changes while the program is
/// down.
#[tokio::test(start_paused = true)]
async fn lost_record_hides_no_lookup_change() {
    for seed in [79, 116] {
        check_history(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn aged_object_is_reported_once() {
    let mut fixture = Fixture::new().await;
    let receiver = Arc::<Receiver>::default();
    let run = EngineRun::start(&fixture.server, 1, OLD_ENOUGH, receiver.clone()).await;
    sleep(Duration::from_secs(5)).await;
    let since = clock();
    fixture.set("a", 1, since, "s");
    sleep(Duration::from_secs(29)).await;
    assert!(receiver.messages().is_empty(), "the object is too young");
    sleep(Duration::from_secs(100)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((message.time, &*message.kind), (since + SignedDuration::from_secs(REPORT_AGE_SECONDS), "Updated"));
    assert!(message.id.contains(&format!("~{}", message.time)), "{}", message.id);
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn clock_set_back_loses_no_instant() {
    let (mut fixture, receiver) = (Fixture::new().await, Arc::<Receiver>::default());
    // An object that is evaluated an hour too late is not reported, either.
    let when = format!("{OLD_ENOUGH} && now - timestamp(object.data.since) < duration('600s')");
    let run = EngineRun::start(&fixture.server, 1, &when, receiver.clone()).await;
    sleep(Duration::from_secs(5)).await;
    let jump = Duration::from_secs(3600);
    SUSPENDED_TIME.set(jump);
    sleep(Duration::from_secs(5)).await;
    let since_during_jump = clock() - SignedDuration::try_from(jump).expect("a short time");
    fixture.set("a", 1, since_during_jump, "s");
    sleep(Duration::from_secs(15)).await;
    SUSPENDED_TIME.set(Duration::ZERO);
    let since_after_jump = clock();
    fixture.set("b", 2, since_after_jump, "s");
    sleep(Duration::from_secs(60)).await;
    let messages = receiver.wait_for_messages(2).await;
    let times: BTreeMap<_, _> = messages.iter().map(|message| (&*message.name, message.time)).collect();
    let due = [("a", since_during_jump), ("b", since_after_jump)]
        .map(|(name, since)| (name, since + SignedDuration::from_secs(REPORT_AGE_SECONDS)));
    assert_eq!((times, messages.len()), (BTreeMap::from(due), 2), "{messages:?}");
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn lookup_change_is_reported_for_each_dependent() {
    let mut fixture = Fixture::new().await;
    let receiver = Arc::<Receiver>::default();
    let run = EngineRun::start(&fixture.server, 1, "true", receiver.clone()).await;
    let since = clock();
    fixture.set("a", 1, since, "s");
    fixture.set("b", 2, since, "s");
    fixture.set("c", 3, since, "other");
    sleep(Duration::from_secs(5)).await;
    let messages = receiver.wait_for_messages(3).await;
    assert_eq!(messages.len(), 3, "one message per object");
    fixture.set_service("s", 7);
    sleep(Duration::from_secs(5)).await;
    let messages = receiver.wait_for_messages(5).await;
    let lookup_messages: Vec<_> =
        messages[3..].iter().map(|message| (&*message.name, message.data["of"].clone())).collect();
    assert_eq!(lookup_messages, [("a", json!("7")), ("b", json!("7"))]);
    assert_ne!(messages[3].id, messages[0].id, "the lookup change causes a message with a new ID");
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn failing_expression_is_retried_at_instant() {
    let mut fixture = Fixture::new().await;
    let receiver = Arc::<Receiver>::default();
    let when = format!("{OLD_ENOUGH} || object.data.absent == 'x'");
    let run = EngineRun::start(&fixture.server, 1, &when, receiver.clone()).await;
    sleep(Duration::from_secs(5)).await;
    let since = clock();
    fixture.set("a", 1, since, "s");
    sleep(Duration::from_secs(60)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(message.time, since + SignedDuration::from_secs(REPORT_AGE_SECONDS));
    run.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn uncertain_object_is_not_reported_as_old() {
    let mut fixture = Fixture::new().await;
    let receiver = Arc::<Receiver>::default();
    let run = EngineRun::start(&fixture.server, 1, OLD_ENOUGH, receiver.clone()).await;
    sleep(Duration::from_secs(5)).await;
    fixture.set("a", 1, clock(), "s");
    sleep(Duration::from_secs(3)).await;
    fixture.server.faults().stop();
    // The new state is too young for a message, but the stopped server does not deliver it.
    let since = clock() + SignedDuration::from_secs(100);
    fixture.set("a", 1, since, "s");
    sleep(Duration::from_secs(90)).await;
    assert!(receiver.messages().is_empty(), "{:?}", receiver.messages());
    fixture.server.faults().start();
    sleep(Duration::from_secs(100)).await;
    let messages = receiver.wait_for_messages(1).await;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(message.time, since + SignedDuration::from_secs(REPORT_AGE_SECONDS));
    run.factory.shutdown();
}
