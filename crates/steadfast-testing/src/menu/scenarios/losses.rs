//! Losses on the server: missing bookmarks, which prove that no event is missing, and missing events.

use std::time::Duration;

use steadfast::{ReflectorSettings, Scope};
use tokio::time::{Instant, sleep};

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::plan::Plan;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, until};

/// Period of the audit, shorter than in a real program.
const AUDIT_PERIOD: Duration = Duration::from_secs(60);

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "no-bookmarks",
        faults: &[Fault::NoBookmarks],
        source: Source::Menu,
        summary: "The server sends no bookmarks, as some aggregated servers do, and nothing changes for two and a \
                half periods. Probes are proofs instead of bookmarks. No watch is reopened, and the first change \
                arrives immediately.",
        clauses: "C10, R2",
        bounds: Bounds::NONE.recover(2).lists(0),
        seconds: 150,
        play: in_form!(no_bookmarks),
    },
    Scenario {
        name: "events-lost",
        faults: &[Fault::EventsLost],
        source: Source::Menu,
        summary: "The server sends a change, a deletion and a creation to no watch, and its bookmarks hide the loss. \
                An audit, here every minute, detects and reports each lost event within one audit period.",
        clauses: "C2, C11, R12",
        bounds: Bounds::NONE.recover(AUDIT_PERIOD.as_secs() + 10),
        seconds: 65,
        play: in_form!(events_lost),
    },
];

async fn no_bookmarks<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    stage.faults().no_bookmarks(true);
    stage.create("a", "1")?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    stage.watching(1).await;
    let started = stage.fault();
    let watches = stage.server.request_counts().watches;
    sleep(Duration::from_secs(150)).await;
    stage.expect_no_doubt(&config_maps, started);
    stage.checks.same("watches", &stage.server.request_counts().watches, &watches);
    stage.change("a", "2")?;
    let seen = stage.recovery(&[&config_maps], Instant::now(), PROMPT).await;
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, seen))
}

async fn events_lost<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let reflector = ReflectorSettings { audit_every: Some(AUDIT_PERIOD), ..ReflectorSettings::default() };
    let mut stage = Stage::set(&ground, Plan { reflector, ..Plan::default() }).await?;
    ["changed", "deleted", "same"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
    let config_maps = stage.watch::<K>(Scope::all())?;
    stage.ready(&[&config_maps]).await?;
    let fault = stage.fault();
    stage.faults().drop_events(3, |change| change.resource.resource() == "configmaps");
    stage.change("changed", "2")?;
    stage.delete("deleted")?;
    stage.create("created", "1")?;
    let told = |name: &str, times: usize| config_maps.recording.in_words(&format!("default/{name}")).len() == times;
    let whole = || told("changed", 2) && told("deleted", 2) && told("created", 1);
    let recover = until(2 * AUDIT_PERIOD, whole).await.map(|_| fault.elapsed());
    let deleted = config_maps.recording.in_words("default/deleted");
    let wanted = ["Added", "Deleted Inferred Deleted"].map(str::to_owned).to_vec();
    stage.checks.same("events of the object with a lost deletion", &deleted, &wanted);
    stage.checks.same("events of the unchanged object", &told("same", 1), &true);
    stage.settle(&[&config_maps]).await;
    Ok(stage.judge(None, recover))
}
