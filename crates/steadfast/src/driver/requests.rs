//! The requests under way, and how far the answer of each is.

use std::collections::BTreeMap;

use steadfast_core::decode::Encoding;
use steadfast_core::frame::{ItemFramer, StreamFramer};
use steadfast_core::record::ListMeta;
use steadfast_core::reflector::RequestId;

/// Cuts an answer into records.
pub(super) enum Parser {
    /// Of a stream.
    Stream(StreamFramer),
    /// Of a list, with its metadata once that has come.
    List(ItemFramer, Option<ListMeta>),
}

impl Parser {
    /// How what it reads is encoded.
    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Stream(framer) => framer.encoding(),
            Self::List(framer, _) => framer.encoding(),
        }
    }
}

/// How far an answer is.
enum Progress {
    /// It has not come.
    Awaited { is_stream: bool },
    /// It is on its way.
    Coming(Parser),
    /// A piece of it is being read.
    Read,
}

/// The requests under way.
#[derive(Default)]
pub(super) struct Requests {
    by_id: BTreeMap<RequestId, Progress>,
}

impl Requests {
    /// A request was sent.
    pub(super) fn sent(&mut self, id: RequestId, is_stream: bool) {
        self.by_id.insert(id, Progress::Awaited { is_stream });
    }

    /// The head of its answer came, in `encoding`; objects above `limit` bytes are not read.
    pub(super) fn opened(&mut self, id: RequestId, encoding: Encoding, limit: usize) {
        let parser = match self.by_id.get(&id) {
            Some(Progress::Awaited { is_stream: true }) => Parser::Stream(StreamFramer::new(encoding, limit)),
            _ => Parser::List(ItemFramer::new(encoding, limit), None),
        };
        self.by_id.insert(id, Progress::Coming(parser));
    }

    /// What reads the answer, for a piece of it that came; nothing of an answer that nobody waits for.
    pub(super) fn take(&mut self, id: RequestId) -> Option<Parser> {
        let progress = self.by_id.get_mut(&id).filter(|progress| matches!(progress, Progress::Coming(_)))?;
        match std::mem::replace(progress, Progress::Read) {
            Progress::Coming(parser) => Some(parser),
            Progress::Awaited { .. } | Progress::Read => None,
        }
    }

    /// The piece is read; unless it has shown that the request is over, more may come.
    pub(super) fn give_back(&mut self, id: RequestId, parser: Parser) {
        if let Some(progress) = self.by_id.get_mut(&id) {
            *progress = Progress::Coming(parser);
        }
    }

    /// The request is over; what has read its answer, if that had come.
    pub(super) fn over(&mut self, id: RequestId) -> Option<Parser> {
        match self.by_id.remove(&id)? {
            Progress::Coming(parser) => Some(parser),
            Progress::Awaited { .. } | Progress::Read => None,
        }
    }
}
