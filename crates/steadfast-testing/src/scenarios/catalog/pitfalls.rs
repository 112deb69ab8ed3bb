//! Scenarios of the collection `client-go-watch-pitfalls` (`ScenarioSource::WatchPitfalls`): a watch whose channel
//! closed permanently, and defects that remain after the repair of the watch loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use steadfast::{Event, Freshness, InformerFactory, ReflectorSettings, Scope, Watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, until, wait_for_doubt};
use crate::scenarios::settings::ScenarioSettings;
use crate::scenarios::target::ScenarioTarget;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "watch-closed",
        faults: &[CatalogFault::WatchEnded],
        source: ScenarioSource::WatchPitfalls,
        summary: "The server ends the watch cleanly, ten times. The event stream continues each time, without a list \
                and without a lost change.",
        clauses: "C3, R4",
        bounds: ScenarioBounds::NONE.recovery(2).lists(0),
        seconds: 1,
        run: for_form!(watch_closed),
    },
    Scenario {
        name: "connection-killed",
        faults: &[CatalogFault::ConnectionReset],
        source: ScenarioSource::WatchPitfalls,
        summary: "The connection is reset repeatedly in the middle of an object, while objects change. The watch \
                resumes without a list, and no event is lost or delivered twice.",
        clauses: "C3, R4",
        bounds: ScenarioBounds::NONE.recovery(3).lists(0),
        seconds: 1,
        run: for_form!(connection_killed),
    },
    Scenario {
        name: "no-spin",
        faults: &[CatalogFault::AcceptAndClose],
        source: ScenarioSource::WatchPitfalls,
        summary: "For four seconds every connection is accepted and closed immediately. The number of attempts stays \
                small, and the watch recovers soon afterwards.",
        clauses: "R6",
        bounds: ScenarioBounds::NONE.detection(2).recovery(5).lists(0),
        seconds: 6,
        run: for_form!(no_spin),
    },
    Scenario {
        name: "events-in-the-gap",
        faults: &[CatalogFault::DeletedWhileCut],
        source: ScenarioSource::WatchPitfalls,
        summary: "Objects are created, changed, deleted and recreated while the watch is disconnected, once with the \
                history kept and once with it compacted. After the first disconnect no list is sent; after the second, \
                exactly one. Every deletion is delivered.",
        clauses: "C1, C2, R4, R5",
        bounds: ScenarioBounds::NONE.detection(2).recovery(3).lists(1),
        seconds: 1,
        run: for_form!(events_in_the_gap),
    },
    Scenario {
        name: "quiet-for-long",
        faults: &[],
        source: ScenarioSource::WatchPitfalls,
        summary: "Nothing changes for a long time, and the server ends idle watches several times. No significant \
                doubt arises, and the first change after the silence arrives immediately.",
        clauses: "C10, R4",
        bounds: ScenarioBounds::NONE.lists(0),
        seconds: 10,
        run: for_form!(quiet_for_long),
    },
    Scenario {
        name: "stop-on-request",
        faults: &[],
        source: ScenarioSource::WatchPitfalls,
        summary: "One watch is stopped between attempts, and another while its packets are dropped. Both end \
                immediately, and so does the event stream.",
        clauses: "R10",
        bounds: ScenarioBounds::NONE.detection(2),
        seconds: 2,
        run: for_form!(stop_on_request),
    },
    Scenario {
        name: "undecodable-object",
        faults: &[CatalogFault::UndecodableObject],
        source: ScenarioSource::WatchPitfalls,
        summary: "One object has a field of the wrong type, in the watch and in a list. Reads of that object return an \
                error that names it, and all others continue. Reads succeed again with its next valid state.",
        clauses: "C3, C11, R8",
        bounds: ScenarioBounds::NONE.recovery(2).lists(1),
        seconds: 1,
        run: for_form!(undecodable_object),
    },
];

/// Reader of a stream of events to its end, with the last delivered values.
struct StreamReader {
    values: Arc<Mutex<BTreeMap<String, String>>>,
    task: JoinHandle<()>,
}

impl StreamReader {
    fn start<K: CachedConfigMap>(mut changes: Watch<K>) -> Self {
        let values = Arc::new(Mutex::new(BTreeMap::new()));
        let cached = values.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = changes.next().await {
                let object = event.object();
                let name = object.key().name().to_owned();
                let mut cached = cached.lock();
                if matches!(event, Event::Deleted { .. }) {
                    cached.remove(&name);
                } else {
                    cached.insert(name, object.value("value").unwrap_or_default());
                }
            }
        });
        Self { values, task }
    }

    fn has_value(&self, name: &str, value: &str) -> bool {
        let values = self.values.lock();
        values.get(name).is_some_and(|cached_value| cached_value == value)
    }
}

