//! Informers of several namespaces as one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;
use steadfast::{Cacheable, Event, Freshness, Informer, MultiNamespaceInformer, Registration, Scope, parse_selector};
use steadfast_apiserver::{InjectedResponse, RequestRule, Verb};
use steadfast_core::random::Random;
use steadfast_testing::{TestError, config_map_in};

use super::{EVENT_TIMEOUT, EventLog, InformerFixture, settle};

const TEAMS: [&str; 2] = ["team-a", "team-b"];

async fn fixture() -> Result<InformerFixture, TestError> {
    let fixture = InformerFixture::new().await?;
    for namespace in ["team-a", "team-b", "team-c"] {
        create_namespace(&fixture, namespace)?;
        fixture.server.create(&config_map_in(namespace, "x", "1"))?;
    }
    Ok(fixture)
}

fn create_namespace(fixture: &InformerFixture, name: &str) -> Result<(), TestError> {
    fixture.server.create(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))?;
    Ok(())
}

fn write(fixture: &InformerFixture, namespace: &str, value: &str) -> Result<ConfigMap, TestError> {
    let patch = json!({ "data": { "value": value } });
    Ok(serde_json::from_value(fixture.server.merge_patch("configmaps", namespace, "x", patch)?)?)
}

fn informers_of_teams(fixture: &InformerFixture) -> Result<MultiNamespaceInformer<ConfigMap>, TestError> {
    Ok(fixture.factory.multi_namespace_informer(Scope::all().in_each(TEAMS))?)
}

/// Logs the events of a handler as `Added team-a/x`.
fn follow<K: Cacheable>(informers: &MultiNamespaceInformer<K>) -> Result<(EventLog, Registration<K>), TestError> {
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration =
        informers.on_event(move |event| captured_log.record(format!("{} {}", event.name(), event.object().key())))?;
    Ok((log, registration))
}

fn sorted_entries(log: &EventLog) -> Vec<String> {
    let mut entries = log.all();
    entries.sort_unstable();
    entries
}

