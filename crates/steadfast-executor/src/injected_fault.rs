//! Faults that tests inject to prove that the model checker finds them.
//!
//! Without the feature `shuttle`, [`Fault`] has no size and [`inject`] is the constant `false`.

/// Fault that a test can inject into an executor, a pool, or shared work.
#[cfg(feature = "shuttle")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedExecutorFault {
    /// Fault: the leading thread releases the lock before it marks itself as serving.
    LateServingFlag,
    /// Fault: a step starts without a wake-up of the sleeping standby thread.
    StandbyNotWoken,
    /// Fault: the standby thread takes over without checking again that the step still runs.
    TakeoverUnchecked,
    /// Fault: a thread that was replaced still counts as the leading thread.
    EpochNotAdvanced,
    /// Fault: the first thread may lead again, and is not notified.
    HandbackNotNotified,
    /// Fault: a thread that waits to lead again misses the shutdown.
    ShutdownMissesFirst,
    /// Fault: the leading thread inside the runtime misses the shutdown.
    ShutdownMissesLeader,
    /// Fault: a standby thread that is about to take over removes the step from the state after the shutdown.
    StandbyMissesShutdown,
    /// Fault: the standby thread leaves the shutdown to a thread in a step, which may never end.
    ShutdownWaitsForStep,
    /// Fault: the last reference to a task is dropped under the lock of the executor.
    TaskDroppedUnderLock,
    /// Fault: a wake-up during a step schedules no other step.
    WakeInStepLost,
    /// Fault: a wake-up during a step schedules another step immediately.
    WakeInStepQueued,
    /// Fault: the end of a step overwrites an abort during the step.
    AbortOverwritten,
    /// Fault: an abort drops the future of an idle task on the thread of the caller.
    AbortOnCaller,
    /// Fault: an idle thread ends at its timeout, although a job has woken it.
    IdleExitUnchecked,
    /// Fault: a thread with an affinity is offered to other jobs.
    ReservedThreadListed,
    /// Fault: a thread is woken for a job before the job is queued.
    JobQueuedLate,
    /// Fault: idle threads are not notified when the pool closes.
    CloseNotNotified,
    /// Fault: the number of busy helpers is read and increased in two operations.
    HelperLimitUnchecked,
    /// Fault: the caller waits for helpers without checking again that one is busy.
    WaitUnchecked,
    /// Fault: a result is stored in the first free position.
    ResultInWrongPosition,
    /// Fault: a helper delivers its results without a notification.
    ResultNotNotified,
}

#[cfg(feature = "shuttle")]
impl InjectedExecutorFault {
    /// All faults.
    pub const ALL: [Self; 22] = [
        Self::LateServingFlag,
        Self::StandbyNotWoken,
        Self::TakeoverUnchecked,
        Self::EpochNotAdvanced,
        Self::HandbackNotNotified,
        Self::ShutdownMissesFirst,
        Self::ShutdownMissesLeader,
        Self::StandbyMissesShutdown,
        Self::ShutdownWaitsForStep,
        Self::TaskDroppedUnderLock,
        Self::WakeInStepLost,
        Self::WakeInStepQueued,
        Self::AbortOverwritten,
        Self::AbortOnCaller,
        Self::IdleExitUnchecked,
        Self::ReservedThreadListed,
        Self::JobQueuedLate,
        Self::CloseNotNotified,
        Self::HelperLimitUnchecked,
        Self::WaitUnchecked,
        Self::ResultInWrongPosition,
        Self::ResultNotNotified,
    ];
}

/// Injected fault of one executor, pool, or shared work. None by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fault {
    #[cfg(feature = "shuttle")]
    pub(crate) injected: Option<InjectedExecutorFault>,
}

/// Returns true if a test injected the named fault into the given [`Fault`].
#[cfg(feature = "shuttle")]
macro_rules! inject {
    ($fault:expr, $name:ident) => {
        $fault.injected == Some($crate::injected_fault::InjectedExecutorFault::$name)
    };
}

/// Returns false. The first argument is not evaluated.
#[cfg(not(feature = "shuttle"))]
macro_rules! inject {
    ($fault:expr, $name:ident) => {{
        let _ = || $fault;
        false
    }};
}

pub(crate) use inject;
