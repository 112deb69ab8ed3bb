//! Durable handlers: repeated deliveries until the acknowledgement, within a run and across runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use steadfast::{Certainty, Diagnostic, DurableEvent, DurableRegistration, Event, HandlerError, InformerFactory, Lazy};
use steadfast_apiserver::{ApiServer, InjectedResponse, RequestRule, Verb};
use steadfast_testing::{TestError, config_map};

use crate::delivery_check::{Delivery, HandlerRecord, check_deliveries};
use crate::files::Folder;
use crate::program_run::{ProgramRun, config_maps, lists};

/// Actions of a handler, in order.
pub(crate) type Log = Arc<Mutex<Vec<HandlerRecord>>>;

/// Action of a handler for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerAction {
    Acknowledge,
    TakeTime(Duration),
    Fail,
    Panic,
    NeverReturn,
}

pub(crate) fn delivery(event: &DurableEvent<Lazy<ConfigMap>>) -> Delivery {
    let object = event.event.object();
    let number = |object: &steadfast::Object<Lazy<ConfigMap>>| object.version().as_str().parse().unwrap_or(0);
    let (kind, old_version) = match &event.event {
        Event::Added { .. } => ('+', None),
        Event::Updated { old, .. } => ('~', Some(number(old))),
        Event::Deleted { .. } => ('-', None),
        Event::Resynced { .. } => ('?', None),
    };
    let (name, uid) = (object.key().name().to_owned(), object.identity().uid.as_str().to_owned());
    let is_inferred = matches!(event.event, Event::Deleted { certainty: Certainty::Inferred, .. });
    Delivery { name, kind, id: event.id.clone(), uid, version: number(object), old_version, is_inferred }
}

/// Adds the handler `mirror` with the actions that `action` selects.
pub(crate) fn register_durable_handler(
    program: &ProgramRun,
    log: &Log,
    action: impl Fn(&DurableEvent<Lazy<ConfigMap>>) -> HandlerAction + Send + Sync + 'static,
) -> Result<DurableRegistration<ConfigMap>, HandlerError> {
    let log = log.clone();
    program.informer.durable("mirror").deadline(Duration::from_secs(2)).on_event(move |event| {
        let (action, log, delivery) = (action(&event), log.clone(), delivery(&event));
        log.lock().push(HandlerRecord::Delivered(delivery));
        async move {
            match action {
                HandlerAction::Acknowledge => {}
                HandlerAction::TakeTime(time) => tokio::time::sleep(time).await,
                HandlerAction::Fail => return Err("the target is unavailable"),
                HandlerAction::Panic => panic!("injected panic"),
                HandlerAction::NeverReturn => std::future::pending().await,
            }
            log.lock().push(HandlerRecord::Acknowledged(event.id));
            Ok(())
        }
    })
}

fn delivered_events(log: &Log) -> Vec<String> {
    let log = log.lock();
    let event = log.iter().filter_map(|record| match record {
        HandlerRecord::Delivered(Delivery { name, kind, .. }) => Some(format!("{kind} {name}")),
        _ => None,
    });
    event.collect()
}

fn delivered_ids(log: &Log) -> Vec<String> {
    let log = log.lock();
    let event = log.iter().filter_map(|record| match record {
        HandlerRecord::Delivered(Delivery { id, .. }) => Some(id.clone()),
        _ => None,
    });
    event.collect()
}

