//! Acknowledgement: whoever handed a change over learns when all that it caused is settled.

use std::sync::{Arc, Mutex, PoisonError};

/// Calls back when the last clone was [`done`](Ticket::done) with; not at all where one was dropped before that.
#[derive(Clone)]
pub(crate) struct Ticket(Arc<Inner>);

struct Inner {
    left: Mutex<(usize, Option<Settled>)>,
}

/// What is called in the end.
type Settled = Box<dyn FnOnce() + Send>;

impl Ticket {
    /// Calls `settled` when it was done with as often as `times` says; at once where that is never.
    pub(crate) fn new(times: usize, settled: impl FnOnce() + Send + 'static) -> Self {
        if times == 0 {
            settled();
            return Self(Arc::new(Inner { left: Mutex::new((0, None)) }));
        }
        Self(Arc::new(Inner { left: Mutex::new((times, Some(Box::new(settled)))) }))
    }

    /// One of what the change caused is delivered, or is in the dead letters.
    pub(crate) fn done(&self) {
        let settled = {
            let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.0 = left.0.saturating_sub(1);
            if left.0 == 0 { left.1.take() } else { None }
        };
        if let Some(settled) = settled {
            settled();
        }
    }
}
