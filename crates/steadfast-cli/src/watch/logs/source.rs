//! Source of logs: the API server.

use std::pin::Pin;

use futures::future::BoxFuture;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use steadfast::unstable::cause::root_cause;

/// Maximum length of a log line in bytes. The rest of a longer line is left out.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024;

/// Response with a log.
pub(super) type LogReader = Pin<Box<dyn AsyncBufRead + Send>>;

/// Request for the log of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRequest {
    pub(super) since: Option<Timestamp>,
    /// Requests the log of the ended instance before the current one.
    pub(super) previous: bool,
    /// Keeps the response open until the instance ends.
    pub(super) follow: bool,
}

/// Failure of a request or its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogError {
    /// HTTP status of a rejected request.
    pub(super) code: Option<u16>,
    pub(super) reason: String,
}

/// Source of the log of a container.
pub(super) trait LogSource: Send + Sync + 'static {
    /// Opens the log.
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogReader, LogError>>;
}

/// Log of a container on a server.
pub(super) struct ServerLog {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
}

impl LogSource for ServerLog {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogReader, LogError>> {
        let parameters = LogParams {
            container: Some(self.container.clone()),
            follow: request.follow,
            previous: request.previous,
            since_time: request.since,
            timestamps: true,
            ..LogParams::default()
        };
        Box::pin(async move {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
            match api.log_stream(&self.pod, &parameters).await {
                Ok(reader) => Ok(Box::pin(reader) as LogReader),
                Err(kube::Error::Api(status)) => Err(LogError { code: Some(status.code), reason: status.message }),
                Err(error) => Err(LogError { code: None, reason: root_cause(&error) }),
            }
        })
    }
}

/// A line of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RawLine {
    /// The line without its end, in at most [`MAX_LINE_BYTES`].
    pub(super) bytes: Vec<u8>,
    /// Number of bytes that were left out.
    pub(super) left_out: u64,
    /// False if the response ended within the line.
    pub(super) is_complete: bool,
}

/// Reads the next line; returns `None` at the end of the response.
pub(super) async fn next_line(reader: &mut LogReader) -> Result<Option<RawLine>, LogError> {
    let mut line = RawLine::default();
    let mut is_empty = true;
    loop {
        let chunk = reader.fill_buf().await.map_err(|error| LogError { code: None, reason: error.to_string() })?;
        if chunk.is_empty() {
            return Ok((!is_empty).then_some(line));
        }
        is_empty = false;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let kept = part.len().min(MAX_LINE_BYTES - line.bytes.len());
        line.bytes.extend_from_slice(&part[..kept]);
        line.left_out += (part.len() - kept) as u64;
        let consumed = part.len() + usize::from(end.is_some());
        reader.as_mut().consume(consumed);
        if end.is_some() {
            line.is_complete = true;
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;

    use super::*;

    #[tokio::test]
    async fn long_and_partial_lines_are_bounded() {
        let text = format!("a\n\n{}\nrest", "x".repeat(MAX_LINE_BYTES + 5));
        let mut reader: LogReader = Box::pin(Cursor::new(text.into_bytes()));
        let mut next = async || next_line(&mut reader).await.expect("readable");
        let line = |bytes: &[u8], is_complete| RawLine { bytes: bytes.to_vec(), left_out: 0, is_complete };
        assert_eq!(next().await, Some(line(b"a", true)));
        assert_eq!(next().await, Some(line(b"", true)));
        let long = next().await.expect("a line");
        assert_eq!((long.bytes.len(), long.left_out, long.is_complete), (MAX_LINE_BYTES, 5, true));
        assert_eq!(next().await, Some(line(b"rest", false)));
        assert_eq!(next().await, None);
    }
}
