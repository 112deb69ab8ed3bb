//! Construction of the streams of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exec::{Exec, read_variable};
use super::message_sink::MessageSink;
use super::unopened::UnopenedSink;
use super::webhook::Webhook;
use crate::config::sinks;
use crate::engine::MessageSinks;
use crate::engine_event::{EngineEvent, EventCallback};
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::{NOT_READ_IN_TIME, ReadingLock, read_in_time};

impl Plan {
    /// Opens the streams of all sinks except mirrors. `stdout` is used for sinks of standard output. Reads secrets and
    /// certificates, but does not connect.
    ///
    /// # Errors
    ///
    /// Returns the errors of all sinks, such as missing secrets or invalid certificates.
    pub async fn open(&self, stdout: &Arc<dyn MessageSink>) -> Result<MessageSinks, Problems> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut streams = MessageSinks::new();
        for (name, sink) in self.sinks.iter().filter(|(_, sink)| !sink.is_mirror()) {
            match self.open_stream(name, sink, stdout, &ReadingLock::default()).await {
                Ok(stream) => drop(streams.insert(name.clone(), stream)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(streams);
        }
        problems.sort_by_key(|problem| problem.position);
        Err(Problems(problems))
    }

    /// Opens the streams of all sinks. A sink with unreadable secrets or certificates is reported to `report`, and
    /// opened at the next delivery.
    pub async fn open_or_retry(
        self: &Arc<Self>,
        stdout: &Arc<dyn MessageSink>,
        report: &Arc<EventCallback>,
    ) -> MessageSinks {
        let mut streams = MessageSinks::new();
        for (name, sink) in self.sinks.iter().filter(|(_, sink)| !sink.is_mirror()) {
            let reading = ReadingLock::default();
            let stream = match self.open_stream(name, sink, stdout, &reading).await {
                Ok(stream) => stream,
                Err(problem) => {
                    report(EngineEvent::SinkNotOpened { sink: name.clone(), reason: problem.to_string() });
                    Arc::new(UnopenedSink::new(self.clone(), name, reading, report.clone()))
                }
            };
            streams.insert(name.clone(), stream);
        }
        streams
    }

    /// Opens the stream of one sink. `reading` is held during each read of the secrets.
    pub(super) async fn open_stream(
        &self,
        name: &str,
        sink: &sinks::SinkConfig,
        stdout: &Arc<dyn MessageSink>,
        reading: &ReadingLock,
    ) -> Result<Arc<dyn MessageSink>, Problem> {
        match (&sink.exec, &sink.webhook) {
            (Some(exec), _) => self.exec(name, exec, reading).await.map(|exec| Arc::new(exec) as _),
            (None, Some(webhook)) => self.webhook(name, webhook, reading).await.map(|webhook| Arc::new(webhook) as _),
            (None, None) => Ok(stdout.clone()),
        }
    }

    async fn exec(&self, name: &str, exec: &sinks::ExecConfig, reading: &ReadingLock) -> Result<Exec, Problem> {
        let (secret_env, folder) = (exec.secret_env.clone(), self.folder.clone());
        let read = move || {
            let secrets = secret_env.into_iter().map(|(variable, from)| {
                let secret = read_variable(&from, &folder);
                (variable, secret)
            });
            secrets.collect::<Vec<_>>()
        };
        let read = read_in_time(reading, read).await;
        let (reason, remedy) = NOT_READ_IN_TIME;
        let read = read.ok_or_else(|| self.problem_with_sink(&format!("{name}.exec"), reason, remedy))?;
        let mut secrets = BTreeMap::new();
        for (variable, secret) in read {
            let secret = secret.map_err(|(reason, remedy)| {
                self.problem_with_sink(&format!("{name}.exec.secret_env.{variable}"), reason, remedy)
            })?;
            secrets.insert(variable, secret);
        }
        Ok(Exec::new(exec, self.folder.clone(), secrets, reading.clone()))
    }

    async fn webhook(
        &self,
        name: &str,
        webhook: &sinks::WebhookConfig,
        reading: &ReadingLock,
    ) -> Result<Webhook, Problem> {
        Webhook::open(webhook, self.folder.clone(), reading.clone()).await.map_err(|error| {
            let path = format!("{name}.webhook");
            let path = if error.field.is_empty() { path } else { format!("{path}.{}", error.field) };
            self.problem_with_sink(&path, error.description, error.remedy)
        })
    }
}
