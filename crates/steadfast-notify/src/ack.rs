//! Acknowledgement of a change after all resulting messages are settled.

/// Acknowledgement callback of a change. Dropping the value does not call the callback.
pub(crate) struct Ack(Box<dyn FnOnce() + Send>);

impl Ack {
    pub(crate) fn new(settled: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(settled))
    }

    /// Calls the callback after the message was delivered or became a dead letter.
    pub(crate) fn done(self) {
        (self.0)();
    }
}
