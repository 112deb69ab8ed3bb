//! Acknowledgement of a change, called when everything that the change caused is settled.

/// Acknowledgement of a change. Nothing is called if it is dropped.
pub(crate) struct Ack(Box<dyn FnOnce() + Send>);

impl Ack {
    pub(crate) fn new(settled: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(settled))
    }

    /// The message is delivered, or is a dead letter.
    pub(crate) fn done(self) {
        (self.0)();
    }
}
