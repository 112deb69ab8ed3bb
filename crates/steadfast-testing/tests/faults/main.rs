//! The catalog of faults in virtual time, with the library's defaults. Each fault must be noticed and repaired within
//! its bounds and its cost, without a violation of the contract. `steadfast lab all` runs the same scenarios in real
//! time.

mod broken_cases;
mod each;
mod random_histories;
mod table;

use steadfast_testing::TestkitError;
use steadfast_testing::scenarios::{Scenario, ScenarioFindings, ScenarioTarget};

/// Runs `scenario` in its own virtual time.
fn run_scenario(scenario: &Scenario, target: ScenarioTarget) -> Result<ScenarioFindings, TestkitError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(scenario.run(target))
}
