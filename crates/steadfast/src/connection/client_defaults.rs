//! Timeouts and retries of clients, as the configuration specifies them.

use std::time::Duration;

use http::Request;
use http_body::Body as _;
use kube::client::Body;

use crate::transport::{Deadlines, ResponseKind, Settings};

/// Connect timeout that `kube` writes into a configuration without one. Our own default is shorter and replaces it.
const KUBE_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default write timeout of `kube`. A configuration with this value counts as one without a write timeout.
const KUBE_WRITE_TIMEOUT: Duration = Duration::from_secs(295);

/// Timeouts and retries of clients, as the configuration specifies them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientDefaults {
    /// True if requests are retried while the server is too busy.
    pub(super) retry: bool,
    headers: Duration,
    progress: Duration,
    /// Configured read timeout.
    read: Option<Duration>,
    /// Configured additional timeout for sending a request body.
    write: Option<Duration>,
}

impl ClientDefaults {
    /// Takes the values of `config`, and the values of `settings` if `config` has none.
    pub(super) fn new(config: &kube::Config, settings: &Settings) -> Self {
        Self {
            retry: config.default_retry,
            headers: settings.headers_timeout,
            progress: settings.progress_timeout,
            read: config.read_timeout,
            write: config.write_timeout.filter(|timeout| *timeout != KUBE_WRITE_TIMEOUT),
        }
    }

    /// Adds the configured deadlines to `request`, unless the request has deadlines of its own.
    pub(super) fn deadlines(&self, request: &mut Request<Body>) {
        let write = self.write.filter(|_| !request.body().is_end_stream());
        if request.extensions().get::<Deadlines>().is_some() || (self.read, write) == (None, None) {
            return;
        }
        // A watch or a log may be silent for a long time, so only a configured timeout limits it.
        let progress = self.read.or_else(|| (!ResponseKind::of(request.uri()).may_be_silent).then_some(self.progress));
        let headers = self.read.unwrap_or(self.headers) + write.unwrap_or_default();
        request.extensions_mut().insert(Deadlines { headers: Some(headers), progress });
    }
}

/// Returns `settings` with the connect timeout of `config`, unless `settings` changes the default.
pub(super) fn with_connect_timeout(settings: Settings, config: &kube::Config) -> Settings {
    let timeout = config.connect_timeout.filter(|timeout| *timeout != KUBE_CONNECT_TIMEOUT);
    match timeout {
        // Settings of the program take precedence over the kubeconfig.
        Some(connect) if settings.connect_timeout == Settings::default().connect_timeout => {
            Settings { connect_timeout: connect, ..settings }
        }
        _ => settings,
    }
}
