//! `steadfast lab`: runs fault scenarios against this library over real sockets, and checks the results.
//!
//! The scenarios are defined in `steadfast-testing`; this module selects, runs and reports them.
//!
//! | module | responsibility |
//! |---|---|
//! | `choice` | selects scenarios by names and numbers |
//! | `outcome` | the reported result of a scenario |
//! | `report` | the results, as text or JSON |
//! | `page` | the results with their time lines, as an HTML page |

mod choice;
mod outcome;
mod page;
mod report;

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use steadfast_testing::scenarios::{self, Scenario, ScenarioTarget};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::cli::{LabArgs, Output};
use crate::failure::{EXIT_FAILED, Failure};
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
    let selected = choice::choose(&args.names).map_err(Failure::usage)?;
    if args.list {
        report::print_descriptions(&selected);
        return Ok(ExitCode::SUCCESS);
    }
    check_writable(&args)?;
    let mut stop = StopSignal::listen()?;
    let outcomes = tokio::select! {
        outcomes = run_all(&selected, &args) => outcomes,
        () = stop.received() => return Err(Failure::run("stopped before all scenarios had finished")),
    };
    finish(&outcomes, &args)
}

/// Prints the results, writes the page, and returns the exit code.
fn finish(outcomes: &[Outcome], args: &LabArgs) -> Result<ExitCode, Failure> {
    match args.output {
        Output::Text => report::print_table(outcomes),
        Output::Json => report::print_json(outcomes)?,
    }
    if let Some(file) = &args.report {
        let settings = page::RunSettings { seed: args.seed, form: args.form };
        fs::write(file, page::render(outcomes, settings)).map_err(|error| page_failure(file, &error))?;
    }
    let passed = outcomes.iter().all(Outcome::passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) })
}

/// Checks that the page can be written, before scenarios run for minutes.
fn check_writable(args: &LabArgs) -> Result<(), Failure> {
    let Some(file) = &args.report else { return Ok(()) };
    // An existing page is kept until the new one is complete.
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(file);
    opened.map(drop).map_err(|error| page_failure(file, &error))
}

fn page_failure(file: &Path, error: &std::io::Error) -> Failure {
    let file = file.display();
    Failure::run(format!("{file} cannot be written: {error}; choose another file with --report"))
}

/// Runs several faults concurrently and reports the schedule and the result.
async fn run_combined(args: &LabArgs) -> Result<ExitCode, Failure> {
    let faults = choice::faults(&args.names).map_err(Failure::usage)?;
    check_writable(args)?;
    let (mut stop, target) = (StopSignal::listen()?, ScenarioTarget::over_tcp(args.seed).with_form(args.form));
    let combined_run = tokio::select! {
        combined_run = scenarios::run_combined(&target, &faults) => combined_run.map_err(Failure::usage)?,
        () = stop.received() => return Err(Failure::run("stopped before the run had finished")),
    };
    report::report_schedule(&combined_run.log, args.output);
    let outcome = Outcome::combined(&faults, &combined_run.findings);
    report::report_outcome(&outcome, args.output);
    finish(&[outcome], args)
}

/// Runs `selected`, the slow ones first, and reports each result when the scenario ends. The results are in the order
/// of `selected`.
async fn run_all(selected: &[&'static Scenario], args: &LabArgs) -> Vec<Outcome> {
    let mut start_order: Vec<usize> = (0..selected.len()).collect();
    // The longest scenarios start first: the total duration is then close to that of the longest one.
    start_order.sort_by_key(|&index| std::cmp::Reverse(selected[index].seconds));
    // Separate limits: long scenarios mostly wait, and must not hold the slots of busy ones. Too many busy scenarios
    // would distort the measured times.
    let (busy, waiting) = (Arc::new(Semaphore::new(MAX_BUSY_SCENARIOS)), Arc::new(Semaphore::new(MAX_LONG_SCENARIOS)));
    let mut running: FuturesUnordered<_> = start_order
        .into_iter()
        .map(|index| {
            let scenario = selected[index];
            let permits = if scenario.seconds > LONG_SCENARIO_SECONDS { waiting.clone() } else { busy.clone() };
            async move {
                // The semaphores are never closed.
                let _permit = permits.acquire().await;
                (index, run_scenario(scenario, args).await)
            }
        })
        .collect();
    let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
    // The futures are lazy: no scenario starts before the first poll below.
    report::report_start(selected, args.output);
    while let Some((index, outcome)) = running.next().await {
        report::report_outcome(&outcome, args.output);
        outcomes.push((index, outcome));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn run_scenario(scenario: &'static Scenario, args: &LabArgs) -> Outcome {
    // Upper bound of the duration: a scenario that is still running then has failed.
    let max_duration = Duration::from_secs(50 + 2 * scenario.seconds);
    // A separate task, so that a panic ends only this scenario.
    match tokio::spawn(timeout(max_duration, scenario.run(ScenarioTarget::over_tcp(args.seed).with_form(args.form))))
        .await
    {
        Ok(Ok(Ok(findings))) => Outcome::completed(scenario, &findings),
        Ok(Ok(Err(error))) => Outcome::failed(scenario, format!("it stopped with an error: {error}")),
        Ok(Err(_)) => Outcome::failed(scenario, format!("it did not finish within {} s", max_duration.as_secs())),
        Err(panic) => Outcome::failed(scenario, format!("it panicked: {panic}")),
    }
}
