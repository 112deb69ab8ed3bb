//! Stream that could not be opened, and is opened by the next delivery attempt.

use std::sync::Arc;

use tokio::sync::OnceCell;

use super::message_sink::{DeliveryFuture, MessageSink};
use crate::delivery_outcome::DeliveryOutcome;
use crate::engine_event::{EngineEvent, EventCallback};
use crate::message::Message;
use crate::plan::Plan;
use crate::secret::ReadingLock;

/// Stream of a plan, opened on delivery. Until then all attempts fail and are retried.
pub(super) struct UnopenedSink {
    plan: Arc<Plan>,
    name: String,
    /// Held during a read of the secrets.
    reading: ReadingLock,
    opened: OnceCell<Arc<dyn MessageSink>>,
    report: Arc<EventCallback>,
}

impl UnopenedSink {
    pub(super) fn new(plan: Arc<Plan>, name: &str, reading: ReadingLock, report: Arc<EventCallback>) -> Self {
        Self { plan, name: name.to_owned(), reading, opened: OnceCell::new(), report }
    }

    async fn open(&self) -> Result<&Arc<dyn MessageSink>, String> {
        let open = || async {
            let sink = self.plan.sinks.get(&self.name).ok_or("the configuration does not have this sink")?;
            // Standard output needs no opening, so this stream is never used.
            let unused_stdout: Arc<dyn MessageSink> = Arc::new(UnusedSink);
            let opened = self.plan.open_stream(&self.name, sink, &unused_stdout, &self.reading).await;
            let stream = opened.map_err(|problem| problem.to_string())?;
            (self.report)(EngineEvent::SinkOpened { sink: self.name.clone() });
            Ok::<_, String>(stream)
        };
        self.opened.get_or_try_init(open).await
    }
}

impl MessageSink for UnopenedSink {
    fn deliver<'a>(&'a self, messages: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async move {
            match self.open().await {
                Ok(stream) => stream.deliver(messages).await,
                Err(reason) => DeliveryOutcome::Retry { retry_after: None, reason },
            }
        })
    }
}

/// Stream that rejects every message temporarily.
struct UnusedSink;

impl MessageSink for UnusedSink {
    fn deliver<'a>(&'a self, _: &'a [Arc<Message>]) -> DeliveryFuture<'a> {
        Box::pin(async { DeliveryOutcome::Retry { retry_after: None, reason: "the sink is not open".to_owned() } })
    }
}
