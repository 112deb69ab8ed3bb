//! The second document: a watch with a channel that closed permanently, and the remaining gaps of its repaired loop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use steadfast::{Event, Freshness, InformerFactory, ReflectorSettings, Scope, Watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::plan::Plan;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, doubt, until};

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "watch-closed",
        faults: &[Fault::WatchEnded],
        source: Source::WatchPitfalls,
        summary: "The server ends the watch cleanly, ten times. The event stream continues each time, without a list \
                and without a lost change.",
        clauses: "C3, R4",
        bounds: Bounds::NONE.recover(2).lists(0),
        seconds: 1,
        play: in_form!(watch_closed),
    },
    Scenario {
        name: "connection-killed",
        faults: &[Fault::ConnectionReset],
        source: Source::WatchPitfalls,
        summary: "The connection is reset repeatedly in the middle of an object, while objects change. The watch \
                resumes without a list, and no event is lost or delivered twice.",
        clauses: "C3, R4",
        bounds: Bounds::NONE.recover(3).lists(0),
        seconds: 1,
        play: in_form!(connection_killed),
    },
    Scenario {
        name: "no-spin",
        faults: &[Fault::AcceptAndClose],
        source: Source::WatchPitfalls,
        summary: "For four seconds every connection is accepted and closed immediately. The number of attempts stays \
                small, and the watch recovers soon afterwards.",
        clauses: "R6",
        bounds: Bounds::NONE.notice(2).recover(5).lists(0),
        seconds: 6,
        play: in_form!(no_spin),
    },
    Scenario {
        name: "events-in-the-gap",
        faults: &[Fault::DeletedWhileCut],
        source: Source::WatchPitfalls,
        summary: "Objects are created, changed, deleted and recreated while the watch is disconnected, once with the \
                history kept and once with it compacted. The first gap costs no list, the second gap one, and every \
                deletion is delivered.",
        clauses: "C1, C2, R4, R5",
        bounds: Bounds::NONE.notice(2).recover(3).lists(1),
        seconds: 1,
        play: in_form!(events_in_the_gap),
    },
    Scenario {
        name: "quiet-for-long",
        faults: &[],
        source: Source::WatchPitfalls,
        summary: "Nothing changes for a long time, and the server ends idle watches several times. No significant \
                doubt arises, and the first change after the silence arrives immediately.",
        clauses: "C10, R4",
        bounds: Bounds::NONE.lists(0),
        seconds: 10,
        play: in_form!(quiet_for_long),
    },
    Scenario {
        name: "stop-when-told",
        faults: &[],
        source: Source::WatchPitfalls,
        summary: "One watch is stopped between attempts, and another while its packets are dropped. Both end \
                immediately, and so does the event stream.",
        clauses: "R10",
        bounds: Bounds::NONE.notice(2),
        seconds: 2,
        play: in_form!(stop_on_request),
    },
    Scenario {
        name: "undecodable-object",
        faults: &[Fault::UndecodableObject],
        source: Source::WatchPitfalls,
        summary: "One object has a field of the wrong type, in the watch and in a list. Only that object is unknown \
                and is named, and all others continue. It is known again with its next valid state.",
        clauses: "C3, C11, R8",
        bounds: Bounds::NONE.recover(2).lists(1),
        seconds: 1,
        play: in_form!(undecodable_object),
    },
];

/// Reads a stream of events to its end, and keeps the last delivered values.
struct Reader {
    values: Arc<Mutex<BTreeMap<String, String>>>,
    task: JoinHandle<()>,
}

impl Reader {
    fn of<K: Held>(mut changes: Watch<K>) -> Self {
        let values = Arc::new(Mutex::new(BTreeMap::new()));
        let told = values.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = changes.next().await {
                let object = event.object();
                let name = object.key().name().to_owned();
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(event, Event::Deleted { .. }) {
                    told.remove(&name);
                } else {
                    told.insert(name, object.value("value").unwrap_or_default());
                }
            }
        });
        Self { values, task }
    }

    fn holds(&self, name: &str, value: &str) -> bool {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.get(name).is_some_and(|held| held == value)
    }
}

async fn watch_closed<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "0")?;
    let changes = steadfast::watch::<K>(&stage.connection, Scope::all())?;
    let config_maps = stage.record(changes.informer().clone());
    let reader = Reader::of(changes);
    stage.ready(&[&config_maps]).await?;
    let mut slowest = Duration::ZERO;
    stage.fault();
    for round in 1..=10 {
        stage.faults().end_watches();
        let (ended, value) = (Instant::now(), round.to_string());
        stage.change("a", &value)?;
        let seen = until(PROMPT, || reader.holds("a", &value)).await;
        stage.checks.within(&format!("the change after end {round}"), seen, PROMPT);
        slowest = slowest.max(ended.elapsed());
        // The next watch must be open before it is ended.
        until(PROMPT, || stage.server.open_watches(0) > 0).await;
    }
    stage.checks.expect(!reader.task.is_finished(), "the stream of events has ended");
    stage.checks.same("full transfers", &stage.lists(), &1);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, Some(slowest)))
}

