//! Response body: a clean end, or an error with the cause of the interruption.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use steadfast_core::Instant;

use super::cause;
use super::connection::TransportConnection;
use super::connection_event::{ConnectionEvent, changes};
use super::deadline::MAX_TIMER_DELAY;
use super::end::End;
use super::error::TransportError;
use super::http1_slot::Http1Slot;
use super::stream_slot::StreamSlot;
use super::upload::Upload;
use crate::environment::SharedEnvironment;

/// Streaming response body.
///
/// Dropping the body before its end cancels the response: an HTTP/2 stream is reset, an HTTP/1.1 connection is closed.
pub struct ResponseBody {
    source: BodySource,
    connection: u64,
    peer: String,
    stall_timer: StallTimer,
    environment: SharedEnvironment,
}

enum BodySource {
    Http2 {
        stream: RecvStream,
        /// True if the data is complete and trailers may follow.
        data_ended: bool,
        upload: Option<Upload>,
        stream_slot: StreamSlot,
    },
    Http1 {
        incoming: Incoming,
        slot: Option<Http1Slot>,
    },
    Ended,
}

impl ResponseBody {
    /// Creates a body that reads from `stream`.
    pub(super) fn http2(
        stream: RecvStream,
        upload: Option<Upload>,
        stream_slot: StreamSlot,
        environment: SharedEnvironment,
    ) -> Self {
        let (connection, peer) = (stream_slot.connection.id, stream_slot.connection.peer());
        let source = BodySource::Http2 { stream, data_ended: false, upload, stream_slot };
        Self { source, connection, peer, stall_timer: StallTimer::default(), environment }
    }

    /// Creates a body that reads from `incoming`, and holds `slot` until the end of the response.
    pub(super) fn http1(incoming: Incoming, slot: Http1Slot, environment: SharedEnvironment) -> Self {
        let (connection, peer) = slot
            .stream_slot
            .as_ref()
            .map_or_else(Default::default, |stream_slot| (stream_slot.connection.id, stream_slot.connection.peer()));
        let source = BodySource::Http1 { incoming, slot: Some(slot) };
        Self { source, connection, peer, stall_timer: StallTimer::default(), environment }
    }

    /// Sets the maximum time that a read can wait.
    pub(super) fn limit_progress(&mut self, limit: Option<Duration>) {
        self.stall_timer.limit = limit;
    }

    /// Detaches the connection, for use with another protocol. The body then ends.
    pub(super) fn detach_connection(&mut self) -> Option<StreamSlot> {
        // An HTTP/2 connection carries other streams as well, so only an HTTP/1.1 connection can be detached.
        match std::mem::replace(&mut self.source, BodySource::Ended) {
            BodySource::Http1 { slot, .. } => slot?.stream_slot.take(),
            BodySource::Http2 { .. } | BodySource::Ended => None,
        }
    }

    /// Returns the number of the body's connection, as in [`ConnectionReport::id`](super::ConnectionReport::id).
    pub fn connection(&self) -> u64 {
        self.connection
    }

    /// Returns a stream of connection events. `responsive` is the last known responsiveness of the server; only changes
    /// from this value are reported.
    pub(crate) fn connection_events(&self, responsive: bool) -> BoxStream<'static, ConnectionEvent> {
        let Some(connection) = self.source.connection() else { return stream::pending().boxed() };
        let leave = changes(connection.leave_signal(), false).map(ConnectionEvent::Leave);
        let responsive = changes(connection.responsiveness(), responsive).map(ConnectionEvent::Responsive);
        stream::select(leave, responsive).chain(stream::pending()).boxed()
    }

    /// Returns the name of the server.
    pub fn peer(&self) -> &str {
        &self.peer
    }
}

