//! Retries of an ordinary client's request while the server is too busy.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::LONGEST_RETRY_AFTER;

use super::{Connection, SendError};
use crate::transport::{self, ResponseBody};

/// Maximum number of retries of a request, as in `kube::Client`.
const MAX_RETRIES: u32 = 15;

/// Delays between attempts without `Retry-After`: those of `kube::Client`, at most a minute.
const DELAYS: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(5),
    second: Duration::from_millis(10),
    ceiling: LONGEST_RETRY_AFTER,
};

/// Sends `request`, and retries while the server is too busy.
///
/// A write is not retried after `504`: the server timed out while waiting, and the write may have succeeded. `again`
/// receives the status of each response before a retry.
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
        let copy = transport::copy_request(&next).filter(|_| manners.retry && backoff.failures() < MAX_RETRIES);
        let answer = connection.send(next).await?;
        let busy = match answer.status() {
            // API Priority and Fairness rejects with 429 before the request is executed.
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
            // Up to 10 % jitter: the server sends equal `Retry-After` to many clients, which must not return at once.
            random.between(least, least + least / 10)
        });
        tracing::debug!(status = %answer.status(), ?delay, path = copy.uri().path(), "the server is busy; again");
        // Frees the stream and its flow-control window during the delay.
        drop(answer);
        environment.sleep_until(environment.now() + delay).await;
        next = copy;
    }
}
