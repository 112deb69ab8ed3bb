//! How much a server may send before it is read, and so how many answers may share a connection.

/// How much of one answer the server may send before it is read.
const STREAM_WINDOW: u32 = 4 << 20;

/// The most that a server may send of all answers on a connection together (RFC 9113, section 6.9.1).
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// How many answers may share a connection and still have windows as large as where nothing is agreed.
pub(super) const MOST_STREAMS: usize = (LARGEST_WINDOW / 65_535) as usize;

/// How much may be sent of one answer before it is read, and of all `streams` together: as much as of each, so that those
/// that nobody reads leave the others theirs.
pub(super) fn windows(streams: usize) -> (u32, u32) {
    let streams = u32::try_from(streams.clamp(1, MOST_STREAMS)).unwrap_or(u32::MAX);
    let window = STREAM_WINDOW.min(LARGEST_WINDOW / streams);
    (window, window * streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_do_not_read_leaves_the_others_their_windows() {
        for streams in [0, 1, 7, 100, 511, 512, 10_000, MOST_STREAMS, usize::MAX] {
            let (window, together) = windows(streams);
            let most = streams.clamp(1, MOST_STREAMS) as u64;
            assert!(u64::from(window) * most <= u64::from(together), "{streams}");
            assert!((65_535..=STREAM_WINDOW).contains(&window), "{streams}: {window}");
            assert!(together <= LARGEST_WINDOW, "{streams}");
        }
        assert_eq!(windows(100), (4 << 20, 400 << 20));
    }
}
