//! What a configuration asks of ordinary clients: that they try again where the server is busy, and how long they wait.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use kube::client::Body;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::LONGEST_RETRY_AFTER;

use super::{Connection, SendError};
use crate::transport::{self, Deadlines, ResponseBody, Settings, is_long};

/// How often a request is sent again, as by `kube::Client`.
const RETRIES: u32 = 15;

/// The delays between attempts where the server names none: those of `kube::Client`, none longer than a minute.
const DELAYS: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(5),
    second: Duration::from_millis(10),
    ceiling: LONGEST_RETRY_AFTER,
};

/// What `kube` puts into a configuration of which nothing is said. Ours are shorter, and hold then.
const DEFAULT_CONNECT: Duration = Duration::from_secs(30);
const DEFAULT_WRITE: Duration = Duration::from_secs(295);

/// What a configuration says of how its clients are to behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    retry: bool,
    headers: Duration,
    progress: Duration,
    /// How long a read may wait, where that was said.
    read: Option<Duration>,
    /// How long sending a body may take on top, where that was said.
    write: Option<Duration>,
}

impl Manners {
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

/// Sends `request`, again and again while the server is too busy for it.
///
/// A write is not sent again after `504`, which says that something was waited for in vain, and so may have happened.
pub(super) async fn send(connection: &Connection, request: Request<Body>) -> Result<Response<ResponseBody>, SendError> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let (environment, manners) = (connection.environment(), connection.inner.manners);
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(DELAYS);
    let mut next = request;
    loop {
        let again = transport::copy(&next).filter(|_| manners.retry && backoff.failures() < RETRIES);
        let answer = connection.send(next).await?;
        let busy = match answer.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::GATEWAY_TIMEOUT => safe,
            _ => false,
        };
        let Some(again) = again.filter(|_| busy) else { return Ok(answer) };
        let patience = backoff.fail(&mut random);
        let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let delay = asked.map_or(patience, |asked| {
            let least = Duration::from_secs(asked).min(LONGEST_RETRY_AFTER).max(patience);
            // Not all who were told the same come at the same moment.
            random.between(least, least + least / 10)
        });
        tracing::debug!(status = %answer.status(), ?delay, path = again.uri().path(), "the server is busy; again");
        drop(answer);
        environment.sleep_until(environment.now() + delay).await;
        next = again;
    }
}
