//! Flow-control windows, and the resulting maximum number of streams.

/// Maximum unread data of one response in bytes.
const STREAM_WINDOW: u32 = 4 << 20;

/// Maximum window of a connection in bytes (RFC 9113, section 6.9.1).
const MAX_WINDOW: u32 = (1 << 31) - 1;

/// Maximum number of streams on a connection with at least the default window of HTTP/2 for each.
pub(super) const MAX_STREAMS: usize = (MAX_WINDOW / 65_535) as usize;

/// Returns the stream window and the connection window for `streams`. The latter is the sum of all stream windows, so
/// that unread responses do not block others.
pub(super) fn windows(streams: usize) -> (u32, u32) {
    let streams = u32::try_from(streams.clamp(1, MAX_STREAMS)).unwrap_or(u32::MAX);
    let window = STREAM_WINDOW.min(MAX_WINDOW / streams);
    (window, window * streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_responses_leave_other_windows() {
        for streams in [0, 1, 7, 100, 511, 512, 10_000, MAX_STREAMS, usize::MAX] {
            let (window, together) = windows(streams);
            let most = streams.clamp(1, MAX_STREAMS) as u64;
            assert!(u64::from(window) * most <= u64::from(together), "{streams}");
            assert!((65_535..=STREAM_WINDOW).contains(&window), "{streams}: {window}");
            assert!(together <= MAX_WINDOW, "{streams}");
        }
        assert_eq!(windows(100), (4 << 20, 400 << 20));
    }
}
