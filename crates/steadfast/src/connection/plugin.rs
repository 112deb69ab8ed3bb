//! Credential plugins (`exec` in a kubeconfig): run once for all connections of the same user, and again when needed.
//!
//! `kube` runs the plugin once for the token and once more for the certificate. It waits without a limit, and leaves
//! the process running if the caller is dropped. So plugins run here, and `kube` never sees `exec`.

mod process;
mod redact;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::header::HeaderValue;
use k8s_openapi::jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use parking_lot::{Mutex, MutexGuard};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use tokio::sync::oneshot;

use self::process::{ExitKind, Run};
use super::header::bearer;
use super::single_flight::SingleFlight;
use super::{identity, tls};
use crate::environment::SharedEnvironment;

/// Default timeout of a plugin without a terminal, which waits for the network alone.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Minimum timeout of a plugin that may read from a terminal: a user may have to log in.
const INTERACTIVE_TIMEOUT: Duration = Duration::from_secs(300);

/// Time between the renewal of credentials and their expiry. Credentials that expire within four times this duration
/// are renewed in the last quarter of their remaining validity instead.
const RENEWAL_MARGIN: Duration = Duration::from_secs(60);

/// The environment variable through which a plugin receives its `ExecCredential`.
const EXEC_INFO: &str = "KUBERNETES_EXEC_INFO";

/// Maximum length of an install hint in an error, in characters.
const MAX_HINT_LENGTH: usize = 500;

/// All plugins of this process in use, by their configuration.
static PLUGINS_IN_USE: Mutex<BTreeMap<String, Weak<Plugin>>> = Mutex::new(BTreeMap::new());

/// A plugin in one configuration, and the credentials it returned last.
///
/// As in client-go, connections with equal configurations share one plugin. At most one process runs for all of them.
pub(super) struct Plugin {
    core: Arc<PluginCore>,
    attempts: SingleFlight<Result<(), String>>,
}

struct PluginCore {
    exec: ExecConfig,
    timeout: Duration,
    /// Held while the process runs.
    running: Mutex<()>,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    credentials: Option<Arc<PluginCredentials>>,
}

impl Latest {
    /// Returns the number of successful runs.
    fn generation(&self) -> u64 {
        self.credentials.as_ref().map_or(0, |credentials| credentials.generation)
    }
}

/// Credentials that a plugin returned.
pub(super) struct PluginCredentials {
    /// The value of `Authorization`.
    pub(super) token: Option<HeaderValue>,
    /// The client certificate.
    pub(super) certificate: Option<Arc<CertifiedKey>>,
    /// The number of the run that returned them.
    pub(super) generation: u64,
    renew_at: Option<Timestamp>,
}

impl PluginCredentials {
    fn are_current(&self) -> bool {
        // The plugin states a wall-clock time, so the wall clock decides. If the clock jumps, the plugin runs once too
        // often, or the server returns 401 and the plugin runs then.
        self.renew_at.is_none_or(|at| Timestamp::now() < at)
    }
}

impl Plugin {
    /// Returns the plugin that `exec` configures, shared by all connections of the same configuration. Runs nothing
    /// yet.
    pub(super) fn of(exec: &ExecConfig, timeout: Duration) -> Arc<Self> {
        // JSON, because its fields have a fixed order.
        let key = serde_json::json!([exec, exec.cluster, exec.drop_env, timeout.as_millis().to_string()]).to_string();
        let mut all = PLUGINS_IN_USE.lock();
        // Weak references: credentials are dropped with the last connection that uses them.
        all.retain(|_, plugin| plugin.strong_count() > 0);
        if let Some(plugin) = all.get(&key).and_then(Weak::upgrade) {
            return plugin;
        }
        let core =
            PluginCore { exec: exec.clone(), timeout, running: Mutex::new(()), latest: Mutex::new(Latest::default()) };
        let plugin = Arc::new(Self { core: Arc::new(core), attempts: SingleFlight::new() });
        all.insert(key, Arc::downgrade(&plugin));
        plugin
    }

    /// Returns the number of times that the plugin returned credentials.
    pub(super) fn generation(&self) -> u64 {
        self.core.latest().generation()
    }

    /// Returns the credentials of the last successful run, expired or not.
    pub(super) fn latest(&self) -> Option<Arc<PluginCredentials>> {
        self.core.latest().credentials.clone()
    }

    /// Returns the credentials if they are not due for renewal and are newer than the generation `rejected_generation`.
    pub(super) fn usable(&self, rejected_generation: Option<u64>) -> Option<Arc<PluginCredentials>> {
        self.core.usable(rejected_generation)
    }

