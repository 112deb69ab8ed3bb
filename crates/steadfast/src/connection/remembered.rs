//! What was found out about resources of a server, for a while.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use steadfast_core::Instant;

/// Resources, by their paths in all namespaces, and until when something holds for each.
#[derive(Default)]
pub(super) struct Remembered {
    until: Mutex<BTreeMap<String, Instant>>,
}

impl Remembered {
    /// It holds for the resource until then.
    pub(super) fn remember(&self, everywhere: &str, until: Instant) {
        self.until.lock().unwrap_or_else(PoisonError::into_inner).insert(everywhere.to_owned(), until);
    }

    /// Until when it holds for the resource, where it does at `now`.
    pub(super) fn until(&self, everywhere: &str, now: Instant) -> Option<Instant> {
        let mut all = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, until| *until > now);
        all.get(everywhere).copied()
    }
}
