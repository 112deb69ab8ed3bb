//! Choice of the next probe of an endpoint, and of the size of pages.

use steadfast::environment::Instant;

use crate::message::AuditQuery;
use crate::settings::AuditSettings;
use crate::stream::{AuditStream, DiagnosisPhase};

/// Interval of the consistent reads, as a number of probes of an endpoint.
const READ_INTERVAL: u64 = 3;

/// Intended number of pages of a list of medium size. The last page must arrive before the version of the list is compacted, after 5 minutes.
const PAGES: u64 = 64;

/// Returns the maximum number of objects in a page. The `divisor` grows after pages that were too large to use.
pub(crate) fn page_limit(count: u64, divisor: u64) -> u64 {
    (count / PAGES).clamp(500, 5000) / divisor
}

/// Returns resource and content of the next probe of an endpoint.
///
/// A stream that has not delivered a known change comes first, then the stream with the longest silence. Otherwise, and
/// in each third probe, the probe is a consistent read.
pub(crate) fn next_probe(
    now: Instant,
    endpoint: usize,
    probes: u64,
    streams: &[&AuditStream],
    settings: &AuditSettings,
) -> (usize, AuditQuery) {
    let duration = settings.short_watch_duration;
    let is_read_due = probes.is_multiple_of(READ_INTERVAL);
    if !is_read_due {
        for (resource, stream) in streams.iter().enumerate() {
            let Some(diagnosis) = stream.diagnosis.filter(|diagnosis| diagnosis.not_before <= now) else { continue };
            let query = match diagnosis.phase {
                DiagnosisPhase::Cache => AuditQuery::Reached { version: diagnosis.version },
                DiagnosisPhase::Watch => AuditQuery::ShortWatch { from: stream.position, duration },
            };
            return (resource, query);
        }
        let last_sign = |stream: &AuditStream| stream.last_record.max(stream.last_check);
        let silent = streams.iter().enumerate().filter(|(_, stream)| {
            stream.open_since().is_some() && now.since(last_sign(stream)) >= settings.verify_after_silence
        });
        if let Some((resource, stream)) = silent.min_by_key(|(_, stream)| last_sign(stream)) {
            return (resource, AuditQuery::ShortWatch { from: stream.position.max(stream.verified), duration });
        }
    }
    // The endpoints start with different resources.
    let number = probes / READ_INTERVAL + endpoint as u64;
    ((number % streams.len() as u64) as usize, AuditQuery::Newest)
}
