//! HTTP/2: the driver of a connection, and one request on it.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{PingPong, Reason, SendStream};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Response, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::client::Body;

use super::body::ResponseBody;
use super::connection::{Connection, End, Lease};
use super::dispatch::Failure;
use super::error::{TransportError, root_cause};
use super::pool::Inner;
use super::socket::Stream;
use super::state::Signal;
use crate::environment::{SharedEnvironment, Task};

/// How much of one answer the server may send before it is read.
const STREAM_WINDOW: u32 = 4 << 20;

/// The most that a server may send of all answers on a connection together (RFC 9113, section 6.9.1).
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// How many answers may share a connection and still have windows as large as where nothing is agreed.
pub(super) const MOST_STREAMS: usize = (LARGEST_WINDOW / 65_535) as usize;

/// The largest frame, so that long objects come in few pieces.
const FRAME: u32 = 1 << 20;

/// How many bytes the heads of an answer may have.
const HEADER_LIST: u32 = 256 << 10;

/// What many small unread frames may cost before the connection counts as attacked: a watch's events are
/// small, and full windows of them must be no attack. So many times the window of the connection.
const FRAME_BUDGET: usize = 4;

/// How many dropped streams are remembered, so that what still arrives for them is no error.
const DROPPED_STREAMS: usize = 1024;

/// How much may be sent of one answer before it is read, and of all `streams` together: as much as of each, so that those
/// that nobody reads leave the others theirs.
fn windows(streams: usize) -> (u32, u32) {
    let streams = u32::try_from(streams.clamp(1, MOST_STREAMS)).unwrap_or(u32::MAX);
    let window = STREAM_WINDOW.min(LARGEST_WINDOW / streams);
    (window, window * streams)
}

/// Speaks first, and leaves the rest to the driver; at most `streams` are to run at once.
pub(super) async fn handshake(
    stream: Box<dyn Stream>,
    streams: usize,
    connection: Arc<Connection>,
    pool: Weak<Inner>,
) -> Result<(SendRequest<Bytes>, Driver, PingPong), h2::Error> {
    let (window, together) = windows(streams);
    let (sender, mut h2) = h2::client::Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(together)
        .max_frame_size(FRAME)
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_reset_streams(DROPPED_STREAMS)
        .data_frame_budget(FRAME_BUDGET.saturating_mul(together as usize))
        .enable_push(false)
        .handshake(stream)
        .await?;
    let Some(pings) = h2.ping_pong() else { unreachable!("the pings of a new connection are there to be taken") };
    let driver = Driver { h2, probe: Some(sender.clone()), allowed: 0, goodbye: false, connection, pool };
    Ok((sender, driver, pings))
}

/// Moves bytes between the socket and the streams; ready when the connection has ended.
pub(super) struct Driver {
    h2: h2::client::Connection<Box<dyn Stream>, Bytes>,
    /// Tells of a GOAWAY, which h2 reports only to those who would send.
    probe: Option<SendRequest<Bytes>>,
    /// How many streams the server allows at once.
    allowed: usize,
    /// The server has announced, in peace, that it will close.
    goodbye: bool,
    connection: Arc<Connection>,
    pool: Weak<Inner>,
}

impl Driver {
    /// Lets the connection close once no stream is left.
    pub(super) fn let_go(&mut self) {
        self.probe = None;
    }
}

