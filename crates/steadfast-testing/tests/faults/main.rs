//! The menu of faults in virtual time, with the library's defaults: each is noticed and over within its bounds, at no
//! more than its cost, and the checker finds nothing. `steadfast lab all` plays the same in real time.

mod broken;
mod each;
mod table;

use steadfast_testing::menu::{Findings, Ground, Scenario, Trouble};

/// Plays `scenario` in a time of its own.
fn play(scenario: &Scenario, ground: Ground) -> Result<Findings, Trouble> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(scenario.play(ground))
}
