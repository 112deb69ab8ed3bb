//! Undecodable objects, and their effect on other objects.

use std::time::Duration;

use steadfast::Scope;
use steadfast_apiserver::Spoiling;
use tokio::time::Instant;

use crate::Held;
use crate::menu::fault::Fault;
use crate::menu::findings::Findings;
use crate::menu::ground::Ground;
use crate::menu::scenario::{Bounds, Scenario, Source, Trouble, in_form};
use crate::menu::stage::{PROMPT, Stage, Watched, until};

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "deep-and-huge",
    faults: &[Fault::UndecodableObject],
    source: Source::Menu,
    summary: "Of five objects, one is nested 200 levels deep and one is above the limit, in a watch, in initial \
            events and in pages. Both are changed, deleted and recreated. Only these two are unknown and named, their \
            deletions are delivered, and they cause no list.",
    clauses: "C2, C11, R8",
    bounds: Bounds::NONE.recover(2).lists(2),
    seconds: 2,
    play: in_form!(deep_and_huge),
}];

/// Maximum size of a readable object, in bytes.
const MAX_OBJECT_BYTES: usize = 64 * 1024;

fn watch<K: Held>(stage: &Stage, scope: Scope, streamed: bool) -> Result<Watched<K>, Trouble> {
    let builder = stage.build::<K>(&stage.factory, scope).object_limit(MAX_OBJECT_BYTES).streamed_lists(streamed);
    Ok(stage.record(builder.start()?))
}

async fn deep_and_huge<K: Held>(ground: Ground) -> Result<Findings, Trouble> {
    let mut stage = Stage::plain(&ground).await?;
    ["a", "b", "c", "deep", "huge"].into_iter().try_for_each(|name| stage.create(name, "1"))?;
    let live = watch::<K>(&stage, Scope::all(), true)?;
    stage.ready(&[&live]).await?;
    stage.fault();
    stage.faults().spoil("default", "deep", Some(Spoiling::Deep(200)));
    stage.faults().spoil("default", "huge", Some(Spoiling::Huge(2 * MAX_OBJECT_BYTES)));
    ["a", "deep", "huge", "c"].into_iter().try_for_each(|name| stage.change(name, "2"))?;
    // Two more informers receive the objects in their lists.
    let streamed = watch::<K>(&stage, Scope::namespace("default"), true)?;
    let paged = watch::<K>(&stage, Scope::namespace("default").labels("none!=such"), false)?;
    let all = [("a watch", &live), ("initial events", &streamed), ("pages", &paged)];
    stage.ready(&[&live, &streamed, &paged]).await?;
    for (how, watched) in all {
        for name in ["deep", "huge"] {
            let unknown = until(PROMPT, || watched.knows_nothing_of(name)).await;
            stage.checks.within(&format!("the unknown state of {name} by {how}"), unknown, PROMPT);
        }
        let named =
            until(PROMPT, || watched.informer.freshness().to_string().contains("default/deep and 1 more")).await;
        stage.checks.within(&format!("the freshness that names both, by {how}"), named, PROMPT);
    }
    ["deep", "huge"].into_iter().try_for_each(|name| stage.delete(name))?;
    stage.change("b", "3")?;
    let going_on = stage.recovery(&[&live, &streamed, &paged], Instant::now(), PROMPT).await;
    stage.checks.within("the events after their deletions", going_on, PROMPT);
    for (how, watched) in all {
        let gone = ["deep", "huge"]
            .iter()
            .all(|name| watched.informer.lister().is_ok_and(|lister| lister.get("default", name).is_ok()));
        stage.checks.expect(gone, format_args!("their deletions were not delivered by {how}"));
    }

    ["deep", "huge"].into_iter().try_for_each(|name| stage.create(name, "4"))?;
    stage.recovery(&[&live, &streamed, &paged], Instant::now(), PROMPT).await;
    for name in ["deep", "huge"] {
        stage.faults().spoil("default", name, None);
    }
    let healed = Instant::now();
    ["deep", "huge"].into_iter().try_for_each(|name| stage.change(name, "5"))?;
    let recover = stage.recovery(&[&live, &streamed, &paged], healed, PROMPT).await;
    for (how, watched) in all {
        let known = until(Duration::ZERO, || watched.informer.snapshot().tainted().is_empty()).await.is_some();
        stage.checks.expect(known, format_args!("they did not become known again by {how}"));
    }
    stage.checks.same("full transfers", &stage.lists(), &3);
    stage.settle(&[&live, &streamed, &paged]).await;
    Ok(stage.judge(None, recover))
}