/// Returns a server with two objects, and a run of the program with a handler that received both.
async fn start_first_run(folder: &Folder) -> Result<(ApiServer, ProgramRun, Log), TestError> {
    let server = ApiServer::builder().in_memory().start().await?;
    for name in ["a", "b"] {
        server.create(&config_map(name, "1"))?;
    }
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    let log = Log::default();
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    pause(5).await;
    assert_eq!(delivered_events(&log), ["+ a", "+ b"]);
    Ok((server, program, log))
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn acknowledged_events_are_not_repeated() -> Result<(), TestError> {
    let folder = Folder::new("missed")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    log.lock().push(HandlerRecord::Killed);
    server.replace(&config_map("a", "2"))?;
    server.delete_named("configmaps", "default", "b")?;
    server.create(&config_map("c", "1"))?;
    server.create(&config_map("b", "again"))?;

    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    pause(5).await;
    let mut new_events = delivered_events(&log)[2..].to_vec();
    new_events.sort();
    assert_eq!(new_events, ["+ b", "+ c", "- b", "~ a"]);
    assert_eq!(check_deliveries(&config_maps(&server)?, &log.lock())?.repeated, 0);
    assert_eq!(lists(&server), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deletion_found_by_list_is_delivered() -> Result<(), TestError> {
    let folder = Folder::new("relisted")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    server.delete_named("configmaps", "default", "a")?;
    server.compact();
    server.faults().expire_events();

    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    pause(5).await;
    assert_eq!(delivered_events(&log)[2..], ["- a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_event_keeps_id_in_next_run() -> Result<(), TestError> {
    let folder = Folder::new("unacknowledged")?;
    let (server, program, log) = start_first_run(&folder).await?;
    server.create(&config_map("c", "1"))?;
    server.delete_named("configmaps", "default", "b")?;
    // The handler of this run never acknowledges an event. The next run starts from a copy of the file.
    let stuck_log = Log::default();
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &stuck_log, |_| HandlerAction::Fail)?;
    program.settle(&server).await?;
    pause(1).await;
    let path = program.simulate_kill(&folder)?;
    // After the copy, the server changes `c` once more. The next run must still deliver the pending events first.
    server.replace(&config_map("c", "2"))?;

    let program = ProgramRun::start(&server, &path, 3).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    pause(5).await;
    let (before, mut new_events) = (delivered_ids(&stuck_log), delivered_ids(&log)[2..].to_vec());
    assert!(new_events[..2].iter().all(|id| before.contains(id)), "{before:?} {new_events:?}");
    new_events.sort();
    let c = server.get("configmaps", "default", "c")?;
    let (uid, version) = (c["metadata"]["uid"].as_str(), c["metadata"]["resourceVersion"].as_str());
    let last = format!("{}@{}", uid.unwrap_or_default(), version.unwrap_or_default());
    assert!(new_events.len() == 3 && new_events.contains(&last), "{new_events:?}");
    check_deliveries(&config_maps(&server)?, &log.lock())?;
    Ok(())
}

/// The handler received an object without acknowledging it, and the object's deletion was not observed.
#[tokio::test(start_paused = true)]
async fn unacknowledged_deleted_object_is_delivered_as_deleted() -> Result<(), TestError> {
    let folder = Folder::new("gone")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    server.create(&config_map("c", "1"))?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &Log::default(), |_| HandlerAction::NeverReturn)?;
    program.settle(&server).await?;
    let path = program.simulate_kill(&folder)?;
    server.delete_named("configmaps", "default", "c")?;

    let program = ProgramRun::start(&server, &path, 3).await?;
    // The informer receives the deletion before the handler has acknowledged the repeated delivery.
    register_durable_handler(&program, &log, |_| HandlerAction::TakeTime(Duration::from_secs(1)))?;
    program.settle(&server).await?;
    pause(5).await;
    assert_eq!(delivered_events(&log)[2..], ["+ c", "- c"]);
    check_deliveries(&config_maps(&server)?, &log.lock())?;
    Ok(())
}

/// The call of a removed handler fails after the removal.
#[tokio::test(start_paused = true)]
async fn event_of_removed_handler_is_delivered_to_next_handler() -> Result<(), TestError> {
    let folder = Folder::new("durable-removed")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    // The call ends by its deadline of 2 s.
    let stuck_log = Log::default();
    let registration = register_durable_handler(&program, &stuck_log, |_| HandlerAction::NeverReturn)?;
    program.settle(&server).await?;
    assert_eq!(delivered_ids(&stuck_log).len(), 1);
    registration.remove();
    pause(3).await;
    let log = Log::default();
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    pause(1).await;
    assert_eq!(delivered_ids(&log), delivered_ids(&stuck_log));
    Ok(())
}

/// The call of a removed handler fails after the registration of the next one.
#[tokio::test(start_paused = true)]
async fn failure_after_removal_causes_no_backoff() -> Result<(), TestError> {
    let folder = Folder::new("durable-reopened")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    // The call ends by its deadline of 2 s.
    let stuck_log = Log::default();
    let removed = register_durable_handler(&program, &stuck_log, |_| HandlerAction::NeverReturn)?;
    program.settle(&server).await?;
    assert_eq!(delivered_ids(&stuck_log).len(), 1);
    removed.remove();

    let deliveries = Arc::new(Mutex::new(Vec::new()));
    let delivered = deliveries.clone();
    let registration = program.informer.durable("mirror").on_event(move |event| {
        delivered.lock().push((event.id, event.failures));
        async { Ok::<_, std::convert::Infallible>(()) }
    })?;
    while registration.stats().running == 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Immediately after the end of the stuck call: a backoff would delay the delivery.
    assert_eq!(*deliveries.lock(), [(delivered_ids(&stuck_log).remove(0), 0)]);
    assert_eq!((registration.stats().acknowledged, registration.stats().failed), (1, 0));
    Ok(())
}

/// A handler is removed while its event waits for a retry.
#[tokio::test(start_paused = true)]
async fn delayed_event_reaches_next_handler_immediately() -> Result<(), TestError> {
    let folder = Folder::new("durable-delayed")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    let failing_log = Log::default();
    let removed = register_durable_handler(&program, &failing_log, |_| HandlerAction::Fail)?;
    // Several failures, so that the delay is long.
    while removed.stats().failed < 6 {
        pause(1).await;
    }
    removed.remove();

    let attempts = Arc::new(Mutex::new(Vec::new()));
    let attempted = attempts.clone();
    let start = tokio::time::Instant::now();
    let registration = program.informer.durable("mirror").on_event(move |event| {
        attempted.lock().push(start.elapsed());
        async move { if event.failures < 7 { Err("not yet") } else { Ok(()) } }
    })?;
    while registration.stats().acknowledged == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let attempts = attempts.lock().clone();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts[0] < Duration::from_millis(10), "the delay belongs to the removed handler: {attempts:?}");
    // The seventh delay is 16 to 32 s. The retry of the removed handler would come earlier.
    assert!(attempts[1] >= Duration::from_secs(16), "{attempts:?}");
    Ok(())
}

/// The removed handler has one event whose delay has passed, one that is delayed, and one call at a time.
#[tokio::test(start_paused = true)]
async fn next_handler_keeps_the_backoff_of_each_event() -> Result<(), TestError> {
    let folder = Folder::new("durable-delayed-twice")?;
    let server = ApiServer::builder().in_memory().start().await?;
    for name in ["a", "b"] {
        server.create(&config_map(name, "1"))?;
    }
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    // A failing call takes 2 s, so that the delay of one event ends during the call of the other.
    let removed = program.informer.durable("mirror").concurrency(1).on_event(|_| async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        Err::<(), _>("not yet")
    })?;
    while removed.stats().failed < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    removed.remove();
    // Until the last call has ended.
    pause(3).await;

    let attempts = Arc::new(Mutex::new(BTreeMap::<String, Vec<u32>>::new()));
    let attempted = attempts.clone();
    let registration = program.informer.durable("mirror").concurrency(1).on_event(move |event| {
        let key = event.event.object().key().to_string();
        attempted.lock().entry(key).or_default().push(event.failures);
        async { Err::<(), _>("not yet") }
    })?;
    // The delays after these failures are at least 1 s.
    tokio::time::sleep(Duration::from_millis(900)).await;
    let attempts = attempts.lock().clone();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts.values().all(|failures| failures.len() == 1), "an event skipped its delay: {attempts:?}");
    assert_eq!(registration.stats().failed, 6);
    Ok(())
}

