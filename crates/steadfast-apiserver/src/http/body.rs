//! Response bodies, and the record of their sent bytes and of their end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, Frame, SizeHint};

use crate::records::RequestEntry;

/// Approximate chunk size of bodies that are generated on demand, in bytes.
pub(super) const CHUNK_BYTES: usize = 32 * 1024;

/// Chunks of a body, generated on demand.
pub(super) type Chunks = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Body of a response.
pub(crate) struct ResponseBody {
    content: BodySource,
    entry: Arc<RequestEntry>,
}

enum BodySource {
    Whole(Option<Bytes>),
    Chunks(Chunks),
}

impl ResponseBody {
    pub(super) fn whole(bytes: Bytes, entry: Arc<RequestEntry>) -> Self {
        Self { content: BodySource::Whole((!bytes.is_empty()).then_some(bytes)), entry }
    }

    pub(super) fn chunks(chunks: Chunks, entry: Arc<RequestEntry>) -> Self {
        Self { content: BodySource::Chunks(chunks), entry }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let chunk = match &mut self.content {
            BodySource::Whole(bytes) => bytes.take(),
            BodySource::Chunks(chunks) => ready!(chunks.as_mut().poll_next(context)),
        };
        match &chunk {
            Some(bytes) => self.entry.record_sent(bytes.len()),
            None => self.entry.finish(),
        }
        Poll::Ready(chunk.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, BodySource::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodySource::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            BodySource::Chunks(_) => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // A client may disconnect before the end of the body.
        self.entry.finish();
    }
}
