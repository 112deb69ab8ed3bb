//! Tests of entries that depend on the time and on other objects.

use std::cell::Cell;

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use steadfast::{InformerFactory, Scope};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule};
use steadfast_testing::InMemory;
use tokio::time::{Instant, sleep};

use super::*;
use crate::entry_fields::SERVER;
use crate::plan::Plan;
use crate::rule_source::LookupResource;

thread_local! {
    static CLOCK_START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns a wall clock time that follows the runtime's virtual clock.
fn clock() -> Timestamp {
    let started = CLOCK_START.get().unwrap_or_else(|| {
        CLOCK_START.set(Some(Instant::now()));
        Instant::now()
    });
    let since = jiff::SignedDuration::try_from(started.elapsed()).expect("a short time");
    "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("a time") + since
}

fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind))
}

struct Fixture {
    server: ApiServer,
    factory: InformerFactory,
    input: MirrorInput,
}

impl Fixture {
    async fn start(when: &str) -> Self {
        CLOCK_START.set(None);
        clock();
        let server = ApiServer::builder().in_memory().start().await.expect("a running server");
        let network = InMemory::default();
        let factory = InformerFactory::new(&network.connection(&server).await.expect("a connection"));
        let text = format!(
            "[[rules]]\nname = \"web\"\nresources = [\"cm\"]\nwhen = \"{when}\"\nto = [\"web\"]\n\
             send = \"{{'address': '10.0.0.1', 'port': 80}}\"\n\
             [sinks.web]\nhaproxy = {{socket = \"s\", backend = \"web\"}}\n"
        );
        let plan = Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        let rule = plan.rules[0].clone();
        let lookups = rule.lookups().into_iter().map(|name| LookupResource {
            name: name.to_owned(),
            resource: resource("Service"),
            is_namespaced: true,
            namespace: None,
        });
        let source = RuleSource {
            rule: "web".to_owned(),
            cluster: "default".to_owned(),
            resource: resource("ConfigMap"),
            scope: Scope::namespace("default"),
            lookups: lookups.collect(),
        };
        let (checkpoint, watermark_folder) = (None, None);
        let (audit_interval, memory_limit) = (Duration::from_secs(600), None);
        let cluster_informers = ClusterInformers {
            connection_id: 0,
            factory: factory.clone(),
            checkpoint,
            watermark_folder,
            audit_interval,
            memory_limit,
            clock,
        };
        let input = MirrorInput::start(&cluster_informers, source, rule).expect("a running informer");
        let mut fixture = Self { server, factory, input };
        fixture.create("ConfigMap", "a");
        fixture.create("ConfigMap", "b");
        fixture.input.wait_until_fresh(Duration::from_secs(60)).await;
        sleep(Duration::from_secs(5)).await;
        fixture.input.confirm();
        fixture
    }

    fn create(&mut self, kind: &str, name: &str) {
        let metadata = json!({"namespace": "default", "name": name});
        let object = match kind {
            "Service" => {
                json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": {"ports": [{"port": 80}]}})
            }
            _ => {
                json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": {"until": "2026-01-01T00:01:00Z"}})
            }
        };
        self.server.create(&object).expect("a valid object");
    }

    /// Evaluates changed objects. Returns true if any object was evaluated, and the number of entries of each object.
    /// The number is `None` for unknown entries.
    async fn entries(&mut self) -> (bool, Vec<(String, Option<usize>)>) {
        let is_new = self.input.catch_up(SERVER, &Grouping::new(None)).await;
        let object_entries = self.input.object_entries();
        let count = |object_entries: &ObjectEntries| {
            (object_entries.object.name.clone(), object_entries.entries.as_ref().ok().map(Vec::len))
        };
        (is_new, object_entries.map(count).collect())
    }
}

fn counts(a: Option<usize>, b: Option<usize>) -> Vec<(String, Option<usize>)> {
    vec![("a".to_owned(), a), ("b".to_owned(), b)]
}

#[tokio::test(start_paused = true)]
async fn entry_is_removed_at_its_instant() {
    let mut fixture = Fixture::start("object.metadata.name == 'b' || now < timestamp(object.data.until)").await;
    assert_eq!(fixture.entries().await, (true, counts(Some(1), Some(1))));
    assert!(!fixture.entries().await.0, "no object has changed");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.entries().await, (true, counts(Some(0), Some(1))));
    sleep(Duration::from_secs(600)).await;
    assert_eq!(fixture.entries().await, (false, counts(Some(0), Some(1))));
    fixture.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn entry_in_doubt_delays_no_other() {
    let mut fixture =
        Fixture::start("object.metadata.name == 'b' || get('services', 'default', object.metadata.name) == null").await;
    assert_eq!(fixture.entries().await, (true, counts(Some(1), Some(1))));
    fixture.server.faults().respond(RequestRule::any().resource("services"), InjectedResponse::code(503));
    fixture.server.faults().end_watches();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(fixture.entries().await, (true, counts(None, Some(1))));
    fixture.create("Service", "a");
    fixture.server.faults().clear_rules();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(fixture.entries().await, (true, counts(Some(0), Some(1))));
    fixture.factory.shutdown();
}

#[tokio::test(start_paused = true)]
async fn new_leader_waits_for_earlier_writes() {
    let mut fixture = Fixture::start("true").await;
    assert_eq!(fixture.entries().await, (true, counts(Some(1), Some(1))));
    fixture.server.faults().freeze(true);
    fixture.create("ConfigMap", "c");
    let wake = Arc::new(Notify::new());
    fixture.input.enter_term(7, Duration::ZERO, &wake);
    sleep(Duration::from_secs(1)).await;
    assert!(!fixture.entries().await.0 && fixture.input.doubt_now().is_none(), "the cache is behind, without doubt");
    let doubt = fixture.input.doubt().expect("doubt before the confirmation");
    assert!(doubt.contains("that the earlier leader knew"), "{doubt}");
    assert!(fixture.input.is_held_back(), "the earlier leader may have removed an entry");
    // The pause counts as a freeze of the process: only its first second counts towards the maximum of 5 s.
    sleep(Duration::from_secs(5)).await;
    fixture.input.enter_term(7, Duration::ZERO, &wake);
    assert!(fixture.input.is_held_back(), "the version may arrive after a freeze");
    for _ in 0..5 {
        sleep(Duration::from_secs(1)).await;
        fixture.input.enter_term(7, Duration::ZERO, &wake);
    }
    assert!(!fixture.input.is_held_back(), "an unreachable server must not keep a target empty");
    assert!(fixture.input.doubt().is_some(), "removals wait longer");
    fixture.server.faults().freeze(false);
    wake.notified().await;
    assert_eq!(fixture.input.doubt(), None);
    let names: Vec<_> = fixture.entries().await.1.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "b", "c"]);
    fixture.input.enter_term(7, Duration::ZERO, &wake);
    assert_eq!(fixture.input.doubt(), None, "one confirmation for each term");
    fixture.input.enter_term(8, Duration::ZERO, &wake);
    assert!(fixture.input.doubt().is_some(), "another leader may have written in between");
    fixture.input.enter_term(0, Duration::ZERO, &wake);
    assert_eq!(fixture.input.doubt(), None, "a standby removes nothing anyway");
    fixture.factory.shutdown();
}