/// The runtime of a removed handler ends during its call, after the registration of the next handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_runtime_affects_only_its_own_handler() -> Result<(), TestError> {
    let folder = Folder::new("durable-ended-runtime")?;
    let server = ApiServer::builder().in_memory().start().await?;
    server.create(&config_map("a", "1"))?;
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    let ended_runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let stuck_log = Log::default();
    let removed = {
        let _entered = ended_runtime.enter();
        register_durable_handler(&program, &stuck_log, |_| HandlerAction::NeverReturn)?
    };
    let both_delivered = async {
        while delivered_ids(&stuck_log).is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        removed.remove();
        let registration = register_durable_handler(&program, &Log::default(), |_| HandlerAction::Acknowledge)?;
        ended_runtime.shutdown_background();
        server.create(&config_map("b", "1"))?;
        while registration.stats().acknowledged < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok::<_, TestError>(registration.stats().failed)
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), both_delivered).await??, 0);
    Ok(())
}

/// The share of a removed handler has held events back. Its last call ended before the registration of the next handler.
#[tokio::test(start_paused = true)]
async fn events_held_back_reach_next_handler() -> Result<(), TestError> {
    let folder = Folder::new("durable-held-back")?;
    let server = ApiServer::builder().in_memory().start().await?;
    for index in 0..4 {
        server.create(&config_map(&format!("a-{index}"), "1"))?;
    }
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    // One namespace may have one of two calls. The call ends by its deadline.
    let started = Arc::new(Mutex::new(0));
    let counted = started.clone();
    let stuck = program.informer.durable("mirror").deadline(Duration::from_secs(2)).concurrency(4).namespace_share(2);
    let removed = stuck.on_event(move |_| {
        *counted.lock() += 1;
        std::future::pending::<Result<(), std::convert::Infallible>>()
    })?;
    program.settle(&server).await?;
    removed.remove();
    pause(10).await;
    assert_eq!(*started.lock(), 1, "the other events are held back");
    let log = Log::default();
    let registration = register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(registration.stats().acknowledged, 4, "{:?}", registration.stats());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_handler_delays_only_its_object() -> Result<(), TestError> {
    let folder = Folder::new("isolated")?;
    let server = ApiServer::builder().in_memory().start().await?;
    for index in 0..40 {
        server.create(&config_map(&format!("a-{index}"), "1"))?;
    }
    let program = ProgramRun::start(&server, &folder.file(), 1).await?;
    let log = Log::default();
    let registration = register_durable_handler(&program, &log, |event| match event.event.object().key().name() {
        "a-1" => HandlerAction::Fail,
        "a-2" => HandlerAction::Panic,
        "a-3" => HandlerAction::NeverReturn,
        _ => HandlerAction::Acknowledge,
    })?;
    program.settle(&server).await?;
    assert_eq!(registration.stats().acknowledged, 37, "{:?}", registration.stats());
    server.replace(&config_map("a-0", "2"))?;
    pause(600).await;
    let counts = registration.stats();
    assert_eq!((counts.acknowledged, counts.pending), (38, 3), "{counts:?}");
    let delivery_count =
        |name: &str| delivered_events(&log).iter().filter(|event| event.ends_with(&format!(" {name}"))).count();
    for name in ["a-1", "a-2", "a-3"] {
        assert!(
            (10..40).contains(&delivery_count(name)),
            "{name} is delivered again with a growing backoff: {}",
            delivery_count(name)
        );
    }
    assert_eq!(delivery_count("a-9"), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pending_events_wait_for_later_handler() -> Result<(), TestError> {
    let folder = Folder::new("later")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    program.settle(&server).await?;
    server.delete_named("configmaps", "default", "a")?;
    program.settle(&server).await?;
    let durables = program.informer.durable_handlers();
    assert_eq!(
        durables.iter().map(|(name, counts)| (&**name, counts.pending, counts.is_registered)).collect::<Vec<_>>(),
        [("mirror", 1, false)]
    );

    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 3).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&log)[2..], ["- a"]);

    assert!(program.informer.drop_durable("mirror") && !program.informer.drop_durable("mirror"));
    program.settle(&server).await?;
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 4).await?;
    assert_eq!(program.informer.durable_handlers(), []);
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&log)[3..], ["+ b"], "a new handler receives the existing objects");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn other_cluster_is_added_without_deletions() -> Result<(), TestError> {
    let folder = Folder::new("durable-other")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    server.stop();
    let server = ApiServer::builder().in_memory().seed(77).start().await?;
    server.create(&config_map("b", "1"))?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&log)[2..], ["+ b"]);
    assert_eq!(program.diagnostics(|note| matches!(note, Diagnostic::NotRestored { .. })).len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pending_deletions_are_dropped_for_other_cluster() -> Result<(), TestError> {
    let folder = Folder::new("durable-ends")?;
    let (server, program, log) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &Log::default(), |_| HandlerAction::NeverReturn)?;
    server.delete_named("configmaps", "default", "a")?;
    server.delete_named("configmaps", "default", "b")?;
    program.settle(&server).await?;
    assert_eq!(program.informer.durable_handlers()[0].1.pending, 2);
    let path = program.simulate_kill(&folder)?;
    server.stop();
    let server = ApiServer::builder().in_memory().seed(77).start().await?;
    server.create(&config_map("b", "1"))?;
    let program = ProgramRun::start(&server, &path, 3).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&log)[2..], ["+ b"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn surviving_object_identifies_the_cluster() -> Result<(), TestError> {
    for is_shown in [true, false] {
        let folder = Folder::new(&format!("unsure-{is_shown}"))?;
        let (server, program, log) = start_first_run(&folder).await?;
        let path = program.simulate_kill(&folder)?;
        server.delete_named("configmaps", "default", "a")?;
        if !is_shown {
            server.delete_named("configmaps", "default", "b")?;
            server.create(&config_map("b", "other"))?;
        }
        server.faults().respond(RequestRule::any().verb(Verb::Get).resource("namespaces"), InjectedResponse::Forbidden);
        let program = ProgramRun::start(&server, &path, 2).await?;
        register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
        program.settle(&server).await?;
        let new_events = delivered_events(&log)[2..].to_vec();
        assert_eq!(new_events, if is_shown { ["- a"] } else { ["+ b"] }, "shown: {is_shown}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn drained_shutdown_persists_acknowledgements() -> Result<(), TestError> {
    let folder = Folder::new("drained")?;
    let (server, program, log) = start_first_run(&folder).await?;
    server.replace(&config_map("a", "2"))?;
    program.informer.wait_for_version(&server.revision().to_string().as_str().into(), Duration::from_secs(5)).await?;
    program.factory.shutdown_drained(Duration::from_secs(30)).await;
    assert_eq!(delivered_events(&log), ["+ a", "+ b", "~ a"]);
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge)?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&log).len(), 3);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn durable_handler_needs_checkpoint_and_unique_name() -> Result<(), TestError> {
    let folder = Folder::new("durable-rejected")?;
    let (_server, program, log) = start_first_run(&folder).await?;
    let error =
        register_durable_handler(&program, &log, |_| HandlerAction::Acknowledge).expect_err("the name is in use");
    assert!(matches!(&error, HandlerError::Taken { name, .. } if name == "mirror"), "{error}");
    let acknowledge = |_| async { Ok::<(), String>(()) };
    let nameless = program.informer.durable("").on_event(acknowledge).expect_err("the name is empty");
    assert!(matches!(nameless, HandlerError::InvalidName { .. }), "{nameless}");
    let other_factory = InformerFactory::new(program.factory.connection());
    let informer = other_factory.informer::<Lazy<ConfigMap>>(steadfast::Scope::all())?;
    let rejected = informer.durable("mirror").on_event(acknowledge).expect_err("no checkpoint is configured");
    assert!(matches!(rejected, HandlerError::NoCheckpoint { .. }), "{rejected}");
    program.informer.stop();
    let stopped = program.informer.durable("other").on_event(acknowledge).expect_err("the informer is stopped");
    assert!(matches!(stopped, HandlerError::Stopped { .. }), "{stopped}");
    Ok(())
}

/// Adds a handler with this name, which acknowledges each event unless `is_stuck`.
fn register_successor(program: &ProgramRun, name: &str, is_stuck: bool) -> Result<Log, HandlerError> {
    let log = Log::default();
    let captured_log = log.clone();
    program.informer.durable(name).on_event(move |event| {
        captured_log.lock().push(HandlerRecord::Delivered(delivery(&event)));
        async move {
            if is_stuck {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::io::Error>(())
        }
    })?;
    Ok(log)
}

fn handler_names(program: &ProgramRun) -> Vec<String> {
    program.informer.durable_handlers().iter().map(|(name, _)| name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn replaced_handler_leaves_events_to_successors() -> Result<(), TestError> {
    let folder = Folder::new("replaced")?;
    let (server, program, _) = start_first_run(&folder).await?;
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    let stuck_log = Log::default();
    register_durable_handler(&program, &stuck_log, |_| HandlerAction::NeverReturn)?;
    server.replace(&config_map("a", "2"))?;
    server.delete_named("configmaps", "default", "b")?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&stuck_log).len(), 2);
    let path = program.simulate_kill(&folder)?;
    // Changes while the program is down.
    server.create(&config_map("c", "1"))?;

    let program = ProgramRun::start(&server, &path, 3).await?;
    program.informer.replace_durable("mirror", &["one", "two"]);
    let one = register_successor(&program, "one", false)?;
    let two = register_successor(&program, "two", true)?;
    program.settle(&server).await?;
    let mut events = delivered_events(&one);
    events.sort();
    assert_eq!(events, ["+ c", "- b", "~ a"]);
    let sorted_ids = |log: &Log| {
        let mut ids = delivered_ids(log);
        ids.sort();
        ids
    };
    assert_eq!(sorted_ids(&one), sorted_ids(&two));
    assert!(sorted_ids(&stuck_log).iter().all(|id| sorted_ids(&one).contains(id)), "the IDs stay");
    assert_eq!(handler_names(&program), ["one", "two"]);

    // In the next run, `one` has no pending events, and `two` has all of them. A second replacement of `mirror` has no
    // effect.
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 4).await?;
    program.informer.replace_durable("mirror", &["one", "two", "three"]);
    let (one, again) = (register_successor(&program, "one", false)?, register_successor(&program, "two", false)?);
    program.settle(&server).await?;
    assert_eq!(delivered_events(&one), Vec::<String>::new());
    assert_eq!(sorted_ids(&again), sorted_ids(&two));
    assert_eq!(handler_names(&program), ["one", "two"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn successor_with_a_record_keeps_it() -> Result<(), TestError> {
    let folder = Folder::new("successor")?;
    let (server, program, _) = start_first_run(&folder).await?;
    register_successor(&program, "one", false)?;
    program.settle(&server).await?;
    let path = program.simulate_kill(&folder)?;
    let program = ProgramRun::start(&server, &path, 2).await?;
    register_durable_handler(&program, &Log::default(), |_| HandlerAction::NeverReturn)?;
    let one = register_successor(&program, "one", false)?;
    server.replace(&config_map("a", "2"))?;
    program.settle(&server).await?;
    assert_eq!(delivered_events(&one), ["~ a"]);
    let path = program.simulate_kill(&folder)?;

    let program = ProgramRun::start(&server, &path, 3).await?;
    let (one, two) = {
        program.informer.replace_durable("mirror", &["one", "two"]);
        (register_successor(&program, "one", false)?, register_successor(&program, "two", false)?)
    };
    program.settle(&server).await?;
    assert_eq!((delivered_events(&one), delivered_events(&two)), (vec![], vec!["~ a".to_owned()]));
    assert_eq!(handler_names(&program), ["one", "two"]);
    Ok(())
}
