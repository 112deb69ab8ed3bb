//! Lines of a log, with a maximum length: a hostile pod could write a line without an end.

use std::io;
use std::pin::Pin;

use futures::io::{AsyncBufRead, AsyncBufReadExt};

/// A line of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RawLine {
    /// The line without its end, up to the maximum length.
    pub(crate) bytes: Vec<u8>,
    /// Number of bytes that were left out.
    pub(crate) truncated_bytes: u64,
    /// False if the response ended within the line.
    pub(crate) is_complete: bool,
}

/// Reads the next line; returns `None` at the end of the log. The rest of a line with more than `max_bytes` is left
/// out.
pub(crate) async fn next_line(
    mut log: Pin<&mut (impl AsyncBufRead + ?Sized)>,
    max_bytes: usize,
) -> io::Result<Option<RawLine>> {
    let mut line = RawLine::default();
    let mut is_empty = true;
    loop {
        let chunk = log.fill_buf().await?;
        if chunk.is_empty() {
            return Ok((!is_empty).then_some(line));
        }
        is_empty = false;
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let kept = part.len().min(max_bytes - line.bytes.len());
        line.bytes.extend_from_slice(&part[..kept]);
        line.truncated_bytes += (part.len() - kept) as u64;
        let consumed = part.len() + usize::from(end.is_some());
        log.as_mut().consume(consumed);
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

    const MAX_BYTES: usize = 1024;

    #[tokio::test]
    async fn long_and_partial_lines_are_bounded() {
        let text = format!("a\n\n{}\nrest", "x".repeat(MAX_BYTES + 5));
        let mut reader = Cursor::new(text.into_bytes());
        let mut next = async || next_line(Pin::new(&mut reader), MAX_BYTES).await.expect("readable");
        let line = |bytes: &[u8], is_complete| RawLine { bytes: bytes.to_vec(), truncated_bytes: 0, is_complete };
        assert_eq!(next().await, Some(line(b"a", true)));
        assert_eq!(next().await, Some(line(b"", true)));
        let long = next().await.expect("a line");
        assert_eq!((long.bytes.len(), long.truncated_bytes, long.is_complete), (MAX_BYTES, 5, true));
        assert_eq!(next().await, Some(line(b"rest", false)));
        assert_eq!(next().await, None);
    }
}
