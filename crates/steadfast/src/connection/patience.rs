//! Patience with a server that is too busy for an ordinary client's request.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::LONGEST_RETRY_AFTER;

use super::{Connection, SendError};
use crate::transport::{self, ResponseBody};

/// How often a request is sent again, as by `kube::Client`.
const RETRIES: u32 = 15;

/// The delays between attempts where the server names none: those of `kube::Client`, none longer than a minute.
const DELAYS: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(5),
    second: Duration::from_millis(10),
    ceiling: LONGEST_RETRY_AFTER,
};

/// Sends `request`, again and again while the server is too busy for it.
///
/// A write is not sent again after `504`, which says that something was waited for in vain, and so may have happened.
/// `again` is told each answer after which it is sent again.
pub(super) async fn send(
    connection: &Connection,
    request: Request<Body>,
    mut again: impl FnMut(StatusCode),
) -> Result<Response<ResponseBody>, SendError> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let (environment, manners) = (connection.environment(), connection.inner.manners);
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(DELAYS);
    let mut next = request;
    loop {
        let copy = transport::copy(&next).filter(|_| manners.retry && backoff.failures() < RETRIES);
        let answer = connection.send(next).await?;
        let busy = match answer.status() {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::GATEWAY_TIMEOUT => safe,
            _ => false,
        };
        let Some(copy) = copy.filter(|_| busy) else { return Ok(answer) };
        again(answer.status());
        let patience = backoff.fail(&mut random);
        let asked = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let delay = asked.map_or(patience, |asked| {
            let least = Duration::from_secs(asked).min(LONGEST_RETRY_AFTER).max(patience);
            // Not all who were told the same come at the same moment.
            random.between(least, least + least / 10)
        });
        tracing::debug!(status = %answer.status(), ?delay, path = copy.uri().path(), "the server is busy; again");
        drop(answer);
        environment.sleep_until(environment.now() + delay).await;
        next = copy;
    }
}