#[tokio::test(start_paused = true)]
async fn two_namespaces_are_read_as_one() -> Result<(), TestError> {
    let fixture = fixture().await?;
    // The program has no permission outside its namespaces.
    fixture.server.faults().respond(RequestRule::any().namespace("team-c"), InjectedResponse::code(403));
    let informers = informers_of_teams(&fixture)?;
    assert!(informers.lister().is_err(), "no reader before all lists");
    let (log, registration) = follow(&informers)?;
    informers.wait_for_sync(EVENT_TIMEOUT).await?;
    assert!(registration.until_synced().await);
    assert_eq!(sorted_entries(&log), ["Added team-a/x", "Added team-b/x"]);

    let lister = informers.lister()?;
    let keys: Vec<_> = lister.all().iter().map(|map| map.key().to_string()).collect();
    assert_eq!(keys, ["team-a/x", "team-b/x"]);
    assert!(lister.get("team-b", "x")?.is_some() && lister.get("team-c", "x")?.is_none());
    assert_eq!((lister.len(), lister.namespace("team-a").len(), lister.namespace("team-c").len()), (2, 1, 0));
    assert_eq!(lister.select(&parse_selector("!app")?).len(), 2);
    let by_value = informers.index(|map: &ConfigMap| map.data.iter().flatten().map(|(_, value)| value.clone()).next());
    assert_eq!(by_value.get("1").len(), 2);

    let written = write(&fixture, "team-b", "2")?;
    write(&fixture, "team-c", "2")?;
    informers.wait_for(&written).await?;
    assert_eq!(by_value.get("2").len(), 1);
    settle().await;
    assert_eq!(sorted_entries(&log), ["Added team-a/x", "Added team-b/x", "Updated team-b/x"]);
    let is_list = |verb| matches!(verb, Verb::List | Verb::Watch | Verb::StreamedList);
    let requests = fixture.server.requests();
    let mut lists = requests.iter().filter(|request| is_list(request.verb) && request.resource.is_some());
    assert!(lists.all(|request| TEAMS.iter().any(|team| request.path.contains(&format!("/namespaces/{team}/")))));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn forbidden_namespace_costs_others_nothing() -> Result<(), TestError> {
    let fixture = fixture().await?;
    fixture.server.faults().respond(RequestRule::any().namespace("team-a"), InjectedResponse::code(403));
    let informers = informers_of_teams(&fixture)?;
    let (log, registration) = follow(&informers)?;
    settle().await;
    let error = informers.wait_for_sync(EVENT_TIMEOUT).await.expect_err("one namespace is forbidden");
    assert!(error.to_string().contains("namespace team-a"), "{error}");
    assert!(matches!(informers.freshness(), Freshness::Failed(_)), "{}", informers.freshness());
    assert_eq!((log.all(), registration.has_synced()), (vec!["Added team-b/x".to_owned()], false));
    let written = write(&fixture, "team-b", "2")?;
    informers.wait_for(&written).await?;
    settle().await;
    assert_eq!(log.all(), ["Added team-b/x", "Updated team-b/x"]);
    let team_b = informers.informer("team-b").expect("the namespace is included");
    assert!(team_b.freshness().is_fresh() && team_b.lister()?.len() == 1);

    fixture.server.faults().clear_rules();
    assert!(registration.until_synced().await);
    assert!(informers.freshness().is_fresh());
    assert_eq!(log.all(), ["Added team-b/x", "Updated team-b/x", "Added team-a/x"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn stalled_namespace_delays_no_other() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let informers = informers_of_teams(&fixture)?;
    let (log, _registration) = follow(&informers)?;
    informers.wait_for_sync(EVENT_TIMEOUT).await?;
    settle().await;
    let requests = fixture.server.requests();
    let watch = requests.iter().find(|request| !request.finished && request.path.contains("/namespaces/team-a/"));
    fixture.server.faults().stall_stream(watch.expect("an open watch").id, true);
    write(&fixture, "team-a", "2")?;
    write(&fixture, "team-b", "2")?;
    settle().await;
    assert_eq!(log.all()[2..], ["Updated team-b/x"]);
    // The stalled watch is detected, and its change arrives.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(log.all()[2..], ["Updated team-b/x", "Updated team-a/x"]);
    assert!(informers.freshness().is_fresh(), "{}", informers.freshness());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn namespace_may_be_deleted_and_created() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let mut scopes = Scope::all().in_each(TEAMS);
    scopes.push(Scope::namespace("later"));
    let informers = fixture.factory.multi_namespace_informer::<ConfigMap>(scopes)?;
    let (log, _registration) = follow(&informers)?;
    informers.wait_for_sync(EVENT_TIMEOUT).await?;
    settle().await;
    fixture.server.delete_named("configmaps", "team-a", "x")?;
    fixture.server.delete_named("namespaces", "", "team-a")?;
    create_namespace(&fixture, "later")?;
    fixture.server.create(&config_map_in("later", "y", "1"))?;
    // The server removes a terminating namespace after its contents.
    for _ in 0..120 {
        settle().await;
        if fixture.server.get("namespaces", "", "team-a").is_err() {
            break;
        }
    }
    create_namespace(&fixture, "team-a")?;
    fixture.server.create(&config_map_in("team-a", "x", "2"))?;
    settle().await;
    let mut events = log.all().split_off(2);
    // Events of different namespaces have no order.
    events.sort_by_key(|event| event.contains("later"));
    assert_eq!(events, ["Deleted team-a/x", "Added team-a/x", "Added later/y"]);
    assert_eq!(informers.lister()?.len(), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn other_set_shares_common_namespaces() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let informers = informers_of_teams(&fixture)?;
    informers.wait_for_sync(EVENT_TIMEOUT).await?;
    let other_informers =
        fixture.factory.multi_namespace_informer::<ConfigMap>(Scope::all().in_each(["team-b", "team-c"]))?;
    let id = |informers: &MultiNamespaceInformer<ConfigMap>| informers.informer("team-b").map(Informer::cache_id);
    assert_eq!(id(&informers), id(&other_informers));
    other_informers.wait_for_sync(EVENT_TIMEOUT).await?;
    drop(informers);
    settle().await;
    assert_eq!(fixture.server.open_watches(0), 2, "the dropped set gave its own namespace back");
    assert_eq!(other_informers.lister()?.len(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handler_of_namespaces_never_overlaps() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let informers = informers_of_teams(&fixture)?;
    let (running, max_running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let captured = (running.clone(), max_running.clone());
    let registration = informers.on_event_async(move |_| {
        let (running, max_running) = captured.clone();
        async move {
            max_running.fetch_max(1 + running.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(5)).await;
            running.fetch_sub(1, Ordering::Relaxed);
        }
    })?;
    assert!(registration.until_synced().await);
    for value in ["2", "3"] {
        TEAMS.iter().try_for_each(|team| write(&fixture, team, value).map(drop))?;
        settle().await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(max_running.load(Ordering::Relaxed), 1);
    let counts = registration.stats();
    assert_eq!((counts.entries, counts.running), (0, 0));
    assert!(counts.returned >= 4, "{counts:?}");
    // All namespaces share one handler, although each has its own watch.
    assert_eq!(fixture.factory.shutdown().events, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn filter_and_resync_cover_all_namespaces() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let informers = informers_of_teams(&fixture)?;
    let log = EventLog::default();
    let captured_log = log.clone();
    let is_odd = |map: &ConfigMap| map.data.iter().flatten().any(|(_, value)| ["1", "3"].contains(&value.as_str()));
    let handler = informers.handler().filter(is_odd).resync(Duration::from_secs(60));
    let _registration =
        handler.on_event(move |event| captured_log.record(format!("{} {}", event.name(), event.object().key())))?;
    settle().await;
    assert_eq!(sorted_entries(&log), ["Added team-a/x", "Added team-b/x"]);
    write(&fixture, "team-b", "2")?;
    settle().await;
    assert_eq!(log.all()[2..], ["Deleted team-b/x"]);
    tokio::time::sleep(Duration::from_secs(62)).await;
    assert_eq!(log.all()[3..], ["Resynced team-a/x"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handler_survives_stop_of_one_namespace() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let informers = informers_of_teams(&fixture)?;
    let dropped = Arc::new(AtomicBool::new(false));
    let captured = SetsOnDrop(dropped.clone());
    let log = EventLog::default();
    let captured_log = log.clone();
    let registration = informers.on_event(move |event| {
        let _ = &captured;
        captured_log.record(event.object().key().to_string());
    })?;
    assert!(registration.until_synced().await);
    informers.informer("team-a").expect("the namespace is included").stop();
    write(&fixture, "team-b", "2")?;
    settle().await;
    assert_eq!(log.all()[2..], ["team-b/x"]);
    assert!(matches!(informers.freshness(), Freshness::Stopped(_)));
    assert!(informers.on_event(|_| {}).is_err());
    registration.remove();
    settle().await;
    assert!(dropped.load(Ordering::Relaxed), "a removed handler drops its values");
    write(&fixture, "team-b", "3")?;
    settle().await;
    assert_eq!(log.all().len(), 3);
    Ok(())
}

struct SetsOnDrop(Arc<AtomicBool>);

impl Drop for SetsOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn unsuitable_sets_of_scopes_are_errors() -> Result<(), TestError> {
    let fixture = fixture().await?;
    let error = |scopes: Vec<Scope>| {
        let informers = fixture.factory.multi_namespace_informer::<Pod>(scopes);
        informers.map(drop).map_err(|error| error.to_string()).expect_err("the scopes cannot be combined")
    };
    let no_namespaces: [&str; 0] = [];
    assert!(error(Scope::all().in_each(no_namespaces)).contains("pass at least one"));
    // An empty name, often of an unset variable, would mean all namespaces.
    assert!(error(Scope::all().in_each(["team-a", ""])).contains("is not limited to one namespace"));
    let overlapping = vec![Scope::namespace("team-a"), Scope::namespace("team-a").labels("app")];
    assert!(error(overlapping).contains("another informer has the same namespace"));
    let nodes = fixture.factory.multi_namespace_informer::<Node>(Scope::all().in_each(TEAMS));
    assert!(nodes.expect_err("nodes are in no namespace").to_string().contains("cluster-scoped"));
    Ok(())
}

/// Random changes and faults in three namespaces: the handler's view equals the server's objects in the end.
#[tokio::test(start_paused = true)]
async fn random_histories_of_namespaces_converge() -> Result<(), TestError> {
    let seeds = std::env::var("STEADFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    for seed in 0..seeds {
        one_history(seed).await.map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}

async fn one_history(seed: u64) -> Result<(), TestError> {
    let fixture = fixture().await?;
    let mut random = Random::new(seed);
    let scopes = Scope::all().in_each(["team-a", "team-b", "team-c"]);
    let informers = fixture.factory.multi_namespace_informer::<ConfigMap>(scopes)?;
    let view = Arc::new(Mutex::new(BTreeMap::<String, ConfigMap>::new()));
    let captured_view = view.clone();
    let wrong_views = EventLog::default();
    let violations = wrong_views.clone();
    let _registration = informers.on_event(move |event| {
        let mut view = captured_view.lock();
        let (key, name) = (event.object().key().to_string(), event.name());
        let before = match &event {
            Event::Added { object, .. } => view.insert(key.clone(), ConfigMap::clone(object)),
            Event::Updated { old, new } => {
                let before = view.insert(key.clone(), ConfigMap::clone(new));
                if before.as_ref().and_then(ConfigMap::uid) != old.uid() {
                    violations.record(format!("{name} of {key} with another old state"));
                }
                before
            }
            Event::Deleted { .. } => view.remove(&key),
            Event::Resynced { .. } => return,
        };
        if before.is_some() == matches!(event, Event::Added { .. }) {
            violations.record(format!("{name} of {key} at the wrong time"));
        }
    })?;
    for step in 0..60 {
        let namespace = ["team-a", "team-b", "team-c"][random.below(3) as usize];
        let name = ["x", "y", "z"][random.below(3) as usize];
        match random.below(9) {
            0..=3 => {
                let patch = json!({ "data": { "value": step.to_string() } });
                if fixture.server.merge_patch("configmaps", namespace, name, patch).is_err() {
                    fixture.server.create(&config_map_in(namespace, name, "new"))?;
                }
            }
            4 | 5 => drop(fixture.server.delete_named("configmaps", namespace, name)),
            6 => fixture.server.faults().reset(),
            7 => fixture.server.faults().expire_events(),
            _ => {
                let rule = RequestRule::any().namespace(namespace).times(3);
                fixture.server.faults().respond(rule, InjectedResponse::code(503));
                fixture.server.faults().end_watches();
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(3_000))).await;
    }
    fixture.server.faults().clear_rules();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let mut expected = Vec::new();
    for namespace in ["team-a", "team-b", "team-c"] {
        for name in ["x", "y", "z"] {
            if let Ok(object) = fixture.server.get("configmaps", namespace, name) {
                let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                expected.push((format!("{namespace}/{name}"), version));
            }
        }
    }
    let view = view.lock().clone();
    let delivered: Vec<_> =
        view.iter().map(|(key, map)| (key.clone(), map.resource_version().unwrap_or_default())).collect();
    assert_eq!(delivered, expected, "seed {seed}");
    let cached = informers.lister()?.all();
    let cached: Vec<_> = cached.iter().map(|map| (map.key().to_string(), map.version().to_string())).collect();
    assert_eq!(cached, expected, "seed {seed}");
    // Without new bookmarks, only a list proves freshness, and the informer lists once in five periods (C10).
    for _ in 0..60 {
        if informers.freshness().is_fresh() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert!(informers.freshness().is_fresh(), "seed {seed}: {}", informers.freshness());
    assert_eq!(wrong_views.all(), [""; 0], "seed {seed}");
    Ok(())
}