    /// Returns usable credentials. Runs the plugin if no credentials are usable, and blocks in the meantime.
    pub(super) fn obtain(self: &Arc<Self>, rejected_generation: Option<u64>) -> Result<Arc<PluginCredentials>, String> {
        let weak = Arc::downgrade(self);
        self.core.obtain(rejected_generation, &move || weak.strong_count() == 0)
    }

    /// Returns usable credentials. Runs the plugin on a thread of `environment` if no credentials are usable.
    ///
    /// All callers wait for the same process. It continues without callers, until its deadline or until the last
    /// connection of this configuration is dropped.
    pub(super) async fn request(
        self: &Arc<Self>,
        environment: &SharedEnvironment,
        rejected_generation: Option<u64>,
    ) -> Result<Arc<PluginCredentials>, String> {
        if let Some(usable) = self.usable(rejected_generation) {
            return Ok(usable);
        }
        let attempt = || -> BoxFuture<'static, Result<(), String>> {
            let (core, weak) = (self.core.clone(), Arc::downgrade(self));
            let (done, obtained) = oneshot::channel();
            environment.run_blocking(Box::new(move || {
                let obtained = core.obtain(rejected_generation, &move || weak.strong_count() == 0);
                drop(done.send(obtained.map(drop)));
            }));
            Box::pin(async move { obtained.await.unwrap_or_else(|_| Err(ABANDONED.to_owned())) })
        };
        let outcome = self.attempts.join(environment, Duration::ZERO, attempt).await;
        outcome.unwrap_or_else(|| Err(ABANDONED.to_owned()))?;
        // Not `usable`: a token that the plugin returns as expired is still its current token, and must not cause
        // endless runs.
        self.latest().ok_or_else(|| ABANDONED.to_owned())
    }
}

/// Error of an attempt without an outcome, after its task was dropped.
const ABANDONED: &str = "the credential plugin was cancelled";

