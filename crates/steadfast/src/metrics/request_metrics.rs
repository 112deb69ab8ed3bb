//! Results of an informer's requests, and the causes of its full transfers.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::reflector::{Diagnostic, FailureKind, Request, RequestId};

use super::informer_counters::InformerCounters;

/// Requests in flight, by index in [`REQUESTS`](super::informer_counters::REQUESTS).
pub(crate) struct RequestMetrics {
    counted: Arc<InformerCounters>,
    running: BTreeMap<RequestId, usize>,
    /// Cause of the next full transfer, as an index in [`CAUSES`](super::informer_counters::CAUSES).
    cause: usize,
}

/// Index in `CAUSES` of the first list of an informer.
const FIRST: usize = 0;
/// Index in `CAUSES` of a new epoch.
const NEW_EPOCH: usize = 9;
/// Index in `CAUSES` of a proof of freshness.
const PROOF: usize = 10;
/// Index in `CAUSES` of lost events.
const LOST: usize = 11;
/// Index in `OUTCOMES` of a cancelled request.
const CANCELLED: usize = 9;

impl RequestMetrics {
    pub(crate) fn new(counted: Arc<InformerCounters>) -> Self {
        Self { counted, running: BTreeMap::new(), cause: FIRST }
    }

    /// Records a sent request.
    pub(crate) fn sent(&mut self, id: RequestId, request: &Request) {
        let kind = match request {
            Request::StreamedList { .. } => 0,
            Request::Page { .. } => 1,
            Request::Watch { .. } => 2,
            // Includes probes served by another informer's response.
            Request::Probe { .. } => 3,
            Request::ShortWatch { .. } => 4,
            Request::Versions { .. } => 5,
            Request::Metadata { .. } => 6,
            Request::State { .. } => 7,
        };
        self.counted.sent[kind].count();
        self.running.insert(id, kind);
        // The later pages belong to the transfer that the first page started.
        let goes_on = matches!(
            request,
            Request::Page { continue_token: Some(_), .. } | Request::Metadata { continue_token: Some(_), .. }
        );
        if request.is_full_transfer() && !goes_on {
            self.counted.transfers[self.cause].count();
        }
    }

    /// Records a successful response head.
    pub(crate) fn opened(&self, id: RequestId) {
        if let Some(kind) = self.running.get(&id) {
            self.counted.opened[*kind].count();
        }
    }

    /// Records the regular end of a response.
    pub(crate) fn ended(&mut self, id: RequestId) {
        self.finish(id, 0);
    }

    /// Records a failed request or an interrupted response.
    pub(crate) fn failed(&mut self, id: RequestId, kind: FailureKind) {
        let place = match kind {
            FailureKind::Unreachable => 1,
            FailureKind::Expired => 2,
            FailureKind::TooLarge => 3,
            FailureKind::Busy => 4,
            FailureKind::Denied => 5,
            FailureKind::Invalid => 6,
            FailureKind::Unreadable => 7,
            FailureKind::Full => 8,
        };
        // A failed proof causes no list. A failed watch or list may cause one, and so may a failed delta list.
        let leads_to_a_list = |request| request <= 2 || request >= 6;
        if self.finish(id, place).is_some_and(leads_to_a_list) && self.cause != NEW_EPOCH {
            self.cause = place;
        }
    }

    /// Records a cancelled request.
    pub(crate) fn cancelled(&mut self, id: RequestId) {
        self.finish(id, CANCELLED);
    }

    /// Processes a diagnostic of the informer.
    pub(crate) fn diagnostic(&mut self, diagnostic: &Diagnostic) {
        self.counted.diagnostic(diagnostic);
        match diagnostic {
            // A later failure does not replace this cause: the new epoch requires a list in any case.
            Diagnostic::NewEpoch { .. } => self.cause = NEW_EPOCH,
            Diagnostic::Lost { .. } => self.cause = LOST,
            // A list without a preceding failure serves as a proof of freshness, or follows a record whose object could
            // not be identified.
            Diagnostic::Synced { .. } | Diagnostic::Relisted { .. } => self.cause = PROOF,
            _ => {}
        }
    }

    fn finish(&mut self, id: RequestId, outcome: usize) -> Option<usize> {
        let kind = self.running.remove(&id)?;
        self.counted.finished[kind][outcome].count();
        Some(kind)
    }
}