impl Future for Driver {
    type Output = End;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(ended) = Pin::new(&mut self.h2).poll(context) {
            return Poll::Ready(match ended {
                _ if self.goodbye => End::Drained,
                Ok(()) => End::Failed("the server closed it".to_owned()),
                Err(error) => End::Failed(describe(&error)),
            });
        }
        // h2 tells nobody of more streams who has none.
        let allowed = self.probe.as_ref().map_or(0, SendRequest::current_max_send_streams);
        if std::mem::replace(&mut self.allowed, allowed) < allowed
            && let Some(pool) = self.pool.upgrade()
        {
            pool.serve();
        }
        let probed = self.probe.as_mut().map(|probe| probe.poll_ready(context));
        if let Some(Poll::Ready(Err(error))) = probed {
            self.probe = None;
            self.goodbye = error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
            if self.connection.signal(Signal::Retired) {
                tracing::debug!(connection = self.connection.id, %error, "takes no more requests");
                if let Some(pool) = self.pool.upgrade() {
                    pool.unsettled();
                }
            }
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// Sends `request` and waits for the head of its answer.
pub(super) async fn send(
    mut sender: SendRequest<Bytes>,
    lease: Lease,
    environment: &SharedEnvironment,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, Failure> {
    let peer = lease.connection.peer();
    let (head, body) = request.into_parts();
    let mut bare = Request::from_parts(head, ());
    *bare.version_mut() = Version::HTTP_2;
    let length = body.size_hint().exact();
    let headers = bare.headers_mut();
    for hop in [CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(hop);
    }
    if let Some(length) = length.filter(|length| *length > 0) {
        headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    let empty = body.is_end_stream();
    let mark = lease.connection.traffic.sent();
    let (answer, stream) = match sender.send_request(bare, empty) {
        Ok(sent) => sent,
        Err(error) if error.is_go_away() || error.is_io() || error.reason().is_some() => {
            return Err(Failure::unsent(lease.connection.lost(describe(&error), false)));
        }
        Err(error) => return Err(Failure::of(TransportError::Invalid { peer, detail: error.to_string() })),
    };
    let upload = (!empty).then(|| Upload::begin(body, stream, environment));
    match answer.await {
        Ok(answer) => Ok(answer.map(|stream| ResponseBody::http2(stream, upload, lease, environment.clone()))),
        Err(error) => match upload.as_ref().and_then(|upload| upload.failed(&peer)) {
            Some(failed) => Err(Failure::of(failed)),
            None => Err(failure(&lease.connection, &error, mark)),
        },
    }
}

/// The sending of a request's body; it ends with this.
pub(super) struct Upload {
    task: Task,
    /// What the body's source said when it failed.
    failed: Arc<OnceLock<String>>,
}

impl Upload {
    fn begin(body: Body, stream: SendStream<Bytes>, environment: &SharedEnvironment) -> Self {
        let failed = Arc::default();
        // The body may be the user's own.
        let task = environment.spawn_foreign(Box::pin(upload(body, stream, Arc::clone(&failed))));
        Self { task, failed }
    }

    /// The error of a request to `peer` whose body failed, if it did.
    pub(super) fn failed(&self, peer: &str) -> Option<TransportError> {
        let detail = self.failed.get()?.clone();
        Some(TransportError::Upload { peer: peer.to_owned(), detail })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn upload(mut body: Body, mut stream: SendStream<Bytes>, failed: Arc<OnceLock<String>>) {
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                // Said before the stream ends, so that whoever waits for its answer finds it.
                failed.get_or_init(|| root_cause(&error));
                stream.send_reset(Reason::CANCEL);
                return;
            }
        };
        let Ok(mut data) = frame.into_data() else { continue };
        let last = body.is_end_stream();
        while !data.is_empty() {
            stream.reserve_capacity(data.len());
            let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
            let piece = data.split_to(room.min(data.len()));
            let ended = last && data.is_empty();
            if stream.send_data(piece, ended).is_err() || ended {
                return;
            }
        }
        if last {
            break;
        }
    }
    // The stream may be gone; whoever waits for its answer learns that.
    drop(stream.send_data(Bytes::new(), true));
}

/// What an error before the head of the answer means to a request that was given to its connection at `mark`.
fn failure(connection: &Connection, error: &h2::Error, mark: u64) -> Failure {
    let refused = error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
    let unprocessed =
        refused || (error.is_go_away() && error.is_remote()) || (!error.is_reset() && connection.traffic.seal_at(mark));
    let error = cut(connection, error, !unprocessed);
    if unprocessed { Failure::unsent(error) } else { Failure::of(error) }
}

/// What an error on a stream of `connection` means to its request.
pub(super) fn cut(connection: &Connection, error: &h2::Error, maybe_sent: bool) -> TransportError {
    if error.is_reset() {
        TransportError::Reset { peer: connection.peer(), reason: describe(error), maybe_sent }
    } else {
        connection.lost(describe(error), maybe_sent)
    }
}

/// An error of HTTP/2 in words.
pub(super) fn describe(error: &h2::Error) -> String {
    if let Some(error) = error.get_io() {
        return match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => "the server closed it".to_owned(),
            _ => error.to_string(),
        };
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_do_not_read_leaves_the_others_their_windows() {
        for streams in [0, 1, 7, 100, 511, 512, 10_000, MOST_STREAMS, usize::MAX] {
            let (window, together) = windows(streams);
            let most = streams.clamp(1, MOST_STREAMS) as u64;
            assert!(u64::from(window) * most <= u64::from(together), "{streams}");
            assert!((65_535..=STREAM_WINDOW).contains(&window), "{streams}: {window}");
            assert!(together <= LARGEST_WINDOW, "{streams}");
        }
        assert_eq!(windows(100), (4 << 20, 400 << 20));
    }
}
