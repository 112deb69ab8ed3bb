//! Requests in flight and the progress of their responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use steadfast_core::decode::Encoding;
use steadfast_core::frame::{ItemFramer, StreamFramer};
use steadfast_core::record::ListMeta;
use steadfast_core::reflector::{Failure, FailureKind, Request, RequestId};

use crate::metrics::informer_counters::InformerCounters;
use crate::metrics::request_metrics::RequestMetrics;
use crate::responses::{Arrival, InflightResponses, RequestBuilder};

/// Splits a response body into records.
pub(super) enum Parser {
    /// Parser of a stream.
    Stream(StreamFramer),
    /// Parser of a list, with the list's metadata after they were read.
    List(ItemFramer, Option<ListMeta>),
}

impl Parser {
    /// Returns the encoding of the body.
    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Stream(framer) => framer.encoding(),
            Self::List(framer, _) => framer.encoding(),
        }
    }
}

/// Progress of a response.
enum ResponseProgress {
    /// No response yet.
    AwaitingHead { is_stream: bool },
    /// Response body in progress.
    Body(Parser),
    /// A chunk is being parsed.
    Parsing,
}

/// Requests in flight.
pub(super) struct Requests {
    by_id: BTreeMap<RequestId, ResponseProgress>,
    responses: InflightResponses,
    metrics: RequestMetrics,
    /// Metadata page that replaces a page of a full list.
    metadata_page: Option<RequestId>,
}

impl Requests {
    /// Creates an empty set of requests, which are counted in `counters`.
    pub(super) fn new(counters: Arc<InformerCounters>) -> Self {
        Self {
            by_id: BTreeMap::new(),
            responses: InflightResponses::default(),
            metrics: RequestMetrics::new(counters),
            metadata_page: None,
        }
    }

    /// Returns the metrics of the requests.
    pub(super) fn metrics(&mut self) -> &mut RequestMetrics {
        &mut self.metrics
    }

    /// Sends a request. If the watch is suspect, probes and short watches use a connection that was opened recently.
    pub(super) fn send(&mut self, id: RequestId, request: &Request, is_suspect: bool, builder: &RequestBuilder) {
        self.record(id, request);
        self.metrics.sent(id, request);
        self.responses.send(id, request, is_suspect, builder);
    }

    /// Reports `failure` as the result of the request, without sending the request.
    pub(super) fn fail_without_sending(&mut self, id: RequestId, request: &Request, failure: Failure) {
        self.record(id, request);
        self.responses.fail_without_sending(id, failure);
    }

    fn record(&mut self, id: RequestId, request: &Request) {
        self.by_id.insert(id, ResponseProgress::AwaitingHead { is_stream: request.is_stream() });
        if let Request::Metadata { .. } = request {
            self.metadata_page = Some(id);
        }
    }

    /// Returns true if the request is for a metadata page that replaces a page of a full list.
    pub(super) fn is_metadata_page(&self, id: RequestId) -> bool {
        self.metadata_page == Some(id)
    }

    /// Returns the next arrival of any response.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(RequestId, Arrival)> {
        self.responses.poll_next(context)
    }

    /// Returns true if the request has neither ended nor been cancelled.
    pub(super) fn is_in_flight(&self, id: RequestId) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Cancels a request.
    pub(super) fn cancel(&mut self, id: RequestId) {
        // Dropping the response resets its HTTP/2 stream, so that the server stops sending.
        self.responses.cancel(id);
        self.metrics.cancelled(id);
        self.by_id.remove(&id);
    }

    /// Records a response head with `encoding`. Objects above `limit` bytes are skipped.
    pub(super) fn opened(&mut self, id: RequestId, encoding: Encoding, limit: usize) {
        self.metrics.opened(id);
        let parser = match self.by_id.get(&id) {
            Some(ResponseProgress::AwaitingHead { is_stream: true }) => {
                Parser::Stream(StreamFramer::new(encoding, limit))
            }
            _ => Parser::List(ItemFramer::new(encoding, limit), None),
        };
        self.by_id.insert(id, ResponseProgress::Body(parser));
    }

    /// Takes the parser out of the request for a chunk of the body; [`give_back`](Self::give_back) must follow. Returns
    /// `None` for a cancelled request.
    pub(super) fn take(&mut self, id: RequestId) -> Option<Parser> {
        let progress = self.by_id.get_mut(&id).filter(|progress| matches!(progress, ResponseProgress::Body(_)))?;
        // The parser leaves the map during the chunk, because a record in the chunk may cancel its own request.
        match std::mem::replace(progress, ResponseProgress::Parsing) {
            ResponseProgress::Body(parser) => Some(parser),
            ResponseProgress::AwaitingHead { .. } | ResponseProgress::Parsing => None,
        }
    }

    /// Puts the parser back after the chunk. Drops the parser if the request has ended in the meantime.
    pub(super) fn give_back(&mut self, id: RequestId, parser: Parser) {
        if let Some(progress) = self.by_id.get_mut(&id) {
            *progress = ResponseProgress::Body(parser);
        }
    }

    /// Removes a failed request, and cancels the rest of its response.
    pub(super) fn failed(&mut self, id: RequestId, kind: FailureKind) {
        self.metrics.failed(id, kind);
        self.cancel(id);
    }

    /// Removes a request whose response has ended. Returns its parser, if the response had started.
    pub(super) fn ended(&mut self, id: RequestId) -> Option<Parser> {
        self.metrics.ended(id);
        match self.by_id.remove(&id)? {
            ResponseProgress::Body(parser) => Some(parser),
            ResponseProgress::AwaitingHead { .. } | ResponseProgress::Parsing => None,
        }
    }
}
