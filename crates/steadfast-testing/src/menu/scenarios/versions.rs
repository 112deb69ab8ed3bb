//! Versions: no longer available, not reached yet, repeated, lost, or restarted.

use std::time::Duration;

use steadfast::Scope;
use steadfast_apiserver::{Answer, RequestRule, Status, TooLarge, Verb};
use tokio::time::{Instant, sleep};

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::plan::Plan;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, Watched, doubt};

/// Timeout that is longer than any recovery in these scenarios.
const LONG: Duration = Duration::from_secs(60);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "version-expired",
        faults: &[Fault::HistoryCompacted],
        source: Source::Menu,
        summary: "The server no longer has the version that a watch resumes from. It responds as an HTTP status and \
                in the stream, with Expired and with Gone, and once after a real compaction. Each case costs exactly \
                one list, and every deletion is delivered.",
        clauses: "C2, C3, R5",
        bounds: Bounds::NONE.recover(3).lists(5),
        seconds: 10,
        play: in_form!(version_expired),
    },
    Scenario {
        name: "version-too-large",
        faults: &[Fault::VersionTooLarge],
        source: Source::Menu,
        summary: "The responding replica has not reached the requested version. It reports this in three spellings, \
                to the resuming watch and to the following list. The informer waits and lists once more, and no state \
                goes back.",
        clauses: "C4, R5",
        bounds: Bounds::NONE.recover(15).lists(12),
        seconds: 15,
        play: in_form!(version_too_large),
    },
    Scenario {
        name: "events-repeated",
        faults: &[Fault::EventsRepeated],
        source: Source::Menu,
        summary: "After each resume the server sends the last three events again, including deletions. No handler \
                receives them twice, and no state goes back.",
        clauses: "C3, C4, R4",
        bounds: Bounds::NONE.recover(2).lists(0),
        seconds: 1,
        play: in_form!(events_repeated),
    },
    Scenario {
        name: "history-restored",
        faults: &[Fault::HistoryRestored],
        source: Source::Menu,
        summary: "The server is restored from a backup, so its versions start again lower. It accepts a watch from a \
                version that it has not reached. A probe proves the new epoch, one list follows, and surviving \
                objects are not reported as deleted.",
        clauses: "C1, C4, R5",
        bounds: Bounds::NONE.notice(2).recover(8).lists(1),
        seconds: 8,
        play: in_form!(history_restored),
    },
];

async fn version_expired<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    for object in 0..5 {
        stage.create(&format!("old-{object}"), "1")?;
    }
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.fault();
    let gone = Status::of_code(410).with_reason("Gone");
    let expired = Status::of_code(410);
    let responses = [
        Answer::Status(expired.clone()),
        Answer::Status(gone.clone()),
        Answer::InStream(expired),
        Answer::InStream(gone),
    ];
    let mut slowest = Duration::ZERO;
    for (round, response) in responses.into_iter().map(Some).chain([None]).enumerate() {
        stage.faults().cut();
        stage.delete(&format!("old-{round}"))?;
        if let Some(response) = response {
            stage.faults().answer_with(RequestRule::any().verb(Verb::Watch).times(1), response);
        } else {
            stage.server.compact();
            stage.faults().expire_events();
        }
        let healed = Instant::now();
        stage.faults().heal();
        let back = stage.recovery(&[&config_maps], healed, LONG).await;
        stage.checks.within(&format!("the recovery from response {round}"), back, LONG);
        slowest = slowest.max(back.unwrap_or(LONG));
        // Long enough for a loop of lists to become visible.
        sleep(Duration::from_secs(1)).await;
    }
    stage.settle(&[&config_maps]).await;
    for object in 0..5 {
        let told = config_maps.recording.in_words(&format!("default/old-{object}"));
        stage.checks.same("events of a deletion", &told.len(), &2);
    }
    Ok(stage.judge(None, Some(slowest)))
}

