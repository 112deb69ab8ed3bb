//! The streams of a plan, made of what the configuration says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use steadfast::Connection;

use super::exec::Exec;
use super::stream::Stream;
use super::webhook::Webhook;
use crate::config::secret::SecretFrom;
use crate::config::sinks::{self, Mode};
use crate::engine::Streams;
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::Secret;

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
            let opened: Result<Arc<dyn Stream>, Problem> = match (&sink.exec, &sink.webhook) {
                (Some(exec), _) => self.exec(name, exec).map(|exec| Arc::new(exec) as _),
                (None, Some(webhook)) => self.webhook(name, webhook).await.map(|webhook| Arc::new(webhook) as _),
                (None, None) => Ok(stdout.clone()),
            };
            match opened {
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
        let mut headers = HeaderMap::new();
        let wrong = |path: &str, what: String| self.problem_with_sink(path, what, "correct it");
        let put = |headers: &mut HeaderMap, path: &str, name: &str, value: &[u8], is_secret: bool| {
            let read = (HeaderName::try_from(name), HeaderValue::from_bytes(value));
            let (Ok(name), Ok(mut value)) = read else {
                return Err(wrong(path, format!("{name} cannot have this value: a header is one line")));
            };
            value.set_sensitive(is_secret);
            headers.insert(name, value);
            Ok(())
        };
        for (header, value) in &webhook.headers {
            put(&mut headers, &format!("{name}.webhook.headers.{header}"), header, value.as_bytes(), false)?;
        }
        for (header, from) in &webhook.secret_headers {
            let path = format!("{name}.webhook.secret_headers.{header}");
            put(&mut headers, &path, header, self.secret(&path, from)?.bytes(), true)?;
        }
        let key = match &webhook.hmac {
            Some(from) => Some(self.secret(&format!("{name}.webhook.hmac"), from)?),
            None => None,
        };
        let path = format!("{name}.webhook");
        let (server, rest) = split(&webhook.url).ok_or_else(|| wrong(&path, "its url is none".to_owned()))?;
        let config = configuration(webhook, &server, &self.folder).await.map_err(|why| wrong(&path, why))?;
        let connection =
            Connection::builder(config).user_agent(concat!("steadfast-notify/", env!("CARGO_PKG_VERSION")));
        let connection = connection.build().map_err(|error| wrong(&path, error.to_string()))?;
        let is_batched = webhook.mode == Mode::Batched;
        Ok(Webhook::new(&connection, rest, headers, key.as_ref(), is_batched, webhook.timeout.0))
    }
}

/// A URL's server, and what is behind it.
fn split(url: &str) -> Option<(String, String)> {
    let url: http::Uri = url.parse().ok()?;
    let path = url.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Some((format!("{}://{}", url.scheme_str()?, url.authority()?), path.to_owned()))
}

/// A webhook's server in the words in which connections are configured: its authorities, our certificate, the proxy.
async fn configuration(webhook: &sinks::Webhook, server: &str, folder: &Path) -> Result<Config, String> {
    let file = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| folder.join(path));
    let (mut cluster, mut user) = (json!({"server": server}), json!({}));
    if let Some(path) = file(&webhook.ca_file) {
        cluster["certificate-authority"] = path.to_string_lossy().into();
    }
    if let Some(proxy) = &webhook.proxy {
        cluster["proxy-url"] = proxy.clone().into();
    }
    for (field, path) in [("client-certificate", &webhook.certificate_file), ("client-key", &webhook.key_file)] {
        if let Some(path) = file(path) {
            user[field] = path.to_string_lossy().into();
        }
    }
    let kubeconfig = json!({
        "current-context": "webhook",
        "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "webhook"}}],
        "clusters": [{"name": "webhook", "cluster": cluster}],
        "users": [{"name": "webhook", "user": user}],
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).map_err(|error| error.to_string())?;
    let read = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = read.map_err(|error| steadfast::connection::ConnectError::from(error).to_string())?;
    // The outbox waits and tries again, and knows for how long.
    config.default_retry = false;
    Ok(config)
}