async fn connection_killed<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let large = |round: u32, object: u32| format!("{round}/{object} {}", "x".repeat(20_000));
    let mut stage = Stage::plain(&ground).await?;
    for object in 0..4 {
        stage.create(&format!("large-{object}"), &large(0, object))?;
    }
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    let (mut notice, mut recover) = (None, None);
    for round in 1..=6 {
        // Each reset is at another position in an object.
        stage.faults().reset_after_bytes(5_000 + u64::from(round) * 7_919);
        let fault = stage.fault();
        for object in 0..4 {
            stage.change(&format!("large-{object}"), &large(round, object))?;
        }
        let back = stage.recovery(&[&config_maps], fault, Duration::from_secs(10)).await;
        stage.checks.within(&format!("the recovery from reset {round}"), back, Duration::from_secs(3));
        recover = recover.max(back);
        notice = notice.max(doubt(&[&config_maps], fault, Duration::ZERO).await);
    }
    let failed = stage.server.connections().iter().filter(|connection| connection.failed_at.is_some()).count();
    stage.checks.same("connections that were reset", &failed, &6);
    stage.checks.same("full transfers", &stage.lists(), &1);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(notice, recover))
}

async fn no_spin<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "1")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;

    let before = stage.server.connections().len();
    let fault = stage.fault();
    stage.faults().accept_and_close(true);
    stage.faults().reset();
    stage.change("a", "2")?;
    sleep(Duration::from_secs(4)).await;
    let attempts = stage.server.connections().len() - before;
    stage.checks.at_most("attempts in four seconds", attempts, 12);
    stage.checks.expect(attempts >= 3, format_args!("only {attempts} attempts in four seconds"));
    let notice = doubt(&[&config_maps], fault, PROMPT).await;
    stage.checks.within("the doubt", notice, PROMPT);
    stage.faults().heal();
    let recover = stage.recovery(&[&config_maps], Instant::now(), Duration::from_secs(10)).await;
    // The wait includes the current backoff, which is not longer than the sum of the previous ones.
    stage.checks.within("the recovery", recover, Duration::from_secs(5));
    stage.checks.same("full transfers", &stage.lists(), &1);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(notice, recover))
}

async fn events_in_the_gap<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    for object in 0..10 {
        stage.create(&format!("old-{object}"), "1")?;
    }
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;

    let (kept, kept_back) = gap::<K>(&mut stage, &config_maps, 0, false).await?;
    stage.checks.same("full transfers with the history kept", &stage.lists(), &1);
    let (compacted, compacted_back) = gap::<K>(&mut stage, &config_maps, 5, true).await?;
    stage.checks.same("full transfers with the history compacted", &stage.lists(), &2);
    stage.settle(&[&config_maps]).await;
    for (name, stays) in [
        ("old-0", &["Added", "Deleted Observed Deleted"][..]),
        ("old-2", &["Added", "Deleted Observed Deleted", "Added"]),
        ("old-5", &["Added", "Deleted Inferred Deleted"]),
        ("old-7", &["Added", "Deleted Inferred Replaced", "Added"]),
        ("new-5", &["Added"]),
    ] {
        let told = config_maps.recording.in_words(&format!("default/{name}"));
        let wanted: Vec<String> = stays.iter().map(|&word| word.to_owned()).collect();
        stage.checks.same(&format!("events of {name}"), &told, &wanted);
    }
    Ok(stage.judge(kept.max(compacted), kept_back.max(compacted_back)))
}

/// Cuts the network, changes five old objects, creates two new ones, and heals. Returns the times until the doubt and
/// until the recovery.
async fn gap<K: Held>(
    stage: &mut Stage,
    config_maps: &crate::menu::stage::Watched<K>,
    from: u32,
    compact: bool,
) -> Result<(Option<Duration>, Option<Duration>), Trouble> {
    let fault = stage.fault();
    stage.faults().cut();
    let old = |object: u32| format!("old-{}", from + object);
    stage.delete(&old(0))?;
    stage.delete(&old(1))?;
    stage.recreate(&old(2), "2")?;
    stage.change(&old(3), "2")?;
    stage.change(&old(3), "3")?;
    stage.change(&old(4), "2")?;
    stage.create(&format!("new-{from}"), "1")?;
    stage.create(&format!("new-{}", from + 1), "1")?;
    if compact {
        stage.server.compact();
        stage.faults().expire_events();
    }
    let notice = doubt(&[config_maps], fault, PROMPT).await;
    stage.checks.within("the doubt", notice, PROMPT);
    stage.faults().heal();
    let recover = stage.recovery(&[config_maps], Instant::now(), Duration::from_secs(10)).await;
    stage.checks.within("the recovery", recover, Duration::from_secs(3));
    Ok((notice, recover))
}

