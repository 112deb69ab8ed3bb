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
use crate::transport::{Awaited, ConnectionEvent, ResponseBody};
use gunzip::Gunzip;
use head::Head;

pub(crate) use request_builder::RequestBuilder;

/// Event of one request.
pub(crate) enum Arrival {
    /// Successful response head, with the encoding of the body.
    Opened(Encoding),
    /// Chunk of the body.
    Chunk(Bytes),
    /// Event of the connection.
    Noticed(ConnectionEvent),
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
    turn: usize,
}

enum Inflight {
    AwaitingHead {
        head: BoxFuture<'static, Result<Head, Failure>>,
        notices: BoxStream<'static, ConnectionEvent>,
        /// Last known responsiveness of the server on the connection of a pending response.
        answering: bool,
    },
    Reading {
        body: Pin<Box<ResponseBody>>,
        notices: BoxStream<'static, ConnectionEvent>,
        gunzip: Option<Box<Gunzip>>,
    },
    Probing(BoxFuture<'static, Result<Probed, Failure>>),
    Over,
}

/// Default maximum size of an object in bytes. etcd accepts 1.5 MiB, and JSON is larger than protobuf.
pub(crate) const OBJECT_LIMIT: usize = 16 * 1024 * 1024;

impl InflightResponses {
    /// Sends `request` as `id`. A verification of a `doubted` stream uses a recent connection.
    pub(crate) fn send(&mut self, id: RequestId, request: &Request, doubted: bool, request_builder: &RequestBuilder) {
        let answer = match request {
            Request::Probe { since } => Inflight::Probing(request_builder.probe(request, *since, doubted)),
            Request::ShortWatch { target, reach, .. } => {
                Inflight::asked(request_builder.watch_shortly(request, target, *reach, doubted))
            }
            // A list has its own timeout (R3), and a request next to a watch has a shorter one.
            Request::Watch { .. } => {
                let (awaited, notices) = Awaited::new();
                let head = request_builder.ask_telling(request, doubted, Some(awaited));
                Inflight::AwaitingHead { head, notices: notices.chain(stream::pending()).boxed(), answering: true }
            }
            _ => Inflight::asked(request_builder.ask(request, doubted)),
        };
        self.running.push((id, answer));
    }

    /// Lets `id` fail without sending a request.
    pub(crate) fn refuse(&mut self, id: RequestId, failure: Failure) {
        self.running.push((id, Inflight::asked(Box::pin(std::future::ready(Err(failure))))));
    }

    /// Drops the request `id` and its response.
    pub(crate) fn cancel(&mut self, id: RequestId) {
        self.running.retain(|(running, _)| *running != id);
    }

    /// Returns the next arrival of any response. Never ready if no request is in flight.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(RequestId, Arrival)> {
        // Round robin: a response with a steady stream of data must not starve the others.
        for offset in 0..self.running.len() {
            let index = (self.turn + offset) % self.running.len();
            let (id, answer) = &mut self.running[index];
            let Poll::Ready(arrival) = answer.poll(context) else { continue };
            let id = *id;
            self.turn = index + 1;
            if matches!(arrival, Arrival::Ended | Arrival::Probed(_) | Arrival::Failed(_)) {
                self.running.remove(index);
            }
            return Poll::Ready((id, arrival));
        }
        Poll::Pending
    }
}

impl Inflight {
    /// Creates a pending response without connection events.
    fn asked(head: BoxFuture<'static, Result<Head, Failure>>) -> Self {
        Self::AwaitingHead { head, notices: stream::pending().boxed(), answering: true }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        loop {
            match self {
                Self::AwaitingHead { head, notices, answering } => match head.as_mut().poll(context) {
                    Poll::Ready(Ok(Head { encoding, body, gzip })) => {
                        let gunzip = gzip.then(Box::<Gunzip>::default);
                        *self = Self::Reading { notices: body.notices(*answering), body: Box::pin(body), gunzip };
                        return Poll::Ready(Arrival::Opened(encoding));
                    }
                    Poll::Ready(Err(failure)) => {
                        *self = Self::Over;
                        return Poll::Ready(Arrival::Failed(failure));
                    }
                    Poll::Pending => {
                        let Some(notice) = std::task::ready!(notices.poll_next_unpin(context)) else {
                            return Poll::Pending;
                        };
                        if let ConnectionEvent::Answering(told) = notice {
                            *answering = told;
                        }
                        return Poll::Ready(Arrival::Noticed(notice));
                    }
                },
                Self::Reading { gunzip: Some(gunzip), .. } if gunzip.has_more() => match gunzip.next_piece() {
                    // The compressed body may continue without output for long, so other responses are polled first.
                    Ok(None) => {
                        context.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Ok(Some(piece)) => return Poll::Ready(Arrival::Chunk(piece)),
                    Err(error) => {
                        *self = Self::Over;
                        let why = format!("malformed gzip: {error}; look at proxies on the way");
                        return Poll::Ready(Arrival::Failed(Failure::unreadable(why)));
                    }
                },
                Self::Reading { body, notices, gunzip } => match body.as_mut().poll_frame(context) {
                    Poll::Ready(Some(Ok(frame))) => match (frame.into_data(), gunzip) {
                        (Ok(chunk), Some(gunzip)) => gunzip.feed(chunk),
                        (Ok(chunk), None) => return Poll::Ready(Arrival::Chunk(chunk)),
                        (Err(_trailers), _) => {}
                    },
                    Poll::Ready(Some(Err(error))) => {
                        *self = Self::Over;
                        let why: Arc<str> = error.cause().into();
                        return Poll::Ready(Arrival::Failed(Failure::unreachable(why)));
                    }
                    Poll::Ready(None) => {
                        // A body may end cleanly in the middle of its gzip stream if a proxy truncates it.
                        let is_whole = gunzip.as_mut().is_none_or(|gunzip| gunzip.is_whole());
                        *self = Self::Over;
                        return Poll::Ready(if is_whole {
                            Arrival::Ended
                        } else {
                            Arrival::Failed(Failure::unreachable("the answer ended early, within its gzip"))
                        });
                    }
                    Poll::Pending => {
                        return match std::task::ready!(notices.poll_next_unpin(context)) {
                            Some(notice) => Poll::Ready(Arrival::Noticed(notice)),
                            None => Poll::Pending,
                        };
                    }
                },
                Self::Probing(probed) => {
                    let probed = std::task::ready!(probed.as_mut().poll(context));
                    *self = Self::Over;
                    return Poll::Ready(probed.map_or_else(Arrival::Failed, Arrival::Probed));
                }
                Self::Over => return Poll::Pending,
            }
        }
    }
}