async fn watch_closed<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "0")?;
    let changes = steadfast::watch::<K>(&run.connection, Scope::all())?;
    let config_maps = run.record(changes.informer().clone());
    let reader = StreamReader::start(changes);
    run.wait_until_ready(&[&config_maps]).await?;
    let mut slowest = Duration::ZERO;
    run.mark_fault();
    for round in 1..=10 {
        run.faults().end_watches();
        let (watch_end, value) = (Instant::now(), round.to_string());
        run.change("a", &value)?;
        let change_delay = until(REACTION_TIMEOUT, || reader.has_value("a", &value)).await;
        run.checks.expect_within(&format!("the change after end {round}"), change_delay, REACTION_TIMEOUT);
        slowest = slowest.max(watch_end.elapsed());
        // The next watch must be open before it is ended.
        until(REACTION_TIMEOUT, || run.server.open_watches(0) > 0).await;
    }
    run.checks.expect(!reader.task.is_finished(), "the stream of events has ended");
    run.checks.expect_equal("full transfers", &run.full_transfers(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, Some(slowest)))
}

async fn connection_killed<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let large = |round: u32, object: u32| format!("{round}/{object} {}", "x".repeat(20_000));
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..4 {
        run.create(&format!("large-{object}"), &large(0, object))?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    let (mut detection, mut recovery) = (None, None);
    for round in 1..=6 {
        // Each reset happens at another position within an object.
        run.faults().reset_after_bytes(5_000 + u64::from(round) * 7_919);
        let fault = run.mark_fault();
        for object in 0..4 {
            run.change(&format!("large-{object}"), &large(round, object))?;
        }
        let recovered_after = run.wait_for_recovery(&[&config_maps], fault, Duration::from_secs(10)).await;
        run.checks.expect_within(&format!("the recovery from reset {round}"), recovered_after, Duration::from_secs(3));
        recovery = recovery.max(recovered_after);
        detection = detection.max(wait_for_doubt(&[&config_maps], fault, Duration::ZERO).await);
    }
    let reset_connections = run.server.connections().iter().filter(|connection| connection.failed_at.is_some()).count();
    run.checks.expect_equal("connections that were reset", &reset_connections, &6);
    run.checks.expect_equal("full transfers", &run.full_transfers(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn no_spin<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;

    let connections_before = run.server.connections().len();
    let fault = run.mark_fault();
    run.faults().accept_and_close(true);
    run.faults().reset();
    run.change("a", "2")?;
    sleep(Duration::from_secs(4)).await;
    let attempts = run.server.connections().len() - connections_before;
    run.checks.expect_at_most("attempts in four seconds", attempts, 12);
    run.checks.expect(attempts >= 3, format_args!("only {attempts} attempts in four seconds"));
    let detection = wait_for_doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.wait_for_recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // The wait includes the rest of the current backoff. Backoffs double, so the current backoff is rarely longer than
    // all previous ones together, which took at most the four seconds of the fault.
    run.checks.expect_within("the recovery", recovery, Duration::from_secs(5));
    run.checks.expect_equal("full transfers", &run.full_transfers(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn events_in_the_gap<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..10 {
        run.create(&format!("old-{object}"), "1")?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;

    let (kept_detection, kept_recovery) = change_during_cut::<K>(&mut run, &config_maps, 0, false).await?;
    run.checks.expect_equal("full transfers with the history kept", &run.full_transfers(), &1);
    let (compacted_detection, compacted_recovery) = change_during_cut::<K>(&mut run, &config_maps, 5, true).await?;
    run.checks.expect_equal("full transfers with the history compacted", &run.full_transfers(), &2);
    run.settle(&[&config_maps]).await;
    for (name, stays) in [
        ("old-0", &["Added", "Deleted Observed Deleted"][..]),
        ("old-2", &["Added", "Deleted Observed Deleted", "Added"]),
        ("old-5", &["Added", "Deleted Inferred Deleted"]),
        ("old-7", &["Added", "Deleted Inferred Replaced", "Added"]),
        ("new-5", &["Added"]),
    ] {
        let events = config_maps.recording.descriptions(&format!("default/{name}"));
        let expected: Vec<String> = stays.iter().map(|&word| word.to_owned()).collect();
        run.checks.expect_equal(&format!("events of {name}"), &events, &expected);
    }
    Ok(run.findings(kept_detection.max(compacted_detection), kept_recovery.max(compacted_recovery)))
}

/// Cuts the network, changes five old objects, creates two new objects, and heals the network. Returns the times
/// until the doubt and until the recovery.
async fn change_during_cut<K: CachedConfigMap>(
    run: &mut ScenarioRun,
    config_maps: &crate::scenarios::scenario_run::WatchedInformer<K>,
    first_number: u32,
    compact: bool,
) -> Result<(Option<Duration>, Option<Duration>), TestkitError> {
    let fault = run.mark_fault();
    run.faults().cut();
    let old_name = |object: u32| format!("old-{}", first_number + object);
    run.delete(&old_name(0))?;
    run.delete(&old_name(1))?;
    run.recreate(&old_name(2), "2")?;
    run.change(&old_name(3), "2")?;
    run.change(&old_name(3), "3")?;
    run.change(&old_name(4), "2")?;
    run.create(&format!("new-{first_number}"), "1")?;
    run.create(&format!("new-{}", first_number + 1), "1")?;
    if compact {
        run.server.compact();
        run.faults().expire_events();
    }
    let detection = wait_for_doubt(&[config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.wait_for_recovery(&[config_maps], Instant::now(), Duration::from_secs(10)).await;
    run.checks.expect_within("the recovery", recovery, Duration::from_secs(3));
    Ok((detection, recovery))
}

async fn quiet_for_long<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    // The server ends such watches after two to four seconds. With the default timeout, watches end after five to ten
    // minutes.
    let reflector = ReflectorSettings { watch_timeout: Duration::from_secs(2), ..ReflectorSettings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { reflector, ..ScenarioSettings::default() }).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    until(REACTION_TIMEOUT, || config_maps.informer.freshness().is_fresh()).await;

    let started = run.mark_fault();
    sleep(Duration::from_secs(9)).await;
    let watches = run.server.request_counts().watches;
    run.checks.expect(watches >= 2, format_args!("only {watches} watches: the server did not end them"));
    let doubt = config_maps.observer.longest_doubt(started);
    run.checks.expect_within("the longest doubt", Some(doubt), Duration::from_millis(500));
    let changed = Instant::now();
    run.change("a", "2")?;
    let change_delay = run.wait_for_recovery(&[&config_maps], changed, REACTION_TIMEOUT).await;
    run.checks.expect_within("the change after the silence", change_delay, Duration::from_millis(500));
    run.checks.expect_equal("full transfers", &run.full_transfers(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, None))
}

async fn stop_on_request<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let stop_limit = Duration::from_millis(500);
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let changes = steadfast::watch::<K>(&run.connection, Scope::all())?;
    let config_maps = run.record(changes.informer().clone());
    let reader = StreamReader::start(changes);
    let factory = InformerFactory::new(&run.connection);
    let dropped_informer = run.builder::<K>(&factory, Scope::namespace("default")).start()?;
    run.wait_until_ready(&[&config_maps]).await?;
    dropped_informer.wait_for_sync(REACTION_TIMEOUT).await?;
    run.change("a", "2")?;
    run.settle(&[&config_maps]).await;

    run.faults().black_hole(true);
    dropped_informer.stop();
    let stop_delay = until(REACTION_TIMEOUT, || matches!(dropped_informer.freshness(), Freshness::Stopped(_))).await;
    run.checks.expect_within("the stop with dropped packets", stop_delay, stop_limit);
    run.faults().black_hole(false);

    let fault = run.mark_fault();
    run.faults().stop();
    // After this time, the informer waits between two attempts, and its current backoff is at least half a second long.
    sleep(Duration::from_millis(1500)).await;
    let detection = wait_for_doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.expect_within("the doubt", detection, REACTION_TIMEOUT);
    let stop_start = Instant::now();
    config_maps.informer.stop();
    let stop_delay =
        until(REACTION_TIMEOUT, || matches!(config_maps.informer.freshness(), Freshness::Stopped(_))).await;
    run.checks.expect_within("the stop between attempts", stop_delay, stop_limit);
    let stream_end_delay = timeout(REACTION_TIMEOUT, reader.task).await.ok().map(|_| stop_start.elapsed());
    run.checks.expect_within("the end of the stream", stream_end_delay, stop_limit);
    Ok(run.findings(detection, None))
}

async fn undecodable_object<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.wait_until_ready(&[&config_maps]).await?;
    run.mark_fault();
    run.faults().undecodable("default", "b", true);
    // The server chooses the encoding of that object when a watch starts.
    run.faults().end_watches();
    ["a", "b", "c"].into_iter().try_for_each(|name| run.change(name, "2"))?;
    // Another informer receives the undecodable object in its list.
    let late_informer = run.watch::<K>(Scope::namespace("default"))?;
    run.wait_until_ready(&[&late_informer]).await?;

    for (source, watched) in [("a watch", &config_maps), ("a list", &late_informer)] {
        let unknown_delay = until(REACTION_TIMEOUT, || watched.has_no_object("b")).await;
        run.checks.expect_within(&format!("the unknown state of b by {source}"), unknown_delay, REACTION_TIMEOUT);
        let naming_delay =
            until(REACTION_TIMEOUT, || watched.informer.freshness().to_string().contains("default/b")).await;
        run.checks.expect_within(&format!("the freshness that names b, by {source}"), naming_delay, REACTION_TIMEOUT);
    }
    ["a", "c"].into_iter().try_for_each(|name| run.change(name, "3"))?;
    let continued = run.wait_for_recovery(&[&config_maps, &late_informer], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("the others' next changes", continued, REACTION_TIMEOUT);

    run.faults().undecodable("default", "b", false);
    run.faults().end_watches();
    let fault_end = Instant::now();
    run.change("b", "3")?;
    let recovery = run.wait_for_recovery(&[&config_maps, &late_informer], fault_end, REACTION_TIMEOUT).await;
    for (source, watched) in [("a watch", &config_maps), ("a list", &late_informer)] {
        let is_known = watched.informer.lister()?.get("default", "b").is_ok_and(|found| found.is_some());
        run.checks.expect(is_known, format_args!("b was not readable again by {source}"));
    }
    run.checks.expect_equal("full transfers", &run.full_transfers(), &2);
    run.settle(&[&config_maps, &late_informer]).await;
    Ok(run.findings(None, recovery))
}
