//! What was asked for, and what was sent.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the server has done so far.
#[derive(Default)]
pub(super) struct Served {
    lists: AtomicU64,
    bytes: AtomicU64,
}

impl Served {
    /// A list was asked for, a page of it, or a stream that begins with all objects.
    pub(super) fn list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes of an answer were handed to HTTP.
    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}
