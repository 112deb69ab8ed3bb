//! Diagnostics of one informer, in the order of the records that caused them.

use steadfast_core::ObjectKey;
use steadfast_core::reflector::{Diagnostic, Severity};

use super::log_throttle::LogThrottle;
use crate::metrics::request_metrics::RequestMetrics;
use crate::shared::Shared;

/// Diagnostics in their order of delivery. A diagnostic of an object that is decoded later is inserted at its place.
#[derive(Default)]
pub(super) struct OrderedDiagnostics {
    diagnostics: Vec<Diagnostic>,
    /// Number of diagnostics that were inserted late.
    late_count: usize,
}

impl OrderedDiagnostics {
    /// Appends a diagnostic.
    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// Returns the place for a diagnostic that may follow later: the number of diagnostics that were appended so far.
    pub(super) fn next_place(&self) -> usize {
        self.diagnostics.len() - self.late_count
    }

    /// Inserts a late diagnostic at `place`. Late diagnostics must be inserted in the order of their places.
    pub(super) fn insert_late(&mut self, place: usize, diagnostic: Diagnostic) {
        self.diagnostics.insert(place + self.late_count, diagnostic);
        self.late_count += 1;
    }

    fn take(&mut self) -> Vec<Diagnostic> {
        self.late_count = 0;
        std::mem::take(&mut self.diagnostics)
    }
}

/// Diagnostics that were not delivered yet.
#[derive(Default)]
pub(super) struct DiagnosticQueue {
    /// Delivered by the next flush.
    pub(super) pending: OrderedDiagnostics,
    /// Delivered after the list in progress is complete. An incomplete list may be repeated many times.
    pub(super) listed: OrderedDiagnostics,
    log_throttle: LogThrottle,
    /// True after objects without a UID were reported.
    has_reported_missing_uid: bool,
}

impl DiagnosticQueue {
    /// Queues a diagnostic for the next flush.
    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.pending.push(diagnostic);
    }

    /// Queues the diagnostics of a complete list for the next flush.
    pub(super) fn list_completed(&mut self) {
        self.pending.diagnostics.append(&mut self.listed.take());
    }

    /// Discards the diagnostics of an abandoned list.
    pub(super) fn list_abandoned(&mut self) {
        self.listed.take();
    }

    /// Reports objects without a UID, once (C1). `key` names the first such object.
    pub(super) fn missing_uid(&mut self, key: &ObjectKey) {
        if !std::mem::replace(&mut self.has_reported_missing_uid, true) {
            self.push(Diagnostic::IdentifiedByName { key: key.clone() });
        }
    }

    /// Logs, counts and delivers all queued diagnostics.
    ///
    /// The callbacks are user code and may call the informer, so no lock may be held.
    pub(super) fn deliver<K: Send + Sync + 'static>(&mut self, shared: &Shared<K>, metrics: &mut RequestMetrics) {
        for diagnostic in self.pending.take() {
            metrics.diagnostic(&diagnostic);
            self.log(shared, &diagnostic);
            shared.report(&diagnostic);
        }
        if let Some(more) = self.log_throttle.sum(shared.environment.now()) {
            let informer = &shared.name;
            tracing::warn!(%informer, "{more} more objects cannot be decoded; the debug log and the diagnostics name each of them");
        }
    }

    fn log<K: Send + Sync + 'static>(&mut self, shared: &Shared<K>, diagnostic: &Diagnostic) {
        let informer = &shared.name;
        let is_throttled =
            matches!(diagnostic, Diagnostic::Undecodable { .. }) && !self.log_throttle.names(shared.environment.now());
        match (diagnostic.severity(), diagnostic) {
            (Severity::Fault, Diagnostic::Failed { code, reason, .. }) => {
                // Fields without a value are absent from the log line.
                tracing::warn!(%informer, code, reason = reason.as_deref(), "{diagnostic}");
            }
            (Severity::Fault, _) if !is_throttled => tracing::warn!(%informer, "{diagnostic}"),
            (Severity::Fault | Severity::Routine, _) => tracing::debug!(%informer, "{diagnostic}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::environment::Environment;
    use crate::environment::local::LocalEnvironment;

    fn diagnostic(number: usize) -> Diagnostic {
        Diagnostic::IdentifiedByName { key: ObjectKey::cluster(number.to_string()) }
    }

    /// Some records cause a diagnostic immediately, others after a later decode. The order must be that of the records.
    #[tokio::test(start_paused = true)]
    async fn late_diagnostics_keep_record_order() {
        for seed in 0..500 {
            let environment = LocalEnvironment::new(seed, |_, _| unreachable!("the test dials no address"));
            let random = |below: u64| environment.random() % below;
            let mut queue = OrderedDiagnostics::default();
            let mut pending_decodes = VecDeque::new();
            let mut expected = Vec::new();
            for record in 0..random(40) as usize {
                if random(2) == 0 {
                    queue.push(diagnostic(record));
                    expected.push(record);
                } else {
                    // Only some objects fail to decode.
                    let fails = random(2) == 0;
                    pending_decodes.push_back((queue.next_place(), record, fails));
                    if fails {
                        expected.push(record);
                    }
                }
                while random(3) == 0
                    && let Some((place, record, fails)) = pending_decodes.pop_front()
                {
                    if fails {
                        queue.insert_late(place, diagnostic(record));
                    }
                }
            }
            for (place, record, fails) in pending_decodes {
                if fails {
                    queue.insert_late(place, diagnostic(record));
                }
            }
            let keys = queue.take().into_iter().map(|diagnostic| match diagnostic {
                Diagnostic::IdentifiedByName { key } => key.name().parse().expect("a number"),
                other => panic!("{other}"),
            });
            assert_eq!(keys.collect::<Vec<usize>>(), expected, "seed {seed}");
            assert_eq!(queue.next_place(), 0, "seed {seed}: a taken queue is empty");
        }
    }
}
