//! `steadfast lab`: what went wrong elsewhere, done to this library over real sockets, and judged.
//!
//! | room | what it is |
//! |---|---|
//! | `scenario` | what a scenario is: a name, a story, a function |
//! | `scenarios` | the table of all of them, by the document that tells of them |
//! | `stage` | where one plays: a server, a connection, informers, a recorder |
//! | `onlooker` | sees nothing but an informer's freshness, and dates its changes |
//! | `checks` | what a scenario expects beside the contract |
//! | `outcome` | what came of a scenario |
//! | `report` | the outcomes, for people or for programs |

mod checks;
mod onlooker;
mod outcome;
mod report;
mod scenario;
mod scenarios;
mod stage;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::cli::{LabArgs, Output};
use crate::failure::{Failure, RUN};
use crate::signals::Stop;
use outcome::Outcome;
use scenario::Scenario;

/// How many play at once: most of them wait most of the time.
const AT_ONCE: usize = 4;
/// Longer than any takes; whichever is still at it has failed.
const LONGEST: Duration = Duration::from_secs(55);

/// Plays the scenarios, and tells whether all were passed.
pub(crate) async fn run(args: LabArgs) -> Result<ExitCode, Failure> {
    let chosen = scenario::choose(&args.names).map_err(Failure::usage)?;
    if args.list {
        report::explain(&chosen);
        return Ok(ExitCode::SUCCESS);
    }
    let mut stop = Stop::listen()?;
    let outcomes = tokio::select! {
        outcomes = play_all(&chosen, args.output) => outcomes,
        () = stop.told() => return Err(Failure::run("ended before all scenarios were")),
    };
    match args.output {
        Output::Text => report::table(&outcomes),
        Output::Json => report::json(&outcomes)?,
    }
    let passed = outcomes.iter().all(Outcome::passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(RUN) })
}

/// Plays `chosen`, the slow ones first, and tells each as it ends; the outcomes are in the order of `chosen`.
async fn play_all(chosen: &[&'static Scenario], output: Output) -> Vec<Outcome> {
    let mut order: Vec<usize> = (0..chosen.len()).collect();
    order.sort_by_key(|&index| !chosen[index].slow);
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut playing: FuturesUnordered<_> = order
        .into_iter()
        .map(|index| {
            let (scenario, places) = (chosen[index], places.clone());
            async move {
                // The places are never withdrawn.
                let _place = places.acquire().await;
                (index, play(scenario).await)
            }
        })
        .collect();
    let mut outcomes: Vec<(usize, Outcome)> = Vec::new();
    report::begin(chosen.len(), output);
    while let Some((index, outcome)) = playing.next().await {
        report::live(&outcome, output);
        outcomes.push((index, outcome));
    }
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn play(scenario: &'static Scenario) -> Outcome {
    // A task of its own, so that a panic ends this scenario alone.
    match tokio::spawn(timeout(LONGEST, (scenario.play)())).await {
        Ok(Ok(Ok(findings))) => Outcome::of(scenario, findings),
        Ok(Ok(Err(error))) => Outcome::failed(scenario, format!("it could not go on: {error}")),
        Ok(Err(_)) => Outcome::failed(scenario, format!("it was not over after {} s", LONGEST.as_secs())),
        Err(panic) => Outcome::failed(scenario, format!("it panicked: {panic}")),
    }
}
