//! Sink that writes one message per line to standard output, as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use super::message_sink::{DeliveryFuture, MessageSink};
use crate::delivery_outcome::DeliveryOutcome;
use crate::engine_event::is_unsafe;
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
        let lines: String = messages.iter().map(|message| terminal_safe(message.line()) + "\n").collect();
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

/// Escapes the characters of a JSON text that a terminal interprets. JSON has such characters only in strings, so the
/// value stays equal.
fn terminal_safe(line: String) -> String {
    if !line.contains(is_unsafe) {
        return line;
    }
    let mut safe = String::with_capacity(line.len());
    for character in line.chars() {
        if is_unsafe(character) {
            // Writing to a `String` cannot fail. No such character is beyond U+FFFF.
            let _ = write!(safe, "\\u{:04x}", u32::from(character));
        } else {
            safe.push(character);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn terminal_characters_of_tenants_are_escaped() {
        let value = json!({"data": "x\u{e9}\u{9b}31m\u{202e}\u{2028}\u{7f}\n", "name": "a"});
        let safe = terminal_safe(value.to_string());
        assert!(!safe.contains(is_unsafe) && safe.contains("x\u{e9}\\u009b31m\\u202e"), "{safe}");
        assert_eq!(serde_json::from_str::<Value>(&safe).expect("JSON"), value);
    }
}
