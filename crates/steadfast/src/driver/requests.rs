//! Requests in flight and the progress of their responses.

use std::collections::BTreeMap;

use steadfast_core::decode::Encoding;
use steadfast_core::frame::{ItemFramer, StreamFramer};
use steadfast_core::record::ListMeta;
use steadfast_core::reflector::RequestId;

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
#[derive(Default)]
pub(super) struct Requests {
    by_id: BTreeMap<RequestId, ResponseProgress>,
}

impl Requests {
    /// Records a sent request.
    pub(super) fn sent(&mut self, id: RequestId, is_stream: bool) {
        self.by_id.insert(id, ResponseProgress::AwaitingHead { is_stream });
    }

    /// Records a response head with `encoding`. Objects above `limit` bytes are skipped.
    pub(super) fn opened(&mut self, id: RequestId, encoding: Encoding, limit: usize) {
        let parser = match self.by_id.get(&id) {
            Some(ResponseProgress::AwaitingHead { is_stream: true }) => {
                Parser::Stream(StreamFramer::new(encoding, limit))
            }
            _ => Parser::List(ItemFramer::new(encoding, limit), None),
        };
        self.by_id.insert(id, ResponseProgress::Body(parser));
    }

    /// Takes the parser for a chunk of the body. Returns `None` for a cancelled request.
    pub(super) fn take(&mut self, id: RequestId) -> Option<Parser> {
        let progress = self.by_id.get_mut(&id).filter(|progress| matches!(progress, ResponseProgress::Body(_)))?;
        // The parser leaves the map during the chunk, because a record in the chunk may cancel its own request.
        match std::mem::replace(progress, ResponseProgress::Parsing) {
            ResponseProgress::Body(parser) => Some(parser),
            ResponseProgress::AwaitingHead { .. } | ResponseProgress::Parsing => None,
        }
    }

    /// Returns the parser after the chunk, unless the request has ended in the meantime.
    pub(super) fn give_back(&mut self, id: RequestId, parser: Parser) {
        if let Some(progress) = self.by_id.get_mut(&id) {
            *progress = ResponseProgress::Body(parser);
        }
    }

    /// Removes a finished request. Returns its parser, if the response had started.
    pub(super) fn finish(&mut self, id: RequestId) -> Option<Parser> {
        match self.by_id.remove(&id)? {
            ResponseProgress::Body(parser) => Some(parser),
            ResponseProgress::AwaitingHead { .. } | ResponseProgress::Parsing => None,
        }
    }
}
