//! Open watch streams of a replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Control of one watch stream.
#[derive(Debug, Default)]
pub(crate) struct StreamControl {
    is_stalled: AtomicBool,
    is_ended: AtomicBool,
}

impl StreamControl {
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.store(is_stalled, Ordering::SeqCst);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::SeqCst)
    }
}

/// Open watch streams of a replica, in the order of their start.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<BTreeMap<u64, Arc<StreamControl>>>);

impl Streams {
    pub(crate) fn open(&self, request: u64) -> Arc<StreamControl> {
        let control = Arc::new(StreamControl::default());
        self.0.lock().insert(request, Arc::clone(&control));
        control
    }

    pub(crate) fn close(&self, request: u64) {
        self.0.lock().remove(&request);
    }

    /// Returns the controls of the open streams, with the numbers of their requests.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<StreamControl>)> {
        let streams = self.0.lock();
        streams.iter().map(|(&request, control)| (request, Arc::clone(control))).collect()
    }
}
