//! Log messages of the library, as records of Python's `logging`.
//!
//! The library logs on its own threads, which never call Python. Messages wait in a bounded queue for the thread of the
//! [bridge](crate::bridge).

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::finalization;

/// Maximum number of waiting messages. Further messages are dropped and counted.
const MAX_PENDING_MESSAGES: usize = 1024;

/// Name of the Python logger.
const LOGGER: &str = "steadfast_kube";

/// Minimum level, as a number of Python's `logging`. 255 disables all messages.
static MIN_LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);

static QUEUE: LazyLock<Queue> = LazyLock::new(Queue::default);

#[derive(Default)]
struct Queue {
    pending: Mutex<PendingMessages>,
    message_added: Notify,
}

#[derive(Default)]
struct PendingMessages {
    messages: VecDeque<Message>,
    dropped_count: usize,
}

struct Message {
    level: u8,
    target: &'static str,
    text: String,
}

/// Installs the subscriber once for the process, and reads the level of the Python logger.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    // A second call fails, because the subscriber is installed.
    let _ = tracing::subscriber::set_global_default(LogSubscriber);
    read_level(py)
}

/// Applies the current level of the Python logger.
fn read_level(py: Python<'_>) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    let level: u32 = logger.call_method0("getEffectiveLevel")?.extract()?;
    MIN_LEVEL.store(u8::try_from(level).unwrap_or(u8::MAX), Ordering::Relaxed);
    Ok(())
}

/// Passes messages to Python's `logging` until the runtime ends.
pub(crate) async fn forward() {
    loop {
        QUEUE.message_added.notified().await;
        let pending = std::mem::take(&mut *QUEUE.pending.lock());
        let result = finalization::try_attach(|py| {
            if let Err(error) = log_messages(py, pending) {
                error.write_unraisable(py, None);
            }
        });
        if result.is_none() {
            return;
        }
    }
}

fn log_messages(py: Python<'_>, pending: PendingMessages) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (LOGGER,))?;
    for Message { level, target, text } in pending.messages {
        let extra = PyDict::new(py);
        extra.set_item("target", target)?;
        let keyword_arguments = PyDict::new(py);
        keyword_arguments.set_item("extra", extra)?;
        logger.call_method("log", (level, "%s", text), Some(&keyword_arguments))?;
    }
    if pending.dropped_count > 0 {
        logger.call_method1(
            "warning",
            ("%s log messages were dropped: more than 1024 were waiting", pending.dropped_count),
        )?;
    }
    // The program may have changed the level since the last messages.
    read_level(py)
}

fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct LogSubscriber;

impl Subscriber for LogSubscriber {
    /// Requests a call of `enabled` for each message, because the level of the Python logger can change. By default, a
    /// message that is disabled at its first occurrence stays disabled.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && python_level(*metadata.level()) >= MIN_LEVEL.load(Ordering::Relaxed)
            && metadata.target().starts_with("steadfast")
    }

    // The library's messages carry all their fields, so spans are not recorded.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = MessageText::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let message = Message {
            level: python_level(*metadata.level()),
            target: metadata.target(),
            text: text.message + &text.fields,
        };
        let mut pending = QUEUE.pending.lock();
        if pending.messages.len() < MAX_PENDING_MESSAGES {
            pending.messages.push_back(message);
        } else {
            pending.dropped_count += 1;
        }
        drop(pending);
        QUEUE.message_added.notify_one();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Text of a message: the message itself, then its fields.
#[derive(Default)]
struct MessageText {
    message: String,
    fields: String,
}

impl Visit for MessageText {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
