//! Counts of the requests and of the sent bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of the server.
#[derive(Default)]
pub(super) struct Served {
    lists: AtomicU64,
    bytes: AtomicU64,
}

impl Served {
    /// Counts a list, a page of one, or a stream with all objects.
    pub(super) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes of a response that were passed to HTTP.
    pub(super) fn count_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
