//! Threads of Steadfast's informers, as an internal part of the crate `steadfast`.
//!
//! - [`IoExecutor`]: one thread drives the sockets and runs the informers. A standby thread takes over all other work from
//!   a thread that an informer blocks.
//! - [`BlockingPool`]: threads on demand for handlers and for informers that block repeatedly.
//! - [`HelperPool`] and [`SharedWork`]: helper threads, and the decoding that an informer shares with them.
//!
//! The rest of this page states the invariants. `tests/interleavings` checks them under the model checker `shuttle`, which
//! schedules the threads of this crate's own code (feature `shuttle`). Each injected fault (`InjectedExecutorFault`)
//! violates an invariant, and a scenario must detect the violation.
//!
//! # Locks and atomics
//!
//! | lock or atomic | protects | held during |
//! |---|---|---|
//! | `Inner::state` of an executor | the leading thread (`leader_epoch`), the step in progress (`current_task`), `serving`, `ready`, `closed`, and the ownership of the reactor | a few assignments; never user code, also not the `Drop` of a task |
//! | `UserTask::step` | the state of one task: idle, ready, stepping, stepping and woken, aborted, finished | a few assignments |
//! | `UserTask::future` | the future of one task | one step; no other thread waits for it, because only the thread that changed the task to *stepping* polls |
//! | `Shared::state` of a pool | jobs, threads, and idle threads | a few assignments, and the start of a thread; never a job |
//! | `HelperPool::busy` (atomic) | the number of busy helpers | |
//! | `WorkQueue::state` of shared work | queued items, delivered results, and the number of busy helpers | a few assignments; never the processing of an item |
//!
//! No thread waits for a lock while it holds another one, except in one direction: a step holds its future's lock while it
//! takes other locks. `HelperPool::busy` is the only atomic. Its operations are `Relaxed`, because it orders no other
//! memory: the lock of the pool passes the work to the thread. All other state is protected by locks, so no other memory
//! ordering needs a proof. A flag such as `serving` or `standby_is_asleep` is read and written under the lock of
//! the data that it announces.
//!
//! # Threads
//!
//! - At most one thread leads. It is the thread whose epoch equals `leader_epoch`. Only the leading thread enters the
//!   reactor, starts steps from `ready`, and changes `current_task` from `None`.
//! - A step runs outside of the reactor. While `current_task` is set, no thread is inside the reactor, and none can enter,
//!   because the leading thread is in the step. A standby thread may then advance the epoch, take `current_task`, and lead.
//!   It checks under the lock that the step still runs. A replaced thread finds another epoch after its step, and neither
//!   enters the reactor nor starts a step.
//! - Exactly one standby thread exists. A standby thread that takes over starts its successor first. If no thread can be
//!   started, it does not take over.
//! - The first thread, after it was replaced, requests the lead (`WantsToLead`). The leading thread hands the lead over
//!   before its next step, and ends.
//! - Any thread may wake, abort or spawn tasks. None of these calls polls or drops a future on the thread of the caller,
//!   except after the shutdown. A task that nothing can wake any more is dropped with its last reference, on the thread of
//!   that reference.
//! - A pool's thread runs one job at a time. A thread with an affinity runs only jobs of that affinity, until it has been
//!   idle for 10 s, or a job could get no other thread.
//!
//! # No wake-up is lost
//!
//! - *Task.* A wake-up of an idle task queues it. A wake-up in a step is recorded (`SteppingAgain`), and the end of the
//!   step queues the task. A finished task needs no step. All other states already imply a later step. The state
//!   changes under one lock, so each wake-up falls into one of these cases. No wake-up overwrites an abort. The end of
//!   a step overwrites an abort only if the task has finished.
//! - *Leading thread.* It checks `ready` and sets `serving` in one critical section, and then enters the reactor. A thread
//!   that queues a task reads `serving` in the critical section of its push. It either pushed before the check, or sees
//!   `serving` and interrupts the reactor. The reactor stores an interrupt that arrives before the thread sleeps.
//! - *Standby thread.* It sleeps without a timeout only after it has set `standby_is_asleep`, and the next step clears the
//!   flag and wakes it. In all other cases it checks again after 20 ms.
//! - *Pool.* A job is queued before a thread is woken, and in one critical section. Exactly one idle thread is removed from
//!   the list of idle threads for each job. A thread whose wait has timed out checks under the lock that it is still in
//!   that list before it ends.
//! - *Shared work.* `busy_helpers` decreases in the critical section that delivers the results. The submitting thread waits only
//!   while a helper is busy and no result is delivered, so a helper that notifies always exists.
//!
//! # A task is never polled by two threads
//!
//! A step requires the change of the task's state from *ready* to *stepping*, or the state *aborted*. A task is queued only
//! by the change from *idle* to *ready* or *aborted*, or at the end of a step that found a wake-up or an abort. It is
//! therefore in at most one queue, and in none during its step.
//!
//! # A blocked step never stops the sockets
//!
//! The standby thread notices a step that lasts from one of its checks to the next, which are 20 ms apart. It then drives
//! the sockets and runs the other tasks. Such a step therefore delays the other tasks for at most 40 ms. A task with four
//! blocking steps in close succession moves to a thread of its own. It returns once all of its steps within a second took
//! less than 20 ms.
//!
//! # Shared work
//!
//! An item reserves its position at its submission. A result is stored at the position of its item, whichever thread
//! produced it, and results are returned in the order of the positions. Each item is taken from exactly one queue by one
//! thread, and is processed at most once. Only a discarded item is not processed.
//!
//! # Shutdown
//!
//! Dropping the [`IoExecutor`] closes it. From then on no task is queued. The leading thread, or the standby thread if
//! a step is in progress, takes the reactor out of the state, drops the queued tasks without the lock, and shuts the
//! reactor down. This does not wait for a step, which may never end. All threads end. A thread that is in a step ends
//! after that step. [`BlockingPool::close`] ends the idle threads of a pool immediately. All others end after their
//! job.

mod blocking_pool;
mod contained;
mod helper_pool;
mod injected_fault;
mod io_executor;
mod reactor;
mod shared_work;
mod sync;
mod tokio_reactor;
mod user_task;

pub use blocking_pool::{BlockingPool, BlockingThreads, Job, ThreadAffinity};
pub use contained::drop_contained;
pub use helper_pool::{HelperPool, HelperThreads, HelperWork};
#[cfg(feature = "shuttle")]
pub use injected_fault::InjectedExecutorFault;
pub use io_executor::{IoExecutor, UserTaskHandle};
pub use reactor::{Reactor, ReactorHandle};
pub use shared_work::{CHUNK_BYTES, SharedWork, WorkLimits, Worker};
#[cfg(feature = "shuttle")]
pub use sync::{advance_clock, fail_thread_starts};
pub use tokio_reactor::{TokioHandle, TokioReactor};