async fn version_too_large<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.create("a", "0")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.fault();
    let mut slowest = Duration::ZERO;
    for (round, spelling) in [TooLarge::Cause, TooLarge::CauseMessage, TooLarge::Message].into_iter().enumerate() {
        for in_stream in [false, true] {
            let Answer::Status(status) = Answer::too_large(spelling) else { continue };
            let response = if in_stream { Answer::InStream(status.clone()) } else { status.clone().into() };
            // For the resuming watch, and for the list that follows, if any.
            stage.faults().answer_with(RequestRule::any().verb(Verb::Watch).times(1), response.clone());
            stage.faults().answer_with(RequestRule::any().verb(Verb::List).verb(Verb::StreamedList).times(1), response);
            stage.faults().end_watches();
            let ended = Instant::now();
            stage.change("a", &format!("{round} {in_stream}"))?;
            let back = stage.recovery(&[&config_maps], ended, LONG).await;
            stage.checks.within(&format!("the recovery from {spelling:?}"), back, LONG);
            slowest = slowest.max(back.unwrap_or(LONG));
            stage.faults().answer_truly();
        }
    }
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, Some(slowest)))
}

async fn events_repeated<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    ["a", "b"].into_iter().try_for_each(|name| stage.create(name, "0"))?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.fault();
    stage.faults().repeat_events(3);
    let mut slowest = Duration::ZERO;
    for round in 0..6 {
        stage.change("a", &round.to_string())?;
        stage.recreate("b", &round.to_string())?;
        let seen = stage.recovery(&[&config_maps], Instant::now(), PROMPT).await;
        stage.checks.within("the changes", seen, PROMPT);
        stage.faults().end_watches();
        let ended = Instant::now();
        stage.create(&format!("new-{round}"), "1")?;
        let back = stage.recovery(&[&config_maps], ended, LONG).await;
        slowest = slowest.max(back.unwrap_or(LONG));
    }
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, Some(slowest)))
}

async fn history_restored<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    // No client can know that versions start again lower before a probe, which follows soon after the disconnect.
    let mut stage = Stage::set(&ground, Plan { lag: Duration::from_secs(8), ..Plan::default() }).await?;
    stage.create("kept", "1")?;
    let backup = stage.server.revision();
    stage.create("lost", "1")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    let fault = stage.fault();
    stage.faults().restore(backup);
    let notice = doubt(&[&config_maps], fault, Duration::from_secs(90)).await;
    let recover = announced::<K>(&mut stage, &config_maps, fault).await;
    stage.change("kept", "2")?;
    let seen = stage.recovery(&[&config_maps], Instant::now(), PROMPT).await;
    stage.checks.within("the first change of the new epoch", seen, PROMPT);
    stage.settle(&[&config_maps]).await;
    let lost = config_maps.recording.in_words("default/lost");
    let wanted = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
    stage.checks.same("events of the object that is missing in the backup", &lost, &wanted);
    let kept = config_maps.recording.in_words("default/kept");
    let goes_on = !kept.iter().any(|told| told.starts_with("Deleted"));
    stage.checks.expect(goes_on, format_args!("events of the surviving object: {kept:?}"));
    Ok(stage.judge(notice, recover))
}

/// Waits for a new epoch and its objects, and returns the time since `fault`.
async fn announced<K: Held>(stage: &mut Stage, config_maps: &Watched<K>, fault: Instant) -> Option<Duration> {
    let limit = Duration::from_secs(120);
    while config_maps.informer.snapshot().epoch() == 0 && fault.elapsed() < limit {
        sleep(Duration::from_millis(5)).await;
    }
    let epoch = config_maps.informer.snapshot().epoch();
    stage.checks.same("the epoch", &epoch, &1);
    let fresh = crate::menu::stage::until(LONG, || config_maps.informer.freshness().is_fresh()).await;
    fresh.map(|_| fault.elapsed())
}
