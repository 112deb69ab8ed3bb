//! Retries of an ordinary client's request while the server is too busy.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::MAX_RETRY_AFTER;

use super::{Connection, SendError};
use crate::transport::{self, ResponseBody};

/// Maximum number of retries of a request, as in `kube::Client`.
const MAX_RETRIES: u32 = 15;

/// Delays between attempts without `Retry-After`: those of `kube::Client`, at most a minute.
const RETRY_BACKOFF: BackoffSettings = BackoffSettings {
    initial_delay: Duration::from_millis(5),
    second_delay: Duration::from_millis(10),
    max_delay: MAX_RETRY_AFTER,
};

/// Sends `request`, and retries while the server is too busy.
///
/// A write is not retried after `504`: the server timed out while waiting, and the write may have succeeded. A write
/// below a subresource `proxy` is never retried: its response may come from the proxied server, after it has acted.
/// `on_retry` receives the status of each response before a retry.
pub(super) async fn send(
    connection: &Connection,
    request: Request<Body>,
    mut on_retry: impl FnMut(StatusCode),
) -> Result<Response<ResponseBody>, SendError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let is_proxied_write = !is_read && transport::is_proxied(request.uri().path());
    let (environment, client_defaults) = (connection.environment(), connection.inner.client_defaults);
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(RETRY_BACKOFF);
    let mut next = request;
    loop {
        let copy = transport::copy_request(&next).filter(|_| client_defaults.retry && backoff.failures() < MAX_RETRIES);
        let response = connection.send(next).await?;
        let busy = match response.status() {
            // API Priority and Fairness rejects with 429 before the request is executed.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => !is_proxied_write,
            StatusCode::GATEWAY_TIMEOUT => is_read,
            _ => false,
        };
        let Some(copy) = copy.filter(|_| busy) else { return Ok(response) };
        on_retry(response.status());
        let backoff_delay = backoff.fail(&mut random);
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let delay = retry_after.map_or(backoff_delay, |retry_after| {
            let min_delay = Duration::from_secs(retry_after).min(MAX_RETRY_AFTER).max(backoff_delay);
            // Up to 10 % jitter: the server sends the same `Retry-After` to many clients, which must not all retry at
            // the same time.
            random.between(min_delay, min_delay + min_delay / 10)
        });
        tracing::debug!(status = %response.status(), ?delay, path = copy.uri().path(), "the server is busy; the request is retried");
        // Frees the stream and its flow-control window during the delay.
        drop(response);
        environment.sleep_until(environment.now() + delay).await;
        next = copy;
    }
}
