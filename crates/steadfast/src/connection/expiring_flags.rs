//! Temporary knowledge about a server's resources.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use steadfast_core::Instant;

/// One fact about each of several resources, with its expiry. The path in all namespaces identifies a resource.
#[derive(Default)]
pub(super) struct ExpiringFlags {
    expiries: Mutex<BTreeMap<String, Instant>>,
}

impl ExpiringFlags {
    /// Records the fact for the resource until `until`.
    pub(super) fn remember(&self, all_namespaces_path: &str, until: Instant) {
        self.expiries.lock().insert(all_namespaces_path.to_owned(), until);
    }

    /// Returns the expiry for the resource, unless it is at or before `now`.
    pub(super) fn expiry(&self, all_namespaces_path: &str, now: Instant) -> Option<Instant> {
        let mut expiries = self.expiries.lock();
        // Expired entries of all resources are removed here, so that the map cannot grow without bound.
        expiries.retain(|_, until| *until > now);
        expiries.get(all_namespaces_path).copied()
    }
}
