//! Mirror: accepts the desired state and reports a status.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::entry::{DesiredState, EntryValue, Target};
use crate::mirror_memory::MirrorMemory;
use crate::mirror_task::{MirrorTask, MirrorTaskInput};
use crate::settings::MirrorSettings;
use crate::status::MirrorStatus;

/// Running mirror. Dropping the handle stops the mirror immediately, and aborts the steps in flight. The next mirror of
/// this target continues with the missing steps.
#[derive(Debug)]
pub struct Mirror<V> {
    input: watch::Sender<MirrorTaskInput<V>>,
    status: watch::Receiver<MirrorStatus<V>>,
    /// One task, which a drop of the set aborts. A detached task could still apply steps next to its successor.
    task: JoinSet<()>,
}

impl<V: EntryValue> Mirror<V> {
    /// Starts a mirror that keeps `target` equal to the desired state. Before the first
    /// [`set_desired`](Self::set_desired), the mirror changes no entry. It renews only leases, the ownership record and
    /// the record of the term. State that must survive a restart is kept in `memory` under `name`.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start<T: Target<Value = V>>(name: &str, target: T, settings: MirrorSettings, memory: MirrorMemory) -> Self {
        let (input, input_receiver) =
            watch::channel(MirrorTaskInput { desired: None, is_stopped: false, compare_requests: 0 });
        let (status_sender, status) = watch::channel(MirrorStatus::default());
        let mirror_task = MirrorTask::new(name, target, settings, memory, status_sender);
        let mut task = JoinSet::new();
        task.spawn(mirror_task.supervise(input_receiver));
        Self { input, status, task }
    }

    /// Sets the desired state.
    pub fn set_desired(&self, desired: DesiredState<V>) {
        self.input.send_if_modified(|input| {
            // Removals that needed approval may no longer need it, because their objects may have been deleted.
            let is_new = input.desired.as_deref() != Some(&desired) || !self.status.borrow().approvals.is_empty();
            input.desired = Some(Arc::new(desired));
            is_new
        });
    }

    /// Makes the mirror read its target now.
    pub fn compare_now(&self) {
        self.input.send_modify(|input| input.compare_requests += 1);
    }

    /// Returns a receiver of the status, updated by each read.
    pub fn status(&self) -> watch::Receiver<MirrorStatus<V>> {
        self.status.clone()
    }

    /// Stops the mirror. The steps in flight finish, and no further step starts. Dropping the returned future before it
    /// completes aborts the steps in flight.
    pub async fn stop(mut self) {
        self.input.send_modify(|input| input.is_stopped = true);
        // A task that panicked has been reported already.
        drop(self.task.join_next().await);
    }
}
