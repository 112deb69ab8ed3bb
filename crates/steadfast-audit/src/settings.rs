//! Settings of an audit.

use std::time::Duration;

/// Intervals and limits of an audit.
///
/// The bounds of the documentation hold for the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AuditSettings {
    /// Interval between the comparisons of a resource with a list. Defaults to 10 minutes.
    pub period: Duration,
    /// Minimum delay of a change on a watch to count as late. Defaults to 10 s.
    pub late_after: Duration,
    /// Interval of the probes of an endpoint. Defaults to 5 s.
    pub probe_interval: Duration,
    /// Deadline of a probe. Defaults to 6 s.
    pub probe_deadline: Duration,
    /// Duration of a short watch, which verifies a silent stream. Defaults to 3 s.
    pub short_watch_duration: Duration,
    /// Duration of silence after which a short watch verifies a stream. Defaults to 20 s.
    pub verify_after_silence: Duration,
    /// Minimum interval between two pages of lists, over all resources. Defaults to 2.5 s.
    pub page_interval: Duration,
    /// Time without a bookmark after which bookmarks count as missing. Defaults to 5 minutes.
    pub bookmark_timeout: Duration,
    /// Seed of the hash of object names, and of the jitter.
    pub seed: u64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(600),
            late_after: Duration::from_secs(10),
            probe_interval: Duration::from_secs(5),
            probe_deadline: Duration::from_secs(6),
            short_watch_duration: Duration::from_secs(3),
            verify_after_silence: Duration::from_secs(20),
            page_interval: Duration::from_millis(2500),
            bookmark_timeout: Duration::from_secs(300),
            seed: 0,
        }
    }
}
