//! Reconciles never run on a cache that lacks the writes of the key's previous reconcile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use steadfast::{Connection, Informer, InformerFactory, ObjectKey, ResourceVersion, Scope};
use steadfast_apiserver::{InjectedResponse, RequestRecord, RequestRule, Verb};
use steadfast_controller::{Action, Controller, RunningController, back_off};
use steadfast_testing::proxy::Direction;
use steadfast_testing::{Children, FaultSchedule, TestError, config_map, labelled_config_map};

use super::{ControllerFixture, EventLog, Failure, SECOND, advance, start_lagging};

/// Required number of children of a parent.
const CHILDREN: usize = 3;

pub(super) struct Context {
    client: kube::Client,
    pub(super) children: Informer<Pod>,
    created_count: AtomicU64,
}

/// Creates missing children and deletes surplus ones, as in a tutorial: it reads only the cache, and the server
/// generates the names.
pub(super) async fn ensure_children(parent: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, Failure> {
    let failure = |error: &dyn std::error::Error| Failure(error.to_string());
    let lister = context.children.lister().map_err(|error| failure(&error))?;
    let uid = parent.uid().unwrap_or_default();
    let is_own = |pod: &Pod| pod.owner_references().iter().any(|owner| owner.uid == uid);
    let own_children = lister.namespace("default").into_iter().filter(|pod| is_own(pod)).count();
    let pods = Api::<Pod>::namespaced(context.client.clone(), "default");
    for _ in own_children..CHILDREN {
        let child: Pod = serde_json::from_value(json!({
            "metadata": {
                "generateName": format!("{}-", parent.name_any()),
                "ownerReferences": [parent.controller_owner_ref(&())],
            },
            "spec": { "containers": [{ "name": "main", "image": "none" }] },
        }))
        .map_err(|error| failure(&error))?;
        context.created_count.fetch_add(1, Ordering::Relaxed);
        pods.create(&PostParams::default(), &child).await.map_err(|error| failure(&error))?;
    }
    Ok(Action::await_change())
}

fn context(fixture: &ControllerFixture) -> Result<Arc<Context>, TestError> {
    context_of(&fixture.connection, &fixture.factory)
}

pub(super) fn context_of(connection: &Connection, factory: &InformerFactory) -> Result<Arc<Context>, TestError> {
    let (client, children) = (connection.client(), factory.informer(Scope::all())?);
    Ok(Arc::new(Context { client, children, created_count: AtomicU64::new(0) }))
}

fn child_controller(fixture: &ControllerFixture) -> Controller<ConfigMap> {
    child_controller_of(&fixture.factory)
}

pub(super) fn child_controller_of(factory: &InformerFactory) -> Controller<ConfigMap> {
    Controller::new(factory, Scope::all()).owns::<Pod>(Scope::all())
}

/// Returns the maximum number of children that each parent had at one time, according to the server's history.
fn max_children_by_parent(fixture: &ControllerFixture) -> BTreeMap<String, usize> {
    Children::of(&fixture.server, "", "pods").max_at_once
}

/// Starts a controller that keeps children and logs each reconcile.
fn start_logging_controller(
    fixture: &ControllerFixture,
    log: &EventLog,
    context: &Arc<Context>,
) -> Result<RunningController, TestError> {
    let calls = log.clone();
    let reconcile = move |parent: Arc<ConfigMap>, context| {
        calls.record(parent.name_any());
        ensure_children(parent, context)
    };
    Ok(child_controller(fixture).run(reconcile, back_off, context.clone())?)
}

#[tokio::test(start_paused = true)]
async fn lagging_watch_causes_no_duplicate_child() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let context = context(&fixture)?;
    let controller = child_controller(&fixture).run(ensure_children, back_off, context.clone())?;
    advance(SECOND).await;
    assert_eq!(context.created_count.load(Ordering::Relaxed), 3);

    // From here on, caches receive no event except the deletion of one child.
    let first_child = context.children.lister()?.all().remove(0);
    fixture.server.delete_named("pods", "default", &first_child.name_any())?;
    advance(SECOND).await;
    assert_eq!(context.created_count.load(Ordering::Relaxed), 4);
    // The caches receive this deletion, but not the creation of the replacement.
    let second_child = context.children.lister()?.all().remove(0).name_any();
    fixture.server.delete_named("pods", "default", &second_child)?;
    fixture.server.faults().lag_at(fixture.server.revision());
    advance(SECOND).await;
    assert_eq!(context.created_count.load(Ordering::Relaxed), 5);
    for value in ["2", "3", "4"] {
        fixture.write("a", value)?;
        controller.queue().add(ObjectKey::namespaced("default", "a"));
        advance(SECOND).await;
    }
    assert_eq!(context.created_count.load(Ordering::Relaxed), 5);
    let stats_while_waiting = controller.stats();
    fixture.server.faults().lag(false);
    advance(5 * SECOND).await;
    assert_eq!(max_children_by_parent(&fixture).into_values().collect::<Vec<_>>(), [CHILDREN]);
    assert_eq!(context.children.lister()?.len(), CHILDREN);
    assert_eq!(controller.stats().waiting_for_writes, 0);
    assert_eq!(stats_while_waiting.waiting_for_writes, 1, "{stats_while_waiting:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn only_writing_key_waits() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("writes", "1"))?;
    fixture.server.create(&config_map("reads", "1"))?;
    let (log, writes) = (EventLog::default(), Arc::new(AtomicBool::new(false)));
    let (calls, maps, is_armed) = (log.clone(), fixture.config_maps(), writes.clone());
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all()).run(
        move |map: Arc<ConfigMap>, _| {
            let (calls, maps, is_armed) = (calls.clone(), maps.clone(), is_armed.clone());
            async move {
                calls.record(format!("{} at {}", map.name_any(), map.data.as_ref().map_or("", |data| &data["value"])));
                if map.name_any() == "writes" && is_armed.swap(false, Ordering::SeqCst) {
                    let patch = Patch::Merge(json!({ "data": { "value": "own" } }));
                    maps.patch("writes", &PatchParams::default(), &patch).await?;
                }
                Ok::<_, kube::Error>(Action::await_change())
            }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    assert_eq!(log.take().len(), 2);
    fixture.server.faults().lag(true);
    writes.store(true, Ordering::SeqCst);
    controller.queue().add(super::key("writes"));
    advance(SECOND).await;
    assert_eq!(log.take(), ["writes at 1"]);
    controller.queue().add(super::key("writes"));
    controller.queue().add(super::key("reads"));
    advance(3 * SECOND).await;
    assert_eq!(log.take(), ["reads at 1"], "only the key that wrote waits for its write");
    assert_eq!((controller.stats().waiting_for_writes, controller.stats().write_waits), (1, 1));
    fixture.server.faults().lag(false);
    advance(SECOND).await;
    let events = log.take();
    assert!(!events.is_empty() && events.iter().all(|call| call == "writes at own"), "{events:?}");
    let stats = controller.stats();
    assert_eq!(stats.waiting_for_writes, 0);
    assert!(stats.write_wait_duration >= 3 * SECOND, "{stats:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn write_without_response_is_awaited() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let context = context(&fixture)?;
    // The request reaches the server, the response does not reach the client, and the connection breaks.
    let network = fixture.network.clone();
    let reconcile = move |parent, context: Arc<Context>| {
        let network = network.clone();
        async move {
            if context.created_count.load(Ordering::Relaxed) == 0 {
                // Opens a connection before the network fails.
                let pods = Api::<Pod>::namespaced(context.client.clone(), "default");
                pods.get_opt("none").await.map_err(|error| Failure(error.to_string()))?;
                network.black_hole(Direction::ToClient, true);
                tokio::spawn(async move {
                    advance(SECOND).await;
                    // The reset loses all bytes in flight.
                    network.reset();
                    network.black_hole(Direction::ToClient, false);
                });
            }
            ensure_children(parent, context).await
        }
    };
    let run = |controller: Controller<ConfigMap>| controller.run(reconcile, back_off, context.clone());
    let controller =
        start_lagging(&fixture, child_controller(&fixture).on_diagnostic(log.diagnostic_callback()), run).await?;
    advance(4 * SECOND).await;
    assert_eq!(
        context.created_count.load(Ordering::Relaxed),
        1,
        "the controller waits for the unconfirmed write: {:#?} {:#?}",
        log.all(),
        controller.stats()
    );
    assert_eq!(controller.stats().waiting_for_writes, 1);
    assert_eq!(log.times("reconcile of default/a failed").len(), 1, "{:?}", log.all());
    fixture.server.faults().lag(false);
    advance(60 * SECOND).await;
    assert_eq!(max_children_by_parent(&fixture).into_values().collect::<Vec<_>>(), [CHILDREN]);
    assert_eq!(context.created_count.load(Ordering::Relaxed), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deleted_object_is_absent_in_next_reconcile() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let log = EventLog::default();
    let (calls, maps) = (log.clone(), fixture.config_maps());
    let informer = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let reconcile = move |key: ObjectKey, _: Arc<()>| {
        let (calls, maps, informer) = (calls.clone(), maps.clone(), informer.clone());
        async move {
            let is_cached = informer.lister().is_ok_and(|lister| matches!(lister.get_by_key(&key), Ok(Some(_))));
            calls.record(format!("{}: {}", key.name(), if is_cached { "deletes it" } else { "gone" }));
            if is_cached {
                maps.delete(key.name(), &DeleteParams::default()).await?;
            }
            Ok::<_, kube::Error>(Action::requeue(SECOND / 2))
        }
    };
    let run = |controller: Controller<ConfigMap>| controller.run_by_key(reconcile, back_off, Arc::new(()));
    let controller = start_lagging(&fixture, Controller::new(&fixture.factory, Scope::all()), run).await?;
    advance(5 * SECOND).await;
    assert_eq!(log.take(), ["a: deletes it"]);
    fixture.server.faults().lag(false);
    advance(3 * SECOND).await;
    let events = log.take();
    assert!(events.len() > 2 && events.iter().all(|call| call == "a: gone"), "{events:?}");
    drop(controller);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn long_write_wait_is_reported_and_continues() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let (log, context) = (EventLog::default(), context(&fixture)?);
    let run = |controller: Controller<ConfigMap>| controller.run(ensure_children, back_off, context.clone());
    let controller =
        start_lagging(&fixture, child_controller(&fixture).on_diagnostic(log.diagnostic_callback()), run).await?;
    advance(SECOND).await;
    controller.queue().add(super::key("a"));
    advance(65 * SECOND).await;
    let waits = log.times("default/a has waited");
    assert_eq!(waits.len(), 2, "{:?}", log.all());
    let text = log.all().into_iter().find(|text| text.starts_with("default/a has waited 30")).unwrap_or_default();
    assert!(text.contains("pods in all namespaces did not reach pods default/a-"), "{text}");
    assert_eq!(context.created_count.load(Ordering::Relaxed), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn write_lost_by_restore_is_not_awaited() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let backup = fixture.server.revision();
    let context = context(&fixture)?;
    let run = |controller: Controller<ConfigMap>| controller.run(ensure_children, back_off, context.clone());
    let controller = start_lagging(&fixture, child_controller(&fixture), run).await?;
    advance(SECOND).await;
    assert_eq!(context.created_count.load(Ordering::Relaxed), 3);
    fixture.server.faults().restore(backup);
    fixture.server.faults().lag(false);
    controller.queue().add(super::key("a"));
    advance(120 * SECOND).await;
    assert_eq!(
        context.created_count.load(Ordering::Relaxed),
        6,
        "the restore removed the first three children: {:#?} {:#?} {}",
        controller.stats(),
        context.children.lister()?.len(),
        context.children.freshness()
    );
    Ok(())
}

/// Returns the names of the current children, according to the server's history.
fn current_children(fixture: &ControllerFixture) -> Vec<String> {
    let live: BTreeSet<String> = Children::of(&fixture.server, "", "pods").live.into_values().flatten().collect();
    live.into_iter().collect()
}

/// Runs one fixture with random faults. Returns the maximum number of children of a parent at one time, and the number
/// of waits for writes.
async fn run_with_random_faults(seed: u64) -> Result<(usize, u64), TestError> {
    const PARENTS: [&str; 2] = ["a", "b"];
    let fixture = ControllerFixture::seeded(seed).await?;
    for parent in PARENTS {
        fixture.server.create(&config_map(parent, "1"))?;
    }
    let (log, context) = (EventLog::default(), context(&fixture)?);
    let controller = child_controller(&fixture).on_diagnostic(log.diagnostic_callback()).run(
        ensure_children,
        back_off,
        context.clone(),
    )?;
    let mut faults = FaultSchedule::new(seed, &fixture.server, &fixture.network);
    for step in 0..60 {
        faults.inject_next().await;
        let parent = PARENTS[faults.random(2) as usize];
        match faults.random(8) {
            0 => {
                // Another client deletes a child, regardless of the caches.
                if let Some(name) = current_children(&fixture).get(faults.random(6) as usize) {
                    fixture.server.delete_named("pods", "default", name)?;
                }
            }
            1 => fixture.write(parent, &step.to_string())?,
            2 => controller.queue().add(super::key(parent)),
            _ => {}
        }
    }
    faults.end();
    advance(120 * SECOND).await;
    let max_children = max_children_by_parent(&fixture).into_values().max().unwrap_or_default();
    let child_count = context.children.lister()?.len();
    if child_count != 2 * CHILDREN {
        let (stats, notes) = (controller.stats(), log.all());
        return Err(format!("seed {seed}: {child_count} children at the end; {stats:#?}; {notes:#?}").into());
    }
    Ok((max_children, controller.stats().write_waits))
}

/// One cache enqueues parents, and the reconcile reads another one. A child was created and deleted while the first
/// cache lagged, so its watch never delivered the child. A reconcile had already counted the child in the second cache.
#[test]
fn transient_object_unseen_by_cache_seed_301() -> Result<(), TestError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let (max_children, _) = runtime.block_on(run_with_random_faults(301))?;
    assert_eq!(max_children, CHILDREN);
    Ok(())
}

/// `STEADFAST_SEEDS=1000` runs 1,000 seeds, starting at `STEADFAST_FIRST_SEED`.
#[test]
fn random_faults_cause_no_duplicate_child() -> Result<(), TestError> {
    let number = |variable: &str, default: u64| {
        std::env::var(variable).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let (first, seeds) = (number("STEADFAST_FIRST_SEED", 0), number("STEADFAST_SEEDS", 60));
    let (mut failed_seeds, mut waits) = (Vec::new(), 0);
    for seed in first..first + seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
        let (max_children, seed_waits) = runtime.block_on(run_with_random_faults(seed))?;
        waits += seed_waits;
        if max_children > CHILDREN {
            println!("seed {seed}: {max_children} concurrent children");
            failed_seeds.push(seed);
        }
    }
    assert_eq!(failed_seeds, [0; 0], "a parent had too many children with these seeds");
    assert!(waits > seeds, "too few waits for writes: {waits} waits in {seeds} seeds");
    Ok(())
}

/// An object that leaves a selector is removed from one cache, and correctly remains in another one.
#[tokio::test(start_paused = true)]
async fn object_leaving_selector_is_not_awaited() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&labelled_config_map("a", "1", ("app", "web")))?;
    let _all = fixture.factory.informer::<ConfigMap>(Scope::all())?;
    let log = EventLog::default();
    let calls = log.clone();
    let controller = Controller::<ConfigMap>::new(&fixture.factory, Scope::all().labels("app=web")).run_by_key(
        move |key, _: Arc<()>| {
            calls.record(key.to_string());
            async { Ok::<_, Failure>(Action::await_change()) }
        },
        back_off,
        Arc::new(()),
    )?;
    advance(SECOND).await;
    assert_eq!(log.take(), ["default/a"]);
    for label in [None, Some("web"), None] {
        let labels = json!({ "metadata": { "labels": { "app": label } } });
        fixture.server.merge_patch("configmaps", "default", "a", labels)?;
        advance(2 * SECOND).await;
        assert_eq!(log.take(), ["default/a"], "{label:?}");
    }
    assert_eq!(controller.stats().waiting_for_writes, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn permanently_cut_cache_is_not_awaited() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    // This cache has the same objects, but the controller does not read it. The server rejects its requests later.
    let other_informer = fixture.factory.informer::<ConfigMap>(Scope::namespace("default"))?;
    let (log, context) = (EventLog::default(), context(&fixture)?);
    let _controller = start_logging_controller(&fixture, &log, &context)?;
    advance(SECOND).await;
    let namespace_rule = RequestRule::any().resource("configmaps").namespace("default");
    fixture.server.faults().respond(namespace_rule, InjectedResponse::code(403));
    fixture.server.faults().end_watches();
    advance(120 * SECOND).await;
    assert!(!other_informer.freshness().is_fresh());
    log.take();
    for value in ["2", "3"] {
        fixture.write("a", value)?;
        advance(5 * SECOND).await;
        assert_eq!(log.take(), ["a"]);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn constantly_changing_key_is_reconciled() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let (log, context) = (EventLog::default(), context(&fixture)?);
    let _controller = start_logging_controller(&fixture, &log, &context)?;
    advance(SECOND).await;
    log.take();
    // The caches deliver each change at different times, and another change follows before both agree.
    let child = context.children.lister()?.all().remove(0).name_any();
    for round in 0..300 {
        let patch = json!({ "metadata": { "annotations": { "round": round.to_string() } } });
        fixture.server.merge_patch("pods", "default", &child, patch)?;
        advance(Duration::from_millis(1)).await;
    }
    let reconcile_count = log.take().len();
    assert!(reconcile_count > 10, "{reconcile_count} calls");
    Ok(())
}

/// A reconcile waits for the change that enqueued it and for the writes of its predecessor. The arrival of the change
/// must not end the wait for the writes.
#[tokio::test(start_paused = true)]
async fn concurrent_change_does_not_skip_write_wait() -> Result<(), TestError> {
    let fixture = ControllerFixture::new().await?;
    fixture.server.create(&config_map("a", "1"))?;
    let context = context(&fixture)?;
    let reconcile_slowly = |parent: Arc<ConfigMap>, context: Arc<Context>| async move {
        advance(SECOND).await;
        ensure_children(parent, context).await
    };
    let controller = child_controller(&fixture).run(reconcile_slowly, back_off, context.clone())?;
    advance(10 * SECOND).await;
    assert_eq!(context.created_count.load(Ordering::Relaxed), 3);
    let current_children: Vec<_> = context.children.lister()?.all().iter().map(|child| child.name_any()).collect();

    // Both caches have seen the deletion of one child. The reconcile that starts now creates another one.
    fixture.server.delete_named("pods", "default", &current_children[0])?;
    advance(SECOND / 2).await;
    // Two caches contain the pods: the reconcile reads the first one, and the second one enqueues keys. The loop stalls
    // one watch at a time until it has found the watch of the first cache.
    let is_read = |request: &RequestRecord| {
        let pods = request.resource.as_ref().is_some_and(|resource| resource.resource() == "pods");
        pods && matches!(request.verb, Verb::Watch | Verb::StreamedList) && !request.finished
    };
    let watches: Vec<u64> =
        fixture.server.requests().iter().filter(|request| is_read(request)).map(|request| request.id).collect();
    assert_eq!(watches.len(), 2, "one of objects, one of metadata");
    let mut attempts = 0;
    for watch in watches {
        fixture.server.faults().stall_stream(watch, true);
        let patch = json!({ "metadata": { "annotations": { "seen": watch.to_string() } } });
        let changed_pod = fixture.server.merge_patch("pods", "default", &current_children[1], patch)?;
        advance(Duration::from_millis(10)).await;
        let version = ResourceVersion::from(changed_pod["metadata"]["resourceVersion"].as_str().unwrap_or_default());
        let is_behind = context.children.snapshot().version().is_some_and(|at| at.is_older_than(&version));
        if is_behind {
            attempts += 1;
            // First, neither cache receives the new child. Then the stalled cache receives only the annotation.
            fixture.server.faults().lag_at(fixture.server.revision());
            advance(2 * SECOND).await;
            assert_eq!(context.created_count.load(Ordering::Relaxed), 4);
            fixture.server.faults().stall_stream(watch, false);
            controller.queue().add(super::key("a"));
            advance(3 * SECOND).await;
            assert_eq!(context.created_count.load(Ordering::Relaxed), 4, "{:?}", controller.stats());
            fixture.server.faults().lag(false);
            break;
        }
        fixture.server.faults().stall_stream(watch, false);
    }
    assert_eq!(attempts, 1);
    advance(30 * SECOND).await;
    assert_eq!(max_children_by_parent(&fixture).into_values().collect::<Vec<_>>(), [CHILDREN]);
    Ok(())
}
