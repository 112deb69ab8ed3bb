//! `steadfast lab`: runs fault scenarios against this library over real sockets, and checks the results.
//!
//! The scenarios are defined in `steadfast-testing`; this module selects, runs and reports them.
//!
//! | module | responsibility |
//! |---|---|
//! | `choice` | selects scenarios by names and numbers |
//! | `outcome` | the reported result of a scenario |
//! | `report` | the results, as text or JSON |

mod choice;
mod outcome;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use steadfast_testing::scenarios::{self, Scenario, ScenarioTarget};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::cli::{LabArgs, Output};
use crate::failure::{Failure, RUN};
use crate::signals::StopSignal;
use outcome::Outcome;

/// Maximum number of busy scenarios that run concurrently.
const MAX_BUSY_SCENARIOS: usize = 4;
/// Maximum number of long scenarios that run concurrently. They take minutes, mostly waiting.
const MAX_LONG_SCENARIOS: usize = 32;
/// Duration in seconds above which a scenario counts as a long one.
const LONG_SCENARIO_SECONDS: u64 = 15;

/// Runs the scenarios and returns success if all of them passed.
pub(crate) async fn run(args: LabArgs) -> Result<ExitCode, Failure> {
    if args.together {
        return run_combined(&args).await;
    }
    let chosen = choice::choose(&args.names).map_err(Failure::usage)?;
    if args.list {
        report::explain(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    let mut stop = StopSignal::listen()?;
    let outcomes = tokio::select! {
        outcomes = run_all(&chosen, &args) => outcomes,
        () = stop.received() => return Err(Failure::run("stopped before all scenarios had finished")),
    };
    match args.output {
        Output::Text => report::table(&outcomes),
        Output::Json => report::json(&outcomes)?,
    }
    let passed = outcomes.iter().all(Outcome::passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(RUN) })
}

/// Runs several faults concurrently and reports the schedule and the result.
async fn run_combined(args: &LabArgs) -> Result<ExitCode, Failure> {
    let faults = choice::faults(&args.names).map_err(Failure::usage)?;
    let (mut stop, target) = (StopSignal::listen()?, ScenarioTarget::over_tcp(args.seed).with_form(args.form));
    let combined = tokio::select! {
        combined = scenarios::run_combined(&target, &faults) => combined.map_err(Failure::usage)?,
        () = stop.received() => return Err(Failure::run("stopped before the run had finished")),
    };
    report::log(&combined.log, args.output);
    let outcome = Outcome::together(&faults, &combined.findings);
    report::live(&outcome, args.output);
    let outcomes = [outcome];
    match args.output {
        Output::Text => report::table(&outcomes),
        Output::Json => report::json(&outcomes)?,
    }
    Ok(if outcomes[0].passed() { ExitCode::SUCCESS } else { ExitCode::from(RUN) })
}

/// Runs `chosen`, the slow ones first, and reports each result when the scenario ends. The results are in the order of
/// `chosen`.
async fn run_all(chosen: &[&'static Scenario], args: &LabArgs) -> Vec<Outcome> {
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    // The longest scenarios start first: the total duration is then close to that of the longest one.
    order.sort_by_key(|&index| std::cmp::Reverse(chosen[index].seconds));
    // Separate limits: long scenarios mostly wait, and must not hold the slots of busy ones. Too many busy scenarios
    // would distort the measured times.
    let (busy, waiting) = (Arc::new(Semaphore::new(MAX_BUSY_SCENARIOS)), Arc::new(Semaphore::new(MAX_LONG_SCENARIOS)));
    let mut playing: FuturesUnordered<_> = order
        .into_iter()
        .map(|index| {
            let scenario = chosen[index];
            let places = if scenario.seconds > LONG_SCENARIO_SECONDS { waiting.clone() } else { busy.clone() };
            async move {
                // The semaphores are never closed.
                let _place = places.acquire().await;
                (index, run_scenario(scenario, args).await)
            }
        })
        .collect();
    let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
    // The futures are lazy: no scenario starts before the first poll below.
    report::report_start(chosen, args.output);
    while let Some((index, outcome)) = playing.next().await {
        report::live(&outcome, args.output);
        outcomes.push((index, outcome));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn run_scenario(scenario: &'static Scenario, args: &LabArgs) -> Outcome {
    // Upper bound of the duration: a scenario that is still running then has failed.
    let longest = Duration::from_secs(50 + 2 * scenario.seconds);
    // A separate task, so that a panic ends only this scenario.
    match tokio::spawn(timeout(longest, scenario.run(ScenarioTarget::over_tcp(args.seed).with_form(args.form)))).await {
        Ok(Ok(Ok(findings))) => Outcome::of(scenario, &findings),
        Ok(Ok(Err(error))) => Outcome::failed(scenario, format!("it stopped with an error: {error}")),
        Ok(Err(_)) => Outcome::failed(scenario, format!("it did not finish within {} s", longest.as_secs())),
        Err(panic) => Outcome::failed(scenario, format!("it panicked: {panic}")),
    }
}
