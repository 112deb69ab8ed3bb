//! Mirror: accepts the desired state and reports a status.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::entry::{DesiredState, Target, Value};
use crate::memory::Memory;
use crate::mirror_task::{MirrorInput, MirrorTask};
use crate::settings::Settings;
use crate::status::Status;

/// Running mirror. A drop stops the mirror at once; the next one continues with the missing steps.
#[derive(Debug)]
pub struct Mirror<V> {
    input: watch::Sender<MirrorInput<V>>,
    status: watch::Receiver<Status<V>>,
    task: JoinHandle<()>,
}

impl<V: Value> Mirror<V> {
    /// Starts a mirror that keeps `target` equal to the desired state. Nothing is changed before the first
    /// [`set_wanted`](Self::set_wanted), but leases are renewed. State that must survive a restart is kept in `memory` under
    /// `name`.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub fn start<T: Target<Value = V>>(name: &str, target: T, settings: Settings, memory: Memory) -> Self {
        let (input, received) = watch::channel(MirrorInput { wanted: None, is_stopped: false, compare_requests: 0 });
        let (status_sender, status) = watch::channel(Status::default());
        let work = MirrorTask::new(name, target, settings, memory, status_sender);
        let task = tokio::spawn(work.supervise(received));
        Self { input, status, task }
    }

    /// Sets the desired state.
    pub fn set_wanted(&self, wanted: DesiredState<V>) {
        self.input.send_if_modified(|input| {
            // Removals that need approval may be excused by now: their objects may have been deleted.
            let is_new = input.wanted.as_deref() != Some(&wanted) || !self.status.borrow().approvals.is_empty();
            input.wanted = Some(Arc::new(wanted));
            is_new
        });
    }

    /// Makes the mirror read its target now.
    pub fn compare_now(&self) {
        self.input.send_modify(|input| input.compare_requests += 1);
    }

    /// Returns a receiver of the status, updated by each read.
    pub fn status(&self) -> watch::Receiver<Status<V>> {
        self.status.clone()
    }

    /// Ends the mirror. It finishes the steps in flight, and starts no others.
    pub async fn stop(self) {
        self.input.send_modify(|input| input.is_stopped = true);
        // A task that panicked has been reported already.
        drop((self.task).await);
    }
}
