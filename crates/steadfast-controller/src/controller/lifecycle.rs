//! Lifecycle of a controller, from its start to its end.

use std::sync::Arc;

use tokio::sync::watch;

/// Phases of a controller, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// No reconcile has started.
    Starting,
    /// Reconciles run.
    Running,
    /// No further reconcile starts.
    Stopping,
    /// Running reconciles are cancelled.
    Cancelled,
}

/// Current phase of a controller, shared by its tasks. Each clone waits independently.
#[derive(Clone)]
pub(super) struct Lifecycle {
    phase: Arc<watch::Sender<Phase>>,
    receiver: watch::Receiver<Phase>,
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        let (reached, receiver) = watch::channel(Phase::Starting);
        Self { phase: Arc::new(reached), receiver }
    }

    /// Advances to `phase`. A call with an earlier phase has no effect.
    pub(super) fn advance_to(&self, phase: Phase) {
        self.phase.send_if_modified(|reached| {
            // Phases only advance. A late `Running` must not undo a stop.
            let is_later = phase > *reached;
            if is_later {
                *reached = phase;
            }
            is_later
        });
    }

    /// Returns true once reconciles may run, also after the stop.
    pub(super) fn has_started(&self) -> bool {
        *self.receiver.borrow() >= Phase::Running
    }

    /// Returns true once no further reconcile may start.
    pub(super) fn is_stopping(&self) -> bool {
        *self.receiver.borrow() >= Phase::Stopping
    }

    /// Waits until reconciles may run or the controller stops.
    pub(super) async fn started(&mut self) {
        self.wait_for(Phase::Running).await;
    }

    /// Waits until no further reconcile may start.
    pub(super) async fn stopping(&mut self) {
        self.wait_for(Phase::Stopping).await;
    }

    /// Waits until running reconciles are cancelled.
    pub(super) async fn cancelled(&mut self) {
        self.wait_for(Phase::Cancelled).await;
    }

    /// Runs `work` until its completion or the stop of the controller.
    pub(super) async fn until_stopping(mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.stopping() => {}
            () = work => {}
        }
    }

    async fn wait_for(&mut self, phase: Phase) {
        // `self` holds the sender, so the wait cannot fail.
        drop(self.receiver.wait_for(|reached| *reached >= phase).await);
    }
}
