//! The faults of the catalog for each library with its default settings, over TCP and TLS, in real time.

mod observer;
mod recording_writer;
mod scenarios;
mod setup;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::client_variant::{Library, Programs};
use super::machine::RunEnvironment;
use super::request::RunArgs;
use super::results::{FaultResult, FaultResults, Results};
use super::workspace::Workspace;
use crate::BenchError;
use scenarios::{SCENARIOS, Scenario};
use setup::Setup;

/// Runs every scenario for every library. Several scenarios run at a time, because they mostly wait.
pub(super) async fn run(args: &RunArgs, workspace: &Workspace, results: &mut Results) -> Result<(), BenchError> {
    let started = Instant::now();
    let is_selected = |scenario: &&Scenario| {
        args.faults.is_empty() || args.faults.iter().any(|fault| fault.eq_ignore_ascii_case(scenario.fault))
    };
    let selected: Vec<&Scenario> = SCENARIOS.iter().filter(is_selected).collect();
    if selected.is_empty() {
        return Err("no scenario for these faults; use the numbers of docs/faults.md, such as F4".into());
    }
    let permits = Arc::new(Semaphore::new(args.at_once.max(1)));
    let mut running = JoinSet::new();
    for (order, scenario) in selected.iter().copied().enumerate() {
        for library in Library::COMPARED {
            let (permits, programs, out) = (permits.clone(), workspace.programs.clone(), workspace.out.clone());
            running.spawn(async move {
                // Long scenarios run concurrently with the others, because they use few resources while they wait.
                let _permit = if scenario.is_long { None } else { permits.acquire_owned().await.ok() };
                (order, run_scenario(scenario, library, programs, out).await)
            });
        }
    }
    workspace.say(&format!("{} faults for {} libraries", selected.len(), Library::COMPARED.len()));
    let (total, mut fault_results) = (running.len(), Vec::new());
    while let Some(result) = running.join_next().await {
        let (order, fault_result) = result?;
        fault_results.push((order, fault_result));
        let fault_result = &fault_results[fault_results.len() - 1].1;
        workspace.say(&format!("{} of {total}: {fault_result}", fault_results.len()));
        fault_results.sort_by_key(|(order, fault_result)| (*order, fault_result.library as u8));
        let fault_results = fault_results.iter().map(|(_, fault_result)| fault_result.clone()).collect();
        // Partial results are kept if the run is interrupted. The old results are replaced as a whole: results of
        // another machine or version must not mix with these.
        results.faults = Some(FaultResults {
            environment: RunEnvironment::now(),
            run_seconds: started.elapsed().as_secs(),
            results: fault_results,
        });
        results.write(&workspace.out)?;
    }
    Ok(())
}

async fn run_scenario(scenario: &'static Scenario, library: Library, programs: Programs, out: PathBuf) -> FaultResult {
    let mut fault_result = FaultResult::new(scenario.fault, scenario.title, library);
    let result = async {
        // Two scenarios can have the same number, so the file name needs another part. Concurrent runs must not share
        // a file.
        let name = format!("{}-{}-{}", scenario.fault, library as u8, scenario.title.len());
        let kubeconfig = out.join(format!("kubeconfig-{name}"));
        let mut setup = Setup::start(scenario.server, library, programs.path_for(library)?, &kubeconfig).await?;
        (scenario.run)(&mut setup).await?;
        setup.evaluate(&mut fault_result, scenario.recovery_timeout).await
    };
    if let Err(error) = result.await {
        fault_result.error = Some(error.to_string());
    }
    fault_result
}
