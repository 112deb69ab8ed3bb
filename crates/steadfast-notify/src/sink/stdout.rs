//! Standard output: one message a line, as JSON.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::stream::{Delivering, Stream};
use crate::message::Message;
use crate::outcome::Outcome;

/// Lines of JSON, one a message.
pub struct Lines {
    output: Arc<Mutex<dyn Write + Send>>,
    /// Told when nobody reads any more.
    closed: Arc<dyn Fn(io::Error) + Send + Sync>,
}

impl Lines {
    /// Writes to `output`; `closed` is told where that fails.
    pub fn new(output: impl Write + Send + 'static, closed: impl Fn(io::Error) + Send + Sync + 'static) -> Self {
        Self { output: Arc::new(Mutex::new(output)), closed: Arc::new(closed) }
    }
}

impl Stream for Lines {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> Delivering<'a> {
        let lines: String = messages.iter().map(|message| message.line() + "\n").collect();
        let output = self.output.clone();
        Box::pin(async move {
            // A terminal that is stopped holds up this thread, and no other.
            let written = tokio::task::spawn_blocking(move || {
                let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
                output.write_all(lines.as_bytes()).and_then(|()| output.flush())
            });
            match written.await {
                Ok(Ok(())) => Outcome::Delivered,
                Ok(Err(error)) => {
                    let why = format!("standard output cannot be written to: {error}");
                    (self.closed)(error);
                    Outcome::Retry { after: None, why }
                }
                Err(_) => Outcome::Retry { after: None, why: "the thread that writes has ended".to_owned() },
            }
        })
    }
}
