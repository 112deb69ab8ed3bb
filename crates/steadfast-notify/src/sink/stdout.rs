//! Sink that writes one message per line to standard output, as JSON.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use super::message_sink::{DeliveryFuture, MessageSink};
use crate::delivery_outcome::DeliveryOutcome;
use crate::message::Message;

/// Sink that writes lines of JSON.
pub struct JsonLines {
    output: Arc<Mutex<dyn Write + Send>>,
    /// Callback for write errors, when the reader has closed the pipe.
    on_write_error: Arc<dyn Fn(io::Error) + Send + Sync>,
}

impl JsonLines {
    /// Creates the sink. Calls `on_write_error` after a failed write.
    pub fn new(
        output: impl Write + Send + 'static,
        on_write_error: impl Fn(io::Error) + Send + Sync + 'static,
    ) -> Self {
        Self { output: Arc::new(Mutex::new(output)), on_write_error: Arc::new(on_write_error) }
    }
}

impl MessageSink for JsonLines {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        let lines: String = messages.iter().map(|message| message.line() + "\n").collect();
        let output = self.output.clone();
        Box::pin(async move {
            // A stopped terminal blocks only this blocking thread.
            let written = tokio::task::spawn_blocking(move || {
                let mut output = output.lock();
                output.write_all(lines.as_bytes()).and_then(|()| output.flush())
            });
            match written.await {
                Ok(Ok(())) => DeliveryOutcome::Delivered,
                Ok(Err(error)) => {
                    let reason = format!("cannot write to standard output: {error}");
                    // A closed pipe never recovers; the program decides whether to exit.
                    (self.on_write_error)(error);
                    DeliveryOutcome::Retry { retry_after: None, reason }
                }
                Err(_) => {
                    DeliveryOutcome::Retry { retry_after: None, reason: "the writing thread panicked".to_owned() }
                }
            }
        })
    }
}
