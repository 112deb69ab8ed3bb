//! Acknowledgement of a change after all resulting messages are settled.

/// Acknowledgement callback of a change. Dropping the value does not call the callback.
pub(crate) struct Ack(Box<dyn FnOnce() + Send>);

impl Ack {
    pub(crate) fn new(on_settled: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(on_settled))
    }

    /// Calls the callback: the message was delivered or became a dead letter.
    pub(crate) fn settle(self) {
        (self.0)();
    }
}
