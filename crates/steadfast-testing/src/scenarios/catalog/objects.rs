//! Undecodable objects, and their effect on other objects.

use std::time::Duration;

use steadfast::Scope;
use steadfast_apiserver::ObjectCorruption;
use tokio::time::Instant;

use crate::CachedConfigMap;
use crate::TestkitError;
use crate::scenarios::catalog_fault::CatalogFault;
use crate::scenarios::findings::ScenarioFindings;
use crate::scenarios::scenario::{Scenario, ScenarioBounds, ScenarioSource, for_form};
use crate::scenarios::scenario_run::{REACTION_TIMEOUT, ScenarioRun, WatchedInformer, until};
use crate::scenarios::target::ScenarioTarget;

/// Scenarios of this family.
pub(super) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "deep-and-huge",
    faults: &[CatalogFault::UndecodableObject],
    source: ScenarioSource::FaultCatalog,
    summary: "Of five objects, one is nested 200 levels deep and one exceeds the size limit. They arrive in a watch, \
            in initial events and in pages. Both are changed, deleted and recreated. Only reads of these two return an \
            error with their names. Their deletions are delivered, and they cause no list.",
    clauses: "C2, C11, R8",
    bounds: ScenarioBounds::NONE.recovery(2).lists(2),
    seconds: 2,
    run: for_form!(deep_and_huge),
}];

/// Maximum size of a readable object, in bytes.
const MAX_OBJECT_BYTES: usize = 64 * 1024;

fn watch<K: CachedConfigMap>(
    run: &ScenarioRun,
    scope: Scope,
    streamed: bool,
) -> Result<WatchedInformer<K>, TestkitError> {
    let builder = run.builder::<K>(&run.factory, scope).object_limit(MAX_OBJECT_BYTES).streamed_lists(streamed);
    Ok(run.record(builder.start()?))
}

async fn deep_and_huge<K: CachedConfigMap>(target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let mut run = ScenarioRun::start_with_defaults(&target).await?;
    ["a", "b", "c", "deep", "huge"].into_iter().try_for_each(|name| run.create(name, "1"))?;
    let live_informer = watch::<K>(&run, Scope::all(), true)?;
    run.wait_until_ready(&[&live_informer]).await?;
    run.mark_fault();
    run.faults().corrupt_object("default", "deep", Some(ObjectCorruption::Deep(200)));
    run.faults().corrupt_object("default", "huge", Some(ObjectCorruption::Huge(2 * MAX_OBJECT_BYTES)));
    ["a", "deep", "huge", "c"].into_iter().try_for_each(|name| run.change(name, "2"))?;
    // Two more informers receive the objects in their lists.
    let streamed = watch::<K>(&run, Scope::namespace("default"), true)?;
    let paged = watch::<K>(&run, Scope::namespace("default").labels("none!=such"), false)?;
    let sources = [("a watch", &live_informer), ("initial events", &streamed), ("pages", &paged)];
    run.wait_until_ready(&[&live_informer, &streamed, &paged]).await?;
    for (source, watched) in sources {
        for name in ["deep", "huge"] {
            let unknown_delay = until(REACTION_TIMEOUT, || watched.has_no_object(name)).await;
            run.checks.expect_within(
                &format!("the unknown state of {name} by {source}"),
                unknown_delay,
                REACTION_TIMEOUT,
            );
        }
        let naming_delay =
            until(REACTION_TIMEOUT, || watched.informer.freshness().to_string().contains("default/deep and 1 more"))
                .await;
        run.checks.expect_within(
            &format!("the freshness that names both, by {source}"),
            naming_delay,
            REACTION_TIMEOUT,
        );
    }
    ["deep", "huge"].into_iter().try_for_each(|name| run.delete(name))?;
    run.change("b", "3")?;
    let continued = run.wait_for_recovery(&[&live_informer, &streamed, &paged], Instant::now(), REACTION_TIMEOUT).await;
    run.checks.expect_within("the events after their deletions", continued, REACTION_TIMEOUT);
    for (source, watched) in sources {
        let are_deleted = ["deep", "huge"]
            .iter()
            .all(|name| watched.informer.lister().is_ok_and(|lister| lister.get("default", name).is_ok()));
        run.checks.expect(are_deleted, format_args!("their deletions were not delivered by {source}"));
    }

    ["deep", "huge"].into_iter().try_for_each(|name| run.create(name, "4"))?;
    run.wait_for_recovery(&[&live_informer, &streamed, &paged], Instant::now(), REACTION_TIMEOUT).await;
    for name in ["deep", "huge"] {
        run.faults().corrupt_object("default", name, None);
    }
    let fault_end = Instant::now();
    ["deep", "huge"].into_iter().try_for_each(|name| run.change(name, "5"))?;
    let recovery = run.wait_for_recovery(&[&live_informer, &streamed, &paged], fault_end, REACTION_TIMEOUT).await;
    for (source, watched) in sources {
        let is_known = until(Duration::ZERO, || watched.informer.snapshot().tainted().is_empty()).await.is_some();
        run.checks.expect(is_known, format_args!("both objects were not readable again by {source}"));
    }
    run.checks.expect_equal("full transfers", &run.full_transfers(), &3);
    run.settle(&[&live_informer, &streamed, &paged]).await;
    Ok(run.findings(None, recovery))
}
