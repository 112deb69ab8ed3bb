//! HTTP/2: driver of a connection, and one request on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{PingPong, Reason};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response, Version};
use http_body::Body as _;
use kube::client::Body;

use super::body::ResponseBody;
use super::cause::{self, cut};
use super::connection::TransportConnection;
use super::end::End;
use super::error::TransportError;
use super::failure::Failure;
use super::socket::Stream;
use super::state::Signal;
use super::stream_slot::{PoolHandle, StreamSlot};
use super::upload::{self, Upload};
use super::windows::windows;
use crate::environment::SharedEnvironment;

/// Maximum frame size in bytes; large, so that objects arrive in few chunks.
const MAX_FRAME_BYTES: u32 = 1 << 20;

/// Maximum size of response headers in bytes.
const MAX_HEADER_LIST_BYTES: u32 = 256 << 10;

/// Limit for small unread frames before the connection counts as attacked, as a multiple of the connection window.
/// Events of a watch are small, and full windows of them must not count as an attack.
const FRAME_BUDGET_WINDOWS: usize = 4;

/// Number of dropped streams to remember, so that late frames for them are not an error.
const MAX_REMEMBERED_RESETS: usize = 1024;

/// Starts the handshake, which the driver completes. At most `streams` run concurrently.
pub(super) async fn handshake(
    stream: Box<dyn Stream>,
    streams: usize,
    connection: Arc<TransportConnection>,
    pool_handle: Weak<dyn PoolHandle>,
) -> Result<(SendRequest<Bytes>, Http2Driver, PingPong), h2::Error> {
    let (window, connection_window) = windows(streams);
    let (sender, mut h2) = h2::client::Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(connection_window)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .max_concurrent_reset_streams(MAX_REMEMBERED_RESETS)
        .data_frame_budget(FRAME_BUDGET_WINDOWS.saturating_mul(connection_window as usize))
        // API servers push nothing.
        .enable_push(false)
        .handshake(stream)
        .await?;
    let Some(pings) = h2.ping_pong() else { unreachable!("the pings of a new connection are not taken yet") };
    let driver = Http2Driver {
        h2,
        goaway_probe: Some(sender.clone()),
        allowed_streams: 0,
        received_goaway: false,
        connection,
        pool_handle,
    };
    Ok((sender, driver, pings))
}

/// Driver of a connection. Completes when the connection has ended.
pub(super) struct Http2Driver {
    h2: h2::client::Connection<Box<dyn Stream>, Bytes>,
    /// Detects a GOAWAY frame, which h2 reports only to a sender.
    goaway_probe: Option<SendRequest<Bytes>>,
    /// Maximum number of streams allowed by the server.
    allowed_streams: usize,
    /// True if the server announced an orderly close.
    received_goaway: bool,
    connection: Arc<TransportConnection>,
    pool_handle: Weak<dyn PoolHandle>,
}

impl Http2Driver {
    /// Lets the connection close after its last stream.
    pub(super) fn start_close(&mut self) {
        self.goaway_probe = None;
    }
}

impl Future for Http2Driver {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(ended) = Pin::new(&mut self.h2).poll(context) {
            // After an orderly GOAWAY the end is expected, even if the socket closes with an error.
            return Poll::Ready(match ended {
                _ if self.received_goaway => End::Drained,
                Ok(()) => End::Failed("the server closed the connection".to_owned()),
                Err(error) => End::Failed(cause::http2(&error)),
            });
        }
        // h2 does not notify of a raised stream limit without a pending stream.
        let allowed_streams = self.goaway_probe.as_ref().map_or(0, SendRequest::current_max_send_streams);
        if std::mem::replace(&mut self.allowed_streams, allowed_streams) < allowed_streams
            && let Some(pool_handle) = self.pool_handle.upgrade()
        {
            pool_handle.serve();
        }
        let probed = self.goaway_probe.as_mut().map(|goaway_probe| goaway_probe.poll_ready(context));
        if let Some(Poll::Ready(Err(error))) = probed {
            self.goaway_probe = None;
            self.received_goaway = error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
            if self.connection.signal(Signal::Retired) {
                tracing::debug!(connection = self.connection.id, %error, "the server accepts no more requests on this connection");
                if let Some(pool_handle) = self.pool_handle.upgrade() {
                    pool_handle.state_changed();
                }
            }
            // h2 was polled before the probe, a sender, was dropped. Another poll lets h2 close without senders.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Sends `request` and waits for the response head.
pub(super) async fn send(
    mut sender: SendRequest<Bytes>,
    stream_slot: StreamSlot,
    environment: &SharedEnvironment,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, Failure> {
    let peer = stream_slot.connection.peer();
    let (head, body) = request.into_parts();
    let mut head_request = Request::from_parts(head, ());
    *head_request.version_mut() = Version::HTTP_2;
    let length = body.size_hint().exact();
    let headers = head_request.headers_mut();
    // RFC 9113, section 8.2.2, forbids connection-specific headers. `:authority` replaces `Host`.
    for hop in [CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(hop);
    }
    if let Some(length) = length.filter(|length| *length > 0) {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let has_no_body = body.is_end_stream();
    let sent_before = stream_slot.connection.traffic.sent();
    let (response, mut stream) = match sender.send_request(head_request, has_no_body) {
        Ok(sent) => sent,
        Err(error) if error.is_go_away() || error.is_io() || error.reason().is_some() => {
            let lost = stream_slot.connection.lost_error(cause::http2(&error), false);
            let is_rejected = error.is_go_away() && error.is_remote();
            return Err(if is_rejected { Failure::unprocessed(lost) } else { Failure::unsent(lost) });
        }
        Err(error) => return Err(Failure::without_retry(TransportError::Invalid { peer, detail: error.to_string() })),
    };
    let upload = match upload::buffered(body) {
        _ if has_no_body => None,
        Ok(data) => {
            // h2 keeps the data until the window allows it. A failure to queue the data is a failure of the stream, which the
            // response reports.
            drop(stream.send_data(data, true));
            None
        }
        Err(body) => Some(Upload::begin(body, stream, environment)),
    };
    match response.await {
        Ok(response) => {
            Ok(response.map(|stream| ResponseBody::http2(stream, upload, stream_slot, environment.clone())))
        }
        // A failed upload resets the stream. The source's error explains the reset.
        Err(error) => match upload.as_ref().and_then(|upload| upload.failed(&peer)) {
            Some(failed) => Err(Failure::without_retry(failed)),
            None => Err(failure(&stream_slot.connection, &error, sent_before)),
        },
    }
}

/// Returns the failure of a request submitted at `sent_before`, for an error before the response head.
fn failure(connection: &TransportConnection, error: &h2::Error, sent_before: u64) -> Failure {
    // RFC 9113, section 8.7: REFUSED_STREAM guarantees that the request was not processed. So does a GOAWAY for a stream
    // above its last stream ID; h2 completes lower streams normally.
    let is_refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
    let is_unprocessed = is_refused || (error.is_go_away() && error.is_remote());
    let is_unsent = !is_unprocessed && !error.is_reset() && connection.traffic.seal_at(sent_before);
    let error = cut(connection, error, !is_unprocessed && !is_unsent);
    match (is_unprocessed, is_unsent) {
        (true, _) => Failure::unprocessed(error),
        (false, true) => Failure::unsent(error),
        (false, false) => Failure::without_retry(error),
    }
}
