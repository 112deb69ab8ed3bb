//! Signal for changes.

use tokio::sync::watch;

/// Wakes all waiting tasks, which then re-check their conditions.
#[derive(Clone, Debug)]
pub(crate) struct Signal(watch::Sender<()>);

impl Signal {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    pub(crate) fn raise(&self) {
        self.0.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Waits until the condition holds. Checks it now and after every change.
    pub(crate) async fn until(&self, condition: impl Fn() -> bool) {
        // Subscribed before the check, so that no change in between is missed.
        let mut changes = self.subscribe();
        while !condition() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