impl PluginCore {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock()
    }

    fn usable(&self, rejected_generation: Option<u64>) -> Option<Arc<PluginCredentials>> {
        let latest = self.latest();
        let newer = rejected_generation.is_none_or(|rejected_generation| latest.generation() > rejected_generation);
        latest.credentials.clone().filter(|credentials| newer && credentials.are_current())
    }

    fn obtain(
        &self,
        rejected_generation: Option<u64>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Arc<PluginCredentials>, String> {
        let _running = self.running.lock();
        // Another caller may have run the plugin while this caller waited for the lock.
        if let Some(usable) = self.usable(rejected_generation) {
            return Ok(usable);
        }
        let output = self.run(is_abandoned)?;
        let mut credentials = self.read(&output)?;
        let mut latest = self.latest();
        // The generation also grows for equal credentials: a plugin that returns a rejected token again must not run in
        // a loop.
        credentials.generation = latest.generation() + 1;
        let credentials = Arc::new(credentials);
        latest.credentials = Some(credentials.clone());
        Ok(credentials)
    }

    /// Returns the plugin's name for messages. Its arguments and environment may hold secrets and are not included.
    fn name(&self) -> String {
        format!("the credential plugin {:?}", self.exec.command.as_deref().unwrap_or_default())
    }

    /// Runs the plugin once; returns its standard output.
    fn run(&self, is_abandoned: &dyn Fn() -> bool) -> Result<Vec<u8>, String> {
        let name = self.name();
        let Some(command) = self.exec.command.as_deref().filter(|command| !command.is_empty()) else {
            return Err("the credential plugin (exec) of the kubeconfig has no command".to_owned());
        };
        let has_terminal = std::io::stdin().is_terminal();
        let interactive = match self.exec.interactive_mode {
            Some(ExecInteractiveMode::Never) => false,
            Some(ExecInteractiveMode::Always) if !has_terminal => {
                return Err(format!(
                    "{name} needs a terminal (interactiveMode: Always), and standard input is not a terminal"
                ));
            }
            _ => has_terminal,
        };
        let timeout = if interactive { self.timeout.max(INTERACTIVE_TIMEOUT) } else { self.timeout };
        let input = self.input(interactive).map_err(|detail| format!("{name} cannot be run: {detail}"))?;
        let env = self.exec.env.iter().flatten().filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
        let run = Run {
            command,
            arguments: self.exec.args.as_deref().unwrap_or_default(),
            variables: env.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            removed_variables: self.exec.drop_env.as_deref().unwrap_or_default(),
            input: (EXEC_INFO, &input),
            interactive,
            deadline: Instant::now() + timeout,
            is_abandoned,
        };
        let output = process::run(&run).map_err(|error| {
            let hint = self.hint();
            format!("{name} cannot be started: {error}{hint}")
        })?;
        let stderr_excerpt = || {
            let secrets: Vec<&str> = run.variables.iter().map(|(_, value)| *value).collect();
            match redact::excerpt(&output.stderr, &output.stdout, &secrets) {
                printed if printed.is_empty() => {
                    "the plugin printed nothing on standard error; run the plugin in a shell to see the reason"
                        .to_owned()
                }
                printed => format!("the plugin printed: {printed}"),
            }
        };
        match output.exit {
            ExitKind::Exited(status) if status.success() => Ok(output.stdout),
            ExitKind::Exited(status) => {
                // A shell reports a missing program this way.
                let hint = if status.code() == Some(127) { self.hint() } else { String::new() };
                Err(format!("{name} failed ({status}): {}{hint}", stderr_excerpt()))
            }
            ExitKind::TimedOut => Err(format!(
                "{name} returned nothing within {} s, and was killed: {}",
                timeout.as_secs_f64(),
                stderr_excerpt()
            )),
            ExitKind::Abandoned => Err(ABANDONED.to_owned()),
            ExitKind::OutputTooLong => {
                Err(format!("{name} printed more than {} KiB, and was killed", process::MAX_OUTPUT_BYTES >> 10))
            }
        }
    }

    /// Returns the kubeconfig's hint about how to install the plugin, without control characters.
    fn hint(&self) -> String {
        let hint = self.exec.install_hint.as_deref().unwrap_or_default();
        let hint: String = redact::printable(hint).chars().take(MAX_HINT_LENGTH).collect();
        if hint.is_empty() { String::new() } else { format!("; {hint}") }
    }

    fn input(&self, interactive: bool) -> Result<String, String> {
        let mut spec = serde_json::json!({ "interactive": interactive });
        if self.exec.provide_cluster_info {
            let cluster = self.exec.cluster.as_ref().ok_or("provideClusterInfo is true, and no cluster is known")?;
            spec["cluster"] = serde_json::to_value(cluster).map_err(|error| error.to_string())?;
        }
        let info = serde_json::json!({
            "apiVersion": self.exec.api_version, "kind": "ExecCredential", "spec": spec,
        });
        Ok(info.to_string())
    }

    /// Parses the plugin's output: JSON, or YAML, which client-go accepts as well.
    fn read(&self, output: &[u8]) -> Result<PluginCredentials, String> {
        #[derive(Deserialize)]
        struct ExecCredential {
            status: Option<Status>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            expiration_timestamp: Option<String>,
            token: Option<String>,
            client_certificate_data: Option<String>,
            client_key_data: Option<String>,
        }

        let name = self.name();
        // The parse error is dropped, since it would quote the token.
        let read = serde_json::from_slice::<ExecCredential>(output)
            .or_else(|_| serde_saphyr::from_slice::<ExecCredential>(output).map_err(drop));
        let read = read.map_err(|()| {
            format!("the output of {name} is not an ExecCredential; run the plugin in a shell to see its output")
        })?;
        let Some(status) = read.status else {
            return Err(format!(
                "{name} returned an ExecCredential without a status; run the plugin in a shell to see its output"
            ));
        };
        let present = |text: Option<String>| text.filter(|text| !text.is_empty());
        let token = present(status.token);
        let certificate = match (present(status.client_certificate_data), present(status.client_key_data)) {
            (Some(certificate), Some(key)) => {
                let read = identity::certified(certificate.as_bytes(), key.as_bytes(), &*tls::provider()?);
                Some(read.map_err(|detail| format!("{name} returned a certificate that cannot be used: {detail}"))?)
            }
            (None, None) => None,
            (Some(_), None) => return Err(format!("{name} returned a client certificate without its key")),
            (None, Some(_)) => return Err(format!("{name} returned a client key without its certificate")),
        };
        let token = token.map(|token| {
            bearer(&token).ok_or_else(|| {
                format!("the token of {name} has a character that a header cannot contain; run the plugin in a shell to see its output")
            })
        });
        let token = token.transpose()?;
        if token.is_none() && certificate.is_none() {
            return Err(format!(
                "{name} returned neither a token nor a client certificate; run the plugin in a shell to see its output"
            ));
        }
        let expiry = present(status.expiration_timestamp).map(|text| text.parse::<Timestamp>());
        let expiry =
            expiry.transpose().map_err(|_| format!("the expirationTimestamp of {name} is not an RFC 3339 time"))?;
        Ok(PluginCredentials { token, certificate, generation: 0, renew_at: expiry.map(renew_at) })
    }
}

/// Returns the renewal time of credentials that expire at `expiry`: a minute before the expiry, or the start of the
/// last quarter of a short validity.
fn renew_at(expiry: Timestamp) -> Timestamp {
    let now = Timestamp::now();
    let left = Duration::try_from(expiry.duration_since(now)).unwrap_or_default();
    expiry.checked_sub(RENEWAL_MARGIN.min(left / 4)).unwrap_or(expiry)
}

#[cfg(test)]
mod tests;