async fn quiet_for_long<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    // The server ends such watches after two to four seconds. By default it is five to ten minutes.
    let reflector = ReflectorSettings { watch_timeout: Duration::from_secs(2), ..ReflectorSettings::default() };
    let mut stage = Stage::set(&ground, Plan { reflector, ..Plan::default() }).await?;
    stage.create("a", "1")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    until(PROMPT, || config_maps.informer.freshness().is_fresh()).await;

    let started = stage.fault();
    sleep(Duration::from_secs(9)).await;
    let watches = stage.server.request_counts().watches;
    stage.checks.expect(watches >= 2, format_args!("only {watches} watches: the server did not end them"));
    let doubt = config_maps.onlooker.longest_doubt(started);
    stage.checks.within("the longest doubt", Some(doubt), Duration::from_millis(500));
    let changed = Instant::now();
    stage.change("a", "2")?;
    let seen = stage.recovery(&[&config_maps], changed, PROMPT).await;
    stage.checks.within("the change after the silence", seen, Duration::from_millis(500));
    stage.checks.same("full transfers", &stage.lists(), &1);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, None))
}

async fn stop_on_request<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let at_once = Duration::from_millis(500);
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "1")?;
    let changes = steadfast::watch::<K>(&stage.connection, Scope::all())?;
    let config_maps = stage.record(changes.informer().clone());
    let reader = Reader::of(changes);
    let factory = InformerFactory::new(&stage.connection);
    let swallowed = stage.build::<K>(&factory, Scope::namespace("default")).start()?;
    stage.ready(&[&config_maps]).await?;
    swallowed.wait_for_sync(PROMPT).await?;
    stage.change("a", "2")?;
    stage.settle(&[&config_maps]).await;

    stage.faults().black_hole(true);
    swallowed.stop();
    let stopped = until(PROMPT, || matches!(swallowed.freshness(), Freshness::Stopped(_))).await;
    stage.checks.within("the stop with dropped packets", stopped, at_once);
    stage.faults().black_hole(false);

    let fault = stage.fault();
    stage.faults().stop();
    // By now the informer waits between attempts, for at least half a second.
    sleep(Duration::from_millis(1500)).await;
    let notice = doubt(&[&config_maps], fault, PROMPT).await;
    stage.checks.within("the doubt", notice, PROMPT);
    let told = Instant::now();
    config_maps.informer.stop();
    let stopped = until(PROMPT, || matches!(config_maps.informer.freshness(), Freshness::Stopped(_))).await;
    stage.checks.within("the stop between attempts", stopped, at_once);
    let ended = timeout(PROMPT, reader.task).await.ok().map(|_| told.elapsed());
    stage.checks.within("the end of the stream", ended, at_once);
    Ok(stage.judge(notice, None))
}

async fn undecodable_object<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    ["a", "b", "c"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
    // Another informer receives it in its list.
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.fault();
    stage.faults().undecodable("default", "b", true);
    // The server chooses the encoding of that object when a watch starts.
    stage.faults().end_watches();
    ["a", "b", "c"].into_iter().try_for_each(|name| stage.change(name, "2"))?;
    let late = stage.watch::<K>(Scope::namespace("default"))?;
    stage.ready(&[&late]).await?;

    for (how, watched) in [("a watch", &config_maps), ("a list", &late)] {
        let unknown = until(PROMPT, || watched.knows_nothing_of("b")).await;
        stage.checks.within(&format!("the unknown state of b by {how}"), unknown, PROMPT);
        let named = until(PROMPT, || watched.informer.freshness().to_string().contains("default/b")).await;
        stage.checks.within(&format!("the freshness that names b, by {how}"), named, PROMPT);
    }
    ["a", "c"].into_iter().try_for_each(|name| stage.change(name, "3"))?;
    let going_on = stage.recovery(&[&config_maps, &late], Instant::now(), PROMPT).await;
    stage.checks.within("the others' next changes", going_on, PROMPT);

    stage.faults().undecodable("default", "b", false);
    stage.faults().end_watches();
    let healed = Instant::now();
    stage.change("b", "3")?;
    let recover = stage.recovery(&[&config_maps, &late], healed, PROMPT).await;
    for (how, watched) in [("a watch", &config_maps), ("a list", &late)] {
        let known = watched.informer.lister()?.get("default", "b").is_ok_and(|found| found.is_some());
        stage.checks.expect(known, format_args!("b did not become known again by {how}"));
    }
    stage.checks.same("full transfers", &stage.lists(), &2);
    stage.settle(&[&config_maps, &late]).await;
    Ok(stage.judge(None, recover))
}
