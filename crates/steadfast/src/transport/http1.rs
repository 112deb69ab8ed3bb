//! HTTP/1.1: driver of a connection, and one request on it at a time.

use std::error::Error as _;

use http::header::{HOST, HeaderValue};
use http::{Request, Response, Uri, Version};
use http_body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use steadfast_core::cause::root_cause;

use super::body::ResponseBody;
use super::cause;
use super::end::End;
use super::error::TransportError;
use super::failure::Failure;
use super::http1_slot::Http1Slot;
use super::purpose::Role;
use super::socket::Stream;
use super::stream_slot::StreamSlot;
use crate::environment::SharedEnvironment;

/// Read-ahead buffer in bytes.
const MAX_BUFFER_BYTES: usize = 1 << 20;

/// Sender of requests on a connection.
pub(super) type Http1Sender = http1::SendRequest<Body>;

/// Driver of a connection. Completes when the connection has ended.
pub(super) type Http1Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Body>;

/// Prepares the connection; nothing is sent before the first request.
pub(super) async fn handshake(stream: Box<dyn Stream>) -> hyper::Result<(Http1Sender, Http1Driver)> {
    http1::Builder::new().max_buf_size(MAX_BUFFER_BYTES).handshake(TokioIo::new(stream)).await
}

/// Sends `request` and waits for the response head.
pub(super) async fn send(
    sender: Http1Sender,
    stream_slot: StreamSlot,
    environment: &SharedEnvironment,
    mut request: Request<Body>,
) -> Result<Response<ResponseBody>, Failure> {
    let mut slot = Http1Slot { stream_slot: Some(stream_slot), sender: Some(sender) };
    convert_to_http1(&mut request);
    let Http1Slot { stream_slot: Some(stream_slot), sender: Some(sender) } = &mut slot else {
        unreachable!("the slot has both until its end")
    };
    if stream_slot.connection.purpose.role != Role::Upgrade {
        // The consumer of a request body may be slow. A request without a body is written immediately or never.
        stream_slot.connection.traffic.allow_slow_peer(!request.body().is_end_stream());
    }
    let sent_before = stream_slot.connection.traffic.sent();
    match sender.try_send_request(request).await {
        Ok(response) => Ok(response.map(|incoming| ResponseBody::http1(incoming, slot, environment.clone()))),
        Err(mut failed) => {
            // hyper returns the request if the connection was closed before any byte of the request was written.
            let was_returned = failed.take_message().is_some();
            let error = failed.error();
            let peer = stream_slot.connection.peer();
            if error.is_user() {
                let detail = root_cause(error);
                // Among the caller's errors, only a body error has a source.
                let invalid = error.source().is_none();
                return Err(Failure::without_retry(if invalid {
                    TransportError::Invalid { peer, detail }
                } else {
                    TransportError::Upload { peer, detail }
                }));
            }
            if error.is_parse() || error.is_parse_too_large() {
                let detail = root_cause(error);
                stream_slot.connection.end(End::Failed(format!("the response is not HTTP/1.1: {detail}")));
                let protocol = "HTTP/1.1";
                return Err(Failure::without_retry(TransportError::Protocol {
                    peer,
                    protocol,
                    detail,
                    maybe_sent: true,
                }));
            }
            // The socket is sealed before the decision. Otherwise the driver could write the request after the
            // decision.
            let unsent = was_returned || stream_slot.connection.traffic.seal_at(sent_before);
            let how = cause::http1(error);
            let lost = stream_slot.connection.lost_error(how.clone(), !unsent);
            stream_slot.connection.end(End::Failed(how));
            Err(if unsent { Failure::unsent(lost) } else { Failure::before_head(lost) })
        }
    }
}

/// Converts the request to HTTP/1.1 form: path only, and the server's name in the `Host` header.
fn convert_to_http1(request: &mut Request<Body>) {
    *request.version_mut() = Version::HTTP_11;
    // The origin form of RFC 9112, section 3.2.1; the absolute form is for proxies.
    let uri = std::mem::take(request.uri_mut());
    if let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    if let Some(path) = uri.path_and_query() {
        *request.uri_mut() = Uri::from(path.clone());
    }
}
