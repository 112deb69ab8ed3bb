//! Responses in flight of an informer, merged into one source of arrivals.

mod accepted;
mod gunzip;
mod head;
mod request_builder;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use http_body::Body as _;
use steadfast_core::decode::Encoding;
use steadfast_core::reflector::{Failure, Request, RequestId};

use crate::probes::Probed;
use crate::transport::{ConnectionEvent, ResponseBody, ResponsivenessWatch};
use gunzip::Gunzip;
use head::ResponseHead;

pub(crate) use request_builder::RequestBuilder;

/// Event of one request.
pub(crate) enum Arrival {
    /// Successful response head, with the encoding of the body.
    Opened(Encoding),
    /// Chunk of the body.
    Chunk(Bytes),
    /// Event of the connection that carries the response.
    ConnectionEvent(ConnectionEvent),
    /// End of the body.
    Ended,
    /// Complete response to a probe.
    Probed(Probed),
    /// Failure, after which nothing follows.
    Failed(Failure),
}

/// Responses in flight.
#[derive(Default)]
pub(crate) struct InflightResponses {
    running: Vec<(RequestId, Inflight)>,
    /// Index of the next poll, for fairness.
    next_index: usize,
}

/// State of one request.
enum Inflight {
    /// The request is sent. The response head is pending.
    AwaitingHead {
        head: BoxFuture<'static, Result<ResponseHead, Failure>>,
        events: BoxStream<'static, ConnectionEvent>,
        /// True unless the last event reported that the server does not respond on the connection.
        is_responsive: bool,
    },
    /// The body is arriving.
    Reading { body: Pin<Box<ResponseBody>>, events: BoxStream<'static, ConnectionEvent>, gunzip: Option<Box<Gunzip>> },
    /// A probe is pending, whose complete response is one arrival.
    Probing(BoxFuture<'static, Result<Probed, Failure>>),
    /// The last arrival was returned.
    Finished,
}

/// Default maximum size of an object in bytes. etcd accepts 1.5 MiB, and JSON is larger than protobuf.
pub(crate) const OBJECT_LIMIT: usize = 16 * 1024 * 1024;

impl InflightResponses {
    /// Sends `request` as `id`. If the stream of the informer is `doubted`, probes and short watches use a connection
    /// that was opened recently.
    pub(crate) fn send(&mut self, id: RequestId, request: &Request, doubted: bool, request_builder: &RequestBuilder) {
        let inflight = match request {
            Request::Probe { since } => Inflight::Probing(request_builder.probe(request, *since, doubted)),
            Request::ShortWatch { target, method, .. } => {
                Inflight::without_events(request_builder.send_short_watch(request, target, *method, doubted))
            }
            // Only watches receive connection events before their heads. Lists have their own timeout (R3), and
            // requests next to a watch have a shorter timeout.
            Request::Watch { .. } => {
                let (responsiveness_watch, events) = ResponsivenessWatch::new();
                let head = request_builder.send_with_events(request, doubted, Some(responsiveness_watch));
                let events = events.chain(stream::pending()).boxed();
                Inflight::AwaitingHead { head, events, is_responsive: true }
            }
            _ => Inflight::without_events(request_builder.send(request, doubted)),
        };
        self.running.push((id, inflight));
    }

    /// Lets `id` fail without sending a request.
    pub(crate) fn fail_without_sending(&mut self, id: RequestId, failure: Failure) {
        self.running.push((id, Inflight::without_events(Box::pin(std::future::ready(Err(failure))))));
    }

    /// Drops the request `id` and its response.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.running.retain(|(running, _)| *running != id);
    }

    /// Returns the next arrival of any response. Never ready if no request is in flight.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(RequestId, Arrival)> {
        // Round robin: a response with a steady stream of data must not starve the others.
        for offset in 0..self.running.len() {
            let index = (self.next_index + offset) % self.running.len();
            let (id, inflight) = &mut self.running[index];
            let Poll::Ready(arrival) = inflight.poll(context) else { continue };
            let id = *id;
            self.next_index = index + 1;
            if matches!(arrival, Arrival::Ended | Arrival::Probed(_) | Arrival::Failed(_)) {
                self.running.remove(index);
            }
            return Poll::Ready((id, arrival));
        }
        Poll::Pending
    }
}

impl Inflight {
    /// Creates a pending response without connection events before its head.
    fn without_events(head: BoxFuture<'static, Result<ResponseHead, Failure>>) -> Self {
        Self::AwaitingHead { head, events: stream::pending().boxed(), is_responsive: true }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            match self {
                Self::AwaitingHead { head, events, is_responsive } => match head.as_mut().poll(context) {
                    Poll::Ready(Ok(ResponseHead { encoding, body, gzip })) => {
                        let gunzip = gzip.then(Box::<Gunzip>::default);
                        *self = Self::Reading {
                            events: body.connection_events(*is_responsive),
                            body: Box::pin(body),
                            gunzip,
                        };
                        return Poll::Ready(Arrival::Opened(encoding));
                    }
                    Poll::Ready(Err(failure)) => {
                        *self = Self::Finished;
                        return Poll::Ready(Arrival::Failed(failure));
                    }
                    Poll::Pending => {
                        let Some(event) = std::task::ready!(events.poll_next_unpin(context)) else {
                            return Poll::Pending;
                        };
                        if let ConnectionEvent::Responsive(responsive) = event {
                            *is_responsive = responsive;
                        }
                        return Poll::Ready(Arrival::ConnectionEvent(event));
                    }
                },
                Self::Reading { gunzip: Some(gunzip), .. } if gunzip.has_more() => match gunzip.next_chunk() {
                    // Decompression may consume much input without output, so the other responses are polled first.
                    Ok(None) => {
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Ok(Some(chunk)) => return Poll::Ready(Arrival::Chunk(chunk)),
                    Err(error) => {
                        *self = Self::Finished;
                        let reason = format!("malformed gzip: {error}; check the proxies on the network path");
                        return Poll::Ready(Arrival::Failed(Failure::unreadable(reason)));
                    }
                },
                Self::Reading { body, events, gunzip } => match body.as_mut().poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => match (frame.into_data(), gunzip) {
                        (Ok(chunk), Some(gunzip)) => gunzip.feed(chunk),
                        (Ok(chunk), None) => return Poll::Ready(Arrival::Chunk(chunk)),
                        (Err(_trailers), _) => {}
                    },
                    Poll::Ready(Some(Err(error))) => {
                        *self = Self::Finished;
                        let reason: Arc<str> = error.cause().into();
                        return Poll::Ready(Arrival::Failed(Failure::unreachable(reason)));
                    }
                    Poll::Ready(None) => {
                        // A body may end cleanly in the middle of its gzip stream if a proxy truncates it.
                        let is_complete = gunzip.as_mut().is_none_or(|gunzip| gunzip.is_complete());
                        *self = Self::Finished;
                        return Poll::Ready(if is_complete {
                            Arrival::Ended
                        } else {
                            Arrival::Failed(Failure::unreachable("the response ended early, within its gzip data"))
                        });
                    }
                    Poll::Pending => {
                        return match std::task::ready!(events.poll_next_unpin(context)) {
                            Some(event) => Poll::Ready(Arrival::ConnectionEvent(event)),
                            None => Poll::Pending,
                        };
                    }
                },
                Self::Probing(probed) => {
                    let probed = std::task::ready!(probed.as_mut().poll(context));
                    *self = Self::Finished;
                    return Poll::Ready(probed.map_or_else(Arrival::Failed, Arrival::Probed));
                }
                Self::Finished => return Poll::Pending,
            }
        }
    }
}