impl BodySource {
    /// Returns the body's connection.
    fn connection(&self) -> Option<&TransportConnection> {
        let stream_slot = match self {
            Self::Http2 { stream_slot, .. } => Some(stream_slot),
            Self::Http1 { slot, .. } => slot.as_ref().and_then(|slot| slot.stream_slot.as_ref()),
            Self::Ended => None,
        };
        stream_slot.map(|stream_slot| &*stream_slot.connection)
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match self {
            Self::Http2 { stream, data_ended, upload, stream_slot } => {
                let cut = |error: h2::Error| {
                    let failed = upload.as_ref().and_then(|upload| upload.failed(&stream_slot.connection.peer()));
                    Some(Err(failed.unwrap_or_else(|| cause::cut(&stream_slot.connection, &error, true))))
                };
                if !*data_ended {
                    match ready!(stream.poll_data(context)) {
                        Some(Ok(data)) => {
                            // The release fails only for an ended stream, which needs no window.
                            drop(stream.flow_control().release_capacity(data.len()));
                            return Poll::Ready(Some(Ok(Frame::data(data))));
                        }
                        Some(Err(error)) => return Poll::Ready(cut(error)),
                        None => *data_ended = true,
                    }
                }
                Poll::Ready(match ready!(stream.poll_trailers(context)) {
                    Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
                    Ok(None) => None,
                    Err(error) => cut(error),
                })
            }
            Self::Http1 { incoming, slot } => {
                Poll::Ready(ready!(Pin::new(incoming).poll_frame(context)).map(|frame| {
                    frame.map_err(|error| {
                        let how = cause::http1(&error);
                        let Some(stream_slot) = slot.as_ref().and_then(|slot| slot.stream_slot.as_ref()) else {
                            unreachable!("an HTTP/1.1 slot lasts until the end of its response")
                        };
                        // The rest of the response is lost, and so is the boundary to the next response.
                        let lost = stream_slot.connection.lost_error(how.clone(), true);
                        stream_slot.connection.end(End::Failed(how));
                        lost
                    })
                }))
            }
            Self::Ended => Poll::Ready(None),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let this = &mut *self;
        let frame = match this.source.poll_frame(context) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let waited = ready!(this.stall_timer.poll(context, &this.environment));
                // Dropping the source cancels the response, so that a stalled response does not occupy a stream.
                this.source = BodySource::Ended;
                let stalled = TransportError::BodyStalled { peer: this.peer.clone(), waited };
                return Poll::Ready(Some(Err(stalled)));
            }
        };
        this.stall_timer.progress();
        // Counts only data that the caller reads. The connection's heartbeat counts all received bytes instead.
        if let Some(connection) = this.source.connection() {
            connection.record_response_data();
        }
        match &frame {
            Some(Ok(_)) => {}
            Some(Err(_)) => this.source = BodySource::Ended,
            None => {
                if let BodySource::Http1 { slot, .. } = &mut this.source
                    && let Some(slot) = slot.take()
                {
                    slot.finish(&this.environment);
                }
                this.source = BodySource::Ended;
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Http2 { stream, .. } => stream.is_end_stream(),
            BodySource::Http1 { incoming, .. } => incoming.is_end_stream(),
            BodySource::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Http1 { incoming, .. } => incoming.size_hint(),
            BodySource::Http2 { .. } => SizeHint::default(),
            BodySource::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Only a complete response leaves the connection reusable. Otherwise the start of the next response is unknown.
        if let BodySource::Http1 { incoming, slot } = &mut self.source
            && incoming.is_end_stream()
            && let Some(slot) = slot.take()
        {
            slot.finish(&self.environment);
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("connection", &self.connection)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// Read timeout. It measures the waiting time of the reads, not the time between them.
#[derive(Default)]
struct StallTimer {
    limit: Option<Duration>,
    pending_since: Option<Instant>,
    timer: Option<BoxFuture<'static, ()>>,
    /// True if the current read has had additional time after a freeze.
    is_extended: bool,
}

impl StallTimer {
    fn progress(&mut self) {
        self.pending_since = None;
        self.is_extended = false;
    }

    /// Completes when the current read reaches the timeout. Returns the waiting time.
    fn poll(&mut self, context: &mut Context<'_>, environment: &SharedEnvironment) -> Poll<Duration> {
        let Some(limit) = self.limit else { return Poll::Pending };
        loop {
            let now = environment.now();
            let waited = now.since(*self.pending_since.get_or_insert(now));
            let Some(rest) = limit.checked_sub(waited).filter(|rest| !rest.is_zero()) else {
                // On a starved machine, each timer is late. The additional time is therefore given once per read.
                if self.is_extended || waited.saturating_sub(limit) <= MAX_TIMER_DELAY {
                    return Poll::Ready(waited);
                }
                // The process was frozen, and data that arrived in that time was not read yet.
                self.is_extended = true;
                self.pending_since = Some(now - limit.saturating_sub(MAX_TIMER_DELAY));
                self.timer = None;
                continue;
            };
            // One timer serves many reads. It is reset only if it fires too early for the current read.
            let timer = self.timer.get_or_insert_with(|| environment.sleep_until(now + rest));
            ready!(timer.as_mut().poll(context));
            self.timer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::environment::local::LocalEnvironment;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn late_timers_extend_read_once() {
        let environment: SharedEnvironment = Arc::new(LocalEnvironment::over_tcp(1));
        let mut timer = StallTimer { limit: Some(Duration::from_secs(5)), ..StallTimer::default() };
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        assert!(timer.poll(&mut context, &environment).is_pending());
        for is_timed_out in [false, true] {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert_eq!(timer.poll(&mut context, &environment).is_ready(), is_timed_out);
        }
    }
}
