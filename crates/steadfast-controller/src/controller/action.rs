//! Action after a reconcile.

use std::sync::Arc;
use std::time::Duration;

/// Action that a reconcile returns for its key, like `kube_runtime::controller::Action`.
///
/// A change of the object, or of a source that maps to its key, always triggers another reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(NextReconcile);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextReconcile {
    Await,
    After(Duration),
    Retry,
}

impl Action {
    /// Reconciles again after `delay` at the latest.
    ///
    /// A delay of less than 100 ms counts as immediate. After 10 immediate requeues of a key in a row, each further one
    /// is delayed by up to 1 s.
    #[must_use]
    pub const fn requeue(delay: Duration) -> Self {
        Self(NextReconcile::After(delay))
    }

    /// Reconciles again only after a change.
    #[must_use]
    pub const fn await_change() -> Self {
        Self(NextReconcile::Await)
    }

    /// Reconciles again with backoff, as after an error. The delay doubles with each retry in a row, by the
    /// [`RetrySettings`](crate::RetrySettings) of the queue.
    #[must_use]
    pub const fn retry() -> Self {
        Self(NextReconcile::Retry)
    }

    pub(super) fn next(self) -> NextReconcile {
        self.0
    }
}

/// Error policy of client-go: retries with a backoff that doubles with each failure of the key.
///
/// Pass this function to [`Controller::run`](crate::Controller::run) if errors need no other handling.
pub fn back_off<K, E, C>(_: K, _: &E, _: Arc<C>) -> Action {
    Action::retry()
}
