//! The second document: a watch whose channel closed permanently, and the remaining gaps after the repair of its
//! loop.

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
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, doubt, until};
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
                history kept and once with it compacted. The first gap costs no list, the second gap one, and every \
                deletion is delivered.",
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
struct Reader {
    values: Arc<Mutex<BTreeMap<String, String>>>,
    task: JoinHandle<()>,
}

impl Reader {
    fn of<K: CachedConfigMap>(mut changes: Watch<K>) -> Self {
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

    fn holds(&self, name: &str, value: &str) -> bool {
        let values = self.values.lock();
        values.get(name).is_some_and(|held| held == value)
    }
}

async fn watch_closed<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "0")?;
    let changes = steadfast::watch::<K>(&run.connection, Scope::all())?;
    let config_maps = run.record(changes.informer().clone());
    let reader = Reader::of(changes);
    run.ready(&[&config_maps]).await?;
    let mut slowest = Duration::ZERO;
    run.fault();
    for round in 1..=10 {
        run.faults().end_watches();
        let (ended, value) = (Instant::now(), round.to_string());
        run.change("a", &value)?;
        let seen = until(REACTION_TIMEOUT, || reader.holds("a", &value)).await;
        run.checks.within(&format!("the change after end {round}"), seen, REACTION_TIMEOUT);
        slowest = slowest.max(ended.elapsed());
        // The next watch must be open before it is ended.
        until(REACTION_TIMEOUT, || run.server.open_watches(0) > 0).await;
    }
    run.checks.expect(!reader.task.is_finished(), "the stream of events has ended");
    run.checks.same("full transfers", &run.lists(), &1);
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
    run.ready(&[&config_maps]).await?;
    let (mut detection, mut recovery) = (None, None);
    for round in 1..=6 {
        // Each reset happens at another position within an object.
        run.faults().reset_after_bytes(5_000 + u64::from(round) * 7_919);
        let fault = run.fault();
        for object in 0..4 {
            run.change(&format!("large-{object}"), &large(round, object))?;
        }
        let recovered_after = run.recovery(&[&config_maps], fault, Duration::from_secs(10)).await;
        run.checks.within(&format!("the recovery from reset {round}"), recovered_after, Duration::from_secs(3));
        recovery = recovery.max(recovered_after);
        detection = detection.max(doubt(&[&config_maps], fault, Duration::ZERO).await);
    }
    let failed = run.server.connections().iter().filter(|connection| connection.failed_at.is_some()).count();
    run.checks.same("connections that were reset", &failed, &6);
    run.checks.same("full transfers", &run.lists(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn no_spin<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;

    let before = run.server.connections().len();
    let fault = run.fault();
    run.faults().accept_and_close(true);
    run.faults().reset();
    run.change("a", "2")?;
    sleep(Duration::from_secs(4)).await;
    let attempts = run.server.connections().len() - before;
    run.checks.at_most("attempts in four seconds", attempts, 12);
    run.checks.expect(attempts >= 3, format_args!("only {attempts} attempts in four seconds"));
    let detection = doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // The wait includes the current backoff, which is not longer than the sum of the previous ones.
    run.checks.within("the recovery", recovery, Duration::from_secs(5));
    run.checks.same("full transfers", &run.lists(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(detection, recovery))
}

async fn events_in_the_gap<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    for object in 0..10 {
        run.create(&format!("old-{object}"), "1")?;
    }
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;

    let (kept, kept_back) = gap::<K>(&mut run, &config_maps, 0, false).await?;
    run.checks.same("full transfers with the history kept", &run.lists(), &1);
    let (compacted, compacted_back) = gap::<K>(&mut run, &config_maps, 5, true).await?;
    run.checks.same("full transfers with the history compacted", &run.lists(), &2);
    run.settle(&[&config_maps]).await;
    for (name, stays) in [
        ("old-0", &["Added", "Deleted Observed Deleted"][..]),
        ("old-2", &["Added", "Deleted Observed Deleted", "Added"]),
        ("old-5", &["Added", "Deleted Inferred Deleted"]),
        ("old-7", &["Added", "Deleted Inferred Replaced", "Added"]),
        ("new-5", &["Added"]),
    ] {
        let events = config_maps.recording.descriptions(&format!("default/{name}"));
        let wanted: Vec<String> = stays.iter().map(|&word| word.to_owned()).collect();
        run.checks.same(&format!("events of {name}"), &events, &wanted);
    }
    Ok(run.findings(kept.max(compacted), kept_back.max(compacted_back)))
}

/// Cuts the network, changes five old objects, creates two new objects, and heals the network. Returns the times
/// until the doubt and until the recovery.
async fn gap<K: CachedConfigMap>(
    run: &mut ScenarioRun,
    config_maps: &crate::scenarios::scenario_run::Watched<K>,
    from: u32,
    compact: bool,
) -> Result<(Option<Duration>, Option<Duration>), TestkitError> {
    let fault = run.fault();
    run.faults().cut();
    let old = |object: u32| format!("old-{}", from + object);
    run.delete(&old(0))?;
    run.delete(&old(1))?;
    run.recreate(&old(2), "2")?;
    run.change(&old(3), "2")?;
    run.change(&old(3), "3")?;
    run.change(&old(4), "2")?;
    run.create(&format!("new-{from}"), "1")?;
    run.create(&format!("new-{}", from + 1), "1")?;
    if compact {
        run.server.compact();
        run.faults().expire_events();
    }
    let detection = doubt(&[config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    run.faults().heal();
    let recovery = run.recovery(&[config_maps], Instant::now(), Duration::from_secs(10)).await;
    run.checks.within("the recovery", recovery, Duration::from_secs(3));
    Ok((detection, recovery))
}

async fn quiet_for_long<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    // The server ends such watches after two to four seconds. With the default timeout, watches end after five to ten
    // minutes.
    let reflector = ReflectorSettings { watch_timeout: Duration::from_secs(2), ..ReflectorSettings::default() };
    let mut run = ScenarioRun::start(&target, ScenarioSettings { reflector, ..ScenarioSettings::default() }).await?;
    run.create("a", "1")?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;
    until(REACTION_TIMEOUT, || config_maps.informer.freshness().is_fresh()).await;

    let started = run.fault();
    sleep(Duration::from_secs(9)).await;
    let watches = run.server.request_counts().watches;
    run.checks.expect(watches >= 2, format_args!("only {watches} watches: the server did not end them"));
    let doubt = config_maps.observer.longest_doubt(started);
    run.checks.within("the longest doubt", Some(doubt), Duration::from_millis(500));
    let changed = Instant::now();
    run.change("a", "2")?;
    let seen = run.recovery(&[&config_maps], changed, REACTION_TIMEOUT).await;
    run.checks.within("the change after the silence", seen, Duration::from_millis(500));
    run.checks.same("full transfers", &run.lists(), &1);
    run.settle(&[&config_maps]).await;
    Ok(run.findings(None, None))
}

async fn stop_on_request<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let at_once = Duration::from_millis(500);
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    run.create("a", "1")?;
    let changes = steadfast::watch::<K>(&run.connection, Scope::all())?;
    let config_maps = run.record(changes.informer().clone());
    let reader = Reader::of(changes);
    let factory = InformerFactory::new(&run.connection);
    let swallowed = run.builder::<K>(&factory, Scope::namespace("default")).start()?;
    run.ready(&[&config_maps]).await?;
    swallowed.wait_for_sync(REACTION_TIMEOUT).await?;
    run.change("a", "2")?;
    run.settle(&[&config_maps]).await;

    run.faults().black_hole(true);
    swallowed.stop();
    let stopped = until(REACTION_TIMEOUT, || matches!(swallowed.freshness(), Freshness::Stopped(_))).await;
    run.checks.within("the stop with dropped packets", stopped, at_once);
    run.faults().black_hole(false);

    let fault = run.fault();
    run.faults().stop();
    // By now the informer waits between attempts, for at least half a second.
    sleep(Duration::from_millis(1500)).await;
    let detection = doubt(&[&config_maps], fault, REACTION_TIMEOUT).await;
    run.checks.within("the doubt", detection, REACTION_TIMEOUT);
    let requested = Instant::now();
    config_maps.informer.stop();
    let stopped = until(REACTION_TIMEOUT, || matches!(config_maps.informer.freshness(), Freshness::Stopped(_))).await;
    run.checks.within("the stop between attempts", stopped, at_once);
    let ended = timeout(REACTION_TIMEOUT, reader.task).await.ok().map(|_| requested.elapsed());
    run.checks.within("the end of the stream", ended, at_once);
    Ok(run.findings(detection, None))
}

async fn undecodable_object<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let config_maps = run.watch::<K>(Scope::all())?;
    run.ready(&[&config_maps]).await?;
    run.fault();
    run.faults().undecodable("default", "b", true);
    // The server chooses the encoding of that object when a watch starts.
    run.faults().end_watches();
    ["a", "b", "c"].into_iter().try_for_each(|name| run.change(name, "2"))?;
    // Another informer receives the undecodable object in its list.
    let late = run.watch::<K>(Scope::namespace("default"))?;
    run.ready(&[&late]).await?;

    for (how, watched) in [("a watch", &config_maps), ("a list", &late)] {
        let unknown = until(REACTION_TIMEOUT, || watched.has_no_object("b")).await;
        run.checks.within(&format!("the unknown state of b by {how}"), unknown, REACTION_TIMEOUT);
        let named = until(REACTION_TIMEOUT, || watched.informer.freshness().to_string().contains("default/b")).await;
        run.checks.within(&format!("the freshness that names b, by {how}"), named, REACTION_TIMEOUT);
    }
    ["a", "c"].into_iter().try_for_each(|name| run.change(name, "3"))?;
    let going_on = run.recovery(&[&config_maps, &late], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.within("the others' next changes", going_on, REACTION_TIMEOUT);

    run.faults().undecodable("default", "b", false);
    run.faults().end_watches();
    let healed = Instant::now();
    run.change("b", "3")?;
    let recovery = run.recovery(&[&config_maps, &late], healed, REACTION_TIMEOUT).await;
    for (how, watched) in [("a watch", &config_maps), ("a list", &late)] {
        let known = watched.informer.lister()?.get("default", "b").is_ok_and(|found| found.is_some());
        run.checks.expect(known, format_args!("b did not become known again by {how}"));
    }
    run.checks.same("full transfers", &run.lists(), &2);
    run.settle(&[&config_maps, &late]).await;
    Ok(run.findings(None, recovery))
}
