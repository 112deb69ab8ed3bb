//! Tests of the executor under a scheduler that tries thread interleavings: random interleavings, and interleavings with
//! few thread switches (PCT, Burckhardt 2010). The scheduler reports a lost wake-up as a deadlock, and a wait without end
//! as too many steps.
//!
//! The locks, the threads and the clock of the crate are those of the model checker. A simulated reactor replaces tokio.

mod blocked_steps;
mod clock;
mod injected_faults;
mod pools;
mod shared_work;
mod simulated_reactor;
mod steps;
mod tasks;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use steadfast_executor::InjectedExecutorFault;

/// Number of random interleavings of a scenario.
const RANDOM: usize = 1000;
/// Number of interleavings of a scenario with few thread switches.
const FEW_SWITCHES: usize = 1000;
/// Number of thread switches in such an interleaving.
const SWITCHES: usize = 3;

/// Maximum number of steps of one interleaving. Those without a violation need a tenth of it.
const MAX_SCHEDULER_STEPS: usize = 100_000;

/// Scenario that panics if an invariant is violated, with an optional injected fault.
type Scenario = fn(Option<InjectedExecutorFault>);

fn config(persistence: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.failure_persistence = persistence;
    config.max_steps = MaxSteps::FailAfter(MAX_SCHEDULER_STEPS);
    config.stack_size = 256 * 1024;
    // After a violation, the destructors of other threads would only cause further ones.
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    // Silences the warning that statics end with each execution. The statics of this crate must end with it.
    config.silence_warnings = true;
    config
}

/// Runs a scenario without faults. Panics with the schedule if an invariant is violated.
fn check(scenario: Scenario) {
    let config = || config(FailurePersistence::Print);
    let random = Runner::new(RandomScheduler::new(RANDOM), config()).run(move || scenario(None));
    let few = Runner::new(PctScheduler::new(SWITCHES, FEW_SWITCHES), config()).run(move || scenario(None));
    assert_eq!((random, few), (RANDOM, FEW_SWITCHES), "all interleavings run");
}
