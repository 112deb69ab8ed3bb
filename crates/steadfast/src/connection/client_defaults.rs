//! What a configuration says of how its clients are to behave.

use std::time::Duration;

use http::Request;
use http_body::Body as _;
use kube::client::Body;

use crate::transport::{Deadlines, Settings, is_long};

/// What `kube` puts into a configuration of which nothing is said. Ours are shorter, and hold then.
const DEFAULT_CONNECT: Duration = Duration::from_secs(30);
const DEFAULT_WRITE: Duration = Duration::from_secs(295);

/// What a configuration says of how its clients are to behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientDefaults {
    /// Whether a request is sent again where the server is too busy for it.
    pub(super) retry: bool,
    headers: Duration,
    progress: Duration,
    /// How long a read may wait, where that was said.
    read: Option<Duration>,
    /// How long sending a body may take on top, where that was said.
    write: Option<Duration>,
}

impl ClientDefaults {
    /// What `config` says, and `settings` where it says nothing.
    pub(super) fn new(config: &kube::Config, settings: &Settings) -> Self {
        Self {
            retry: config.default_retry,
            headers: settings.headers,
            progress: settings.progress,
            read: config.read_timeout,
            write: config.write_timeout.filter(|timeout| *timeout != DEFAULT_WRITE),
        }
    }

    /// Gives `request` the deadlines that the configuration asks for, if it has none of its own.
    pub(super) fn deadlines(&self, request: &mut Request<Body>) {
        let write = self.write.filter(|_| !request.body().is_end_stream());
        if request.extensions().get::<Deadlines>().is_some() || (self.read, write) == (None, None) {
            return;
        }
        let progress = self.read.or_else(|| (!is_long(request.uri())).then_some(self.progress));
        let headers = self.read.unwrap_or(self.headers) + write.unwrap_or_default();
        request.extensions_mut().insert(Deadlines { headers: Some(headers), progress });
    }
}

/// `settings` with the time that `config` gives to opening a connection, unless they say it themselves.
pub(super) fn within(settings: Settings, config: &kube::Config) -> Settings {
    let asked = config.connect_timeout.filter(|timeout| *timeout != DEFAULT_CONNECT);
    match asked {
        Some(connect) if settings.connect == Settings::default().connect => Settings { connect, ..settings },
        _ => settings,
    }
}
