//! What is to be done with a key after a call.

use std::sync::Arc;
use std::time::Duration;

/// What a reconciler wants done next with its key, as `kube_runtime::controller::Action` says it.
///
/// Whatever it is, a change of the object, or of one that leads to it, has it called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(Next);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Await,
    After(Duration),
    Retry,
}

impl Action {
    /// Calls again after `delay` at the latest.
    ///
    /// One that wants that at once, again and again, is called at longer and longer intervals, up to a second.
    #[must_use]
    pub const fn requeue(delay: Duration) -> Self {
        Self(Next::After(delay))
    }

    /// Calls again when something changes, and not before.
    #[must_use]
    pub const fn await_change() -> Self {
        Self(Next::Await)
    }

    /// Calls again as after an error: after a wait that doubles with each time in a row, by the queue's
    /// [`RetrySettings`](crate::RetrySettings).
    #[must_use]
    pub const fn retry() -> Self {
        Self(Next::Retry)
    }

    pub(super) fn next(self) -> Next {
        self.0
    }
}

/// The policy for errors that does what client-go does: tries again, after a wait that doubles with each failure of the key.
///
/// To be handed to [`Controller::run`](crate::Controller::run) where an error needs nothing else.
pub fn back_off<K, E, C>(_: K, _: &E, _: Arc<C>) -> Action {
    Action::retry()
}
