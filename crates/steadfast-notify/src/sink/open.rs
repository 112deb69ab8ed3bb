//! The streams of a plan, made of what the configuration says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use super::exec::Exec;
use super::stream::Stream;
use super::unopened::Unopened;
use super::webhook::Webhook;
use crate::config::secret::SecretFrom;
use crate::config::sinks::{self, Mode};
use crate::engine::Streams;
use crate::notice::{Notice, Tell};
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::Secret;
use crate::server::{Asked, Server};

impl Plan {
    /// The streams of all sinks that are none of mirrors, which write to `stdout` where that is meant. Secrets and certificates are read here;
    /// nothing is connected to yet.
    ///
    /// # Errors
    ///
    /// What of them cannot be had: a secret that is not there, a certificate that is none.
    pub async fn open(&self, stdout: &Arc<dyn Stream>) -> Result<Streams, Problems> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut streams = Streams::new();
        for (name, sink) in self.sinks.iter().filter(|(_, sink)| !sink.is_mirror()) {
            match self.stream(name, sink, stdout).await {
                Ok(stream) => drop(streams.insert(name.clone(), stream)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(streams);
        }
        problems.sort_by_key(|problem| problem.place);
        Err(Problems(problems))
    }

    /// Opens the streams of all sinks. One that cannot be opened, because a secret or a certificate cannot be read, is opened
    /// when a message is sent to it; `tell` is told which.
    pub async fn open_or_retry(self: &Arc<Self>, stdout: &Arc<dyn Stream>, tell: &Arc<Tell>) -> Streams {
        let mut streams = Streams::new();
        for (name, sink) in self.sinks.iter().filter(|(_, sink)| !sink.is_mirror()) {
            let stream = match self.stream(name, sink, stdout).await {
                Ok(stream) => stream,
                Err(problem) => {
                    tell(Notice::Unopened { sink: name.clone(), why: problem.to_string() });
                    Arc::new(Unopened::new(self.clone(), name, tell.clone()))
                }
            };
            streams.insert(name.clone(), stream);
        }
        streams
    }

    /// Opens the stream of one sink.
    pub(super) async fn stream(
        &self,
        name: &str,
        sink: &sinks::Sink,
        stdout: &Arc<dyn Stream>,
    ) -> Result<Arc<dyn Stream>, Problem> {
        match (&sink.exec, &sink.webhook) {
            (Some(exec), _) => self.exec(name, exec).map(|exec| Arc::new(exec) as _),
            (None, Some(webhook)) => self.webhook(name, webhook).await.map(|webhook| Arc::new(webhook) as _),
            (None, None) => Ok(stdout.clone()),
        }
    }

    fn secret(&self, path: &str, from: &SecretFrom) -> Result<Secret, Problem> {
        let remedy = "put the secret there, or say where else it is";
        Secret::read(from, &self.folder).map_err(|why| self.problem_with_sink(path, why, remedy))
    }

    fn exec(&self, name: &str, exec: &sinks::Exec) -> Result<Exec, Problem> {
        let mut env: BTreeMap<String, OsString> =
            exec.env.iter().map(|(name, value)| (name.clone(), value.into())).collect();
        for (variable, from) in &exec.secret_env {
            let path = format!("{name}.exec.secret_env.{variable}");
            let secret = self.secret(&path, from)?;
            let text = secret.text().filter(|text| !text.contains('\0')).ok_or_else(|| {
                self.problem_with_sink(&path, format!("{from:?} is no text"), "an environment has texts alone")
            })?;
            env.insert(variable.clone(), text.into());
        }
        Ok(Exec { command: exec.command.clone(), folder: self.folder.clone(), timeout: exec.timeout.0, env })
    }

    async fn webhook(&self, name: &str, webhook: &sinks::Webhook) -> Result<Webhook, Problem> {
        let path = format!("{name}.webhook");
        let asked = Asked {
            url: &webhook.url,
            headers: &webhook.headers,
            secret_headers: &webhook.secret_headers,
            ca_file: webhook.ca_file.as_deref(),
            certificate_file: webhook.certificate_file.as_deref(),
            key_file: webhook.key_file.as_deref(),
            proxy: webhook.proxy.as_deref(),
        };
        let server = asked.server(&self.folder).await.map_err(|wrong| {
            let path = if wrong.field.is_empty() { path.clone() } else { format!("{path}.{}", wrong.field) };
            self.problem_with_sink(&path, wrong.what, wrong.remedy)
        })?;
        let key = match &webhook.hmac {
            Some(from) => Some(self.secret(&format!("{path}.hmac"), from)?),
            None => None,
        };
        let Server { connection, headers, rest } = server;
        let is_batched = webhook.mode == Mode::Batched;
        Ok(Webhook::new(&connection, rest, headers, key.as_ref(), is_batched, webhook.timeout.0))
    }
}
