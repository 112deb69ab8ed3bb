//! Entry point of all requests.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::body::Incoming;

use super::body::ResponseBody;
use super::context::RequestContext;
use super::corruption::{corrupted, split_body};
use super::exchange::Exchange;
use super::response::ApiResponse;
use super::{dispatch, injected};
use crate::cluster::Cluster;
use crate::faults::{InterceptAction, RequestStage, RuleEffect};
use crate::net::Link;
use crate::records::RequestRecord;

/// Responds to a request.
pub(crate) async fn serve(
    cluster: Arc<Cluster>,
    link: Arc<Link>,
    request: Request<Incoming>,
) -> Response<ResponseBody> {
    let context = RequestContext::from_request(&cluster, &link, &request);
    let mut record = context.record(&cluster, &link);
    // Rules are evaluated on arrival, so that they count requests in order of arrival, even if responses are delayed.
    let effect = cluster.rules.apply(&record);
    let entry = cluster.requests.add(record.clone());
    record.id = entry.id();
    tracing::trace!(verb = ?record.verb, path = record.path, query = record.query, replica = link.replica, "request");
    // HEAD is served like GET; the body is dropped at the end.
    let is_head = context.method == Method::HEAD;
    let encoding = context.encoding;
    let exchange = Exchange { replica: link.replica, entry: Arc::clone(&entry), recorded_verb: record.verb, cluster };
    // A frozen replica holds the request before any effect on the storage.
    exchange.freeze_gate().wait_until_open().await;
    let active_faults = &exchange.cluster.replicas[link.replica].active_faults;
    // The values are copied, because the conditions must not be locked during the wait.
    let (delay, max_chunk_bytes) = active_faults.read(|faults| (faults.delay, faults.max_chunk_bytes));
    if delay > Duration::ZERO {
        tokio::time::sleep(delay).await;
    }
    if let Some(RuleEffect::Delay(wait, _)) = &effect {
        tokio::time::sleep(*wait).await;
    }
    apply_interception(&exchange, &link, &record, RequestStage::Arrived).await;
    // A corruption or a mere delay needs the regular response. Other rules replace the response: the request is not
    // processed, and the storage stays unchanged.
    let mut response = match effect {
        Some(RuleEffect::Respond(response) | RuleEffect::Delay(_, Some(response))) => {
            injected::injected_response(&response, &record, encoding)
        }
        Some(RuleEffect::Delay(_, None) | RuleEffect::Corrupt(_)) | None => {
            let response = dispatch::respond(&exchange, context, request).await.unwrap_or_else(ApiResponse::from);
            match effect {
                Some(RuleEffect::Corrupt(corruption)) => corrupted(response.encoded_as(encoding), corruption),
                _ => response,
            }
        }
    };
    response = response.encoded_as(encoding);
    apply_interception(&exchange, &link, &record, RequestStage::Processed).await;
    // If the replica froze while the response was created, the response must not be sent either.
    exchange.freeze_gate().wait_until_open().await;
    if is_head {
        response = response.without_body();
    }
    if max_chunk_bytes > 0 {
        // The body is split after all other changes, so that the chunks are parts of the final body.
        response = split_body(response, max_chunk_bytes);
    }
    response.into_response(entry)
}

/// Applies the interceptor's decision about a request. Returns when the request may continue, and never returns if the
/// request is lost.
async fn apply_interception(exchange: &Exchange, link: &Link, request: &RequestRecord, stage: RequestStage) {
    match exchange.cluster.interception.decide(request, stage) {
        InterceptAction::Continue => {}
        InterceptAction::Delay(wait) => tokio::time::sleep(wait).await,
        InterceptAction::Reset => {
            link.reset(exchange.cluster.clock.elapsed());
            // The connection was reset, so the task waits for its own cancellation.
            std::future::pending::<()>().await;
        }
    }
}
