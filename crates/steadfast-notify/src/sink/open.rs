//! Construction of the streams of a plan.

use std::sync::Arc;

use super::exec::Exec;
use super::message_sink::MessageSink;
use super::unopened::UnopenedSink;
use super::webhook::Webhook;
use crate::config::secret::SecretFrom;
use crate::config::sinks;
use crate::engine::MessageSinks;
use crate::engine_event::{EngineEvent, EventCallback};
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::Secret;

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
            match self.open_stream(name, sink, stdout).await {
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
            let stream = match self.open_stream(name, sink, stdout).await {
                Ok(stream) => stream,
                Err(problem) => {
                    report(EngineEvent::SinkNotOpened { sink: name.clone(), reason: problem.to_string() });
                    Arc::new(UnopenedSink::new(self.clone(), name, report.clone()))
                }
            };
            streams.insert(name.clone(), stream);
        }
        streams
    }

    /// Opens the stream of one sink.
    pub(super) async fn open_stream(
        &self,
        name: &str,
        sink: &sinks::SinkConfig,
        stdout: &Arc<dyn MessageSink>,
    ) -> Result<Arc<dyn MessageSink>, Problem> {
        match (&sink.exec, &sink.webhook) {
            (Some(exec), _) => self.exec(name, exec).map(|exec| Arc::new(exec) as _),
            (None, Some(webhook)) => self.webhook(name, webhook).await.map(|webhook| Arc::new(webhook) as _),
            (None, None) => Ok(stdout.clone()),
        }
    }

    fn read_secret(&self, path: &str, from: &SecretFrom) -> Result<Secret, Problem> {
        let remedy = "store the secret there, or correct the reference";
        Secret::read(from, &self.folder).map_err(|reason| self.problem_with_sink(path, reason, remedy))
    }

    fn exec(&self, name: &str, exec: &sinks::ExecConfig) -> Result<Exec, Problem> {
        for (variable, from) in &exec.secret_env {
            let path = format!("{name}.exec.secret_env.{variable}");
            let secret = self.read_secret(&path, from)?;
            if secret.text().is_none_or(|text| text.contains('\0')) {
                let description = format!("{from:?} is not text");
                return Err(self.problem_with_sink(&path, description, "environment variables need text without NUL"));
            }
        }
        Ok(Exec::new(exec, self.folder.clone()))
    }

    async fn webhook(&self, name: &str, webhook: &sinks::WebhookConfig) -> Result<Webhook, Problem> {
        Webhook::open(webhook, self.folder.clone()).await.map_err(|error| {
            let path = format!("{name}.webhook");
            let path = if error.field.is_empty() { path } else { format!("{path}.{}", error.field) };
            self.problem_with_sink(&path, error.description, error.remedy)
        })
    }
}
