//! Each injected fault violates an invariant, and its scenario must detect the violation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{FailurePersistence, Runner};
use steadfast_executor::InjectedExecutorFault;

use crate::{FEW_SWITCHES, RANDOM, SWITCHES, Scenario, blocked_steps, config, pools, shared_work, steps};

/// Maximum number of rounds for a fault. Each round runs both schedulers.
const ROUNDS: usize = 10;

/// Returns the scenario that must detect a fault.
fn scenario(fault: InjectedExecutorFault) -> Scenario {
    use InjectedExecutorFault as Fault;
    match fault {
        Fault::LateServingFlag | Fault::WakeInStepLost => steps::wake_ups,
        Fault::WakeInStepQueued => blocked_steps::woken_in_step,
        Fault::AbortOverwritten | Fault::AbortOnCaller => steps::aborts,
        Fault::TaskDroppedUnderLock => steps::last_reference,
        Fault::ShutdownMissesLeader => steps::shutdown,
        Fault::StandbyNotWoken | Fault::TakeoverUnchecked | Fault::EpochNotAdvanced => blocked_steps::relief,
        Fault::HandbackNotNotified => blocked_steps::handback,
        Fault::ShutdownMissesFirst => blocked_steps::shutdown_after_step,
        Fault::ShutdownWaitsForStep | Fault::StandbyMissesShutdown => blocked_steps::shutdown_in_step,
        Fault::IdleExitUnchecked | Fault::JobQueuedLate => pools::jobs,
        Fault::ReservedThreadListed => pools::reserved_thread,
        Fault::CloseNotNotified => pools::closing,
        Fault::HelperLimitUnchecked => pools::helper_limit,
        Fault::WaitUnchecked | Fault::ResultInWrongPosition | Fault::ResultNotNotified => shared_work::results,
    }
}

/// Returns whether the scheduler finds an interleaving in which the fault violates an invariant.
fn is_found(fault: InjectedExecutorFault, scheduler: impl Scheduler + 'static) -> bool {
    let scenario = scenario(fault);
    let runner = Runner::new(scheduler, config(FailurePersistence::None));
    catch_unwind(AssertUnwindSafe(|| runner.run(move || scenario(Some(fault))))).is_err()
}

#[test]
fn each_injected_fault_is_found() {
    let missed: Vec<_> = InjectedExecutorFault::ALL
        .into_iter()
        .filter(|fault| {
            !(0..ROUNDS).any(|_| {
                is_found(*fault, RandomScheduler::new(RANDOM))
                    || is_found(*fault, PctScheduler::new(SWITCHES, FEW_SWITCHES))
            })
        })
        .collect();
    assert!(missed.is_empty(), "no scenario finds {missed:?}");
}
