//! Upload of a request body over HTTP/2.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures::FutureExt;
use h2::{Reason, SendStream};
use http_body::Body as _;
use http_body_util::BodyExt;
use kube::client::Body;
use steadfast_core::cause::root_cause;

use super::error::TransportError;
use crate::environment::{SharedEnvironment, Task};

/// Returns the content of `body` if it is completely in memory, else `body`.
pub(super) fn buffered(mut body: Body) -> Result<Bytes, Body> {
    // Only a body in memory can be cloned. Polling any other body may run user code.
    if body.try_clone().is_none() {
        return Err(body);
    }
    let frame = body.frame().now_or_never().flatten().and_then(Result::ok);
    Ok(frame.and_then(|frame| frame.into_data().ok()).unwrap_or_default())
}

/// Upload in progress, aborted when dropped.
pub(super) struct Upload {
    task: Task,
    /// Error of the body's source.
    failed: Arc<OnceLock<String>>,
}

impl Upload {
    /// Sends `body` on `stream`.
    pub(super) fn begin(body: Body, stream: SendStream<Bytes>, environment: &SharedEnvironment) -> Self {
        let failed = Arc::default();
        // The body may run user code.
        let task = environment.spawn_user_task(Box::pin(upload(body, stream, Arc::clone(&failed))));
        Self { task, failed }
    }

    /// Returns the error of a request to `peer` whose body failed.
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
                // Stored before the stream ends, so that the task that waits for the response finds it.
                failed.get_or_init(|| root_cause(&error));
                stream.send_reset(Reason::CANCEL);
                return;
            }
        };
        let Ok(mut data) = frame.into_data() else { continue };
        let last = body.is_end_stream();
        while !data.is_empty() {
            // A data frame needs flow-control window. Without the wait, h2 would buffer the whole body in memory.
            stream.reserve_capacity(data.len());
            let Some(Ok(capacity)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
            let piece = data.split_to(capacity.min(data.len()));
            let ended = last && data.is_empty();
            if stream.send_data(piece, ended).is_err() || ended {
                return;
            }
        }
        if last {
            break;
        }
    }
    // The stream may have ended; the task that waits for the response reports that.
    drop(stream.send_data(Bytes::new(), true));
}
