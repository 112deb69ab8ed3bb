//! Results of an informer's requests, and the causes of its full transfers.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::reflector::{Diagnostic, FailureKind, Request, RequestId};

use super::informer_counters::InformerCounters;

/// Requests in flight, by index in [`REQUESTS`](super::informer_counters::REQUESTS).
pub(crate) struct RequestMetrics {
    counters: Arc<InformerCounters>,
    kinds_in_flight: BTreeMap<RequestId, usize>,
    /// Cause of the next full transfer, as an index in [`CAUSES`](super::informer_counters::CAUSES).
    cause: usize,
}

/// Index in `CAUSES` of the first list of an informer.
const CAUSE_FIRST_LIST: usize = 0;
/// Index in `CAUSES` of a new epoch.
const CAUSE_NEW_EPOCH: usize = 9;
/// Index in `CAUSES` of a proof of freshness.
const CAUSE_PROOF: usize = 10;
/// Index in `CAUSES` of lost events.
const CAUSE_LOST_EVENTS: usize = 11;
/// Index in `OUTCOMES` of a cancelled request.
const OUTCOME_CANCELLED: usize = 9;

impl RequestMetrics {
    pub(crate) fn new(counters: Arc<InformerCounters>) -> Self {
        Self { counters, kinds_in_flight: BTreeMap::new(), cause: CAUSE_FIRST_LIST }
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
        self.counters.sent[kind].count();
        self.kinds_in_flight.insert(id, kind);
        // The later pages belong to the transfer that the first page started.
        let continues_transfer = matches!(
            request,
            Request::Page { continue_token: Some(_), .. } | Request::Metadata { continue_token: Some(_), .. }
        );
        if request.is_full_transfer() && !continues_transfer {
            self.counters.transfers[self.cause].count();
        }
    }

    /// Records a successful response head.
    pub(crate) fn opened(&self, id: RequestId) {
        if let Some(kind) = self.kinds_in_flight.get(&id) {
            self.counters.opened[*kind].count();
        }
    }

    /// Records the regular end of a response.
    pub(crate) fn ended(&mut self, id: RequestId) {
        self.finish(id, 0);
    }

    /// Records a failed request or an interrupted response.
    pub(crate) fn failed(&mut self, id: RequestId, kind: FailureKind) {
        let outcome = match kind {
            FailureKind::Unreachable => 1,
            FailureKind::Expired => 2,
            FailureKind::ResourceVersionTooLarge => 3,
            FailureKind::Busy => 4,
            FailureKind::Denied => 5,
            FailureKind::Invalid => 6,
            FailureKind::Unreadable => 7,
            FailureKind::CacheFull => 8,
        };
        // A failed proof causes no list. A failed watch or list may cause one, and so may a failed delta list.
        let leads_to_a_list = |request| request <= 2 || request >= 6;
        if self.finish(id, outcome).is_some_and(leads_to_a_list) && self.cause != CAUSE_NEW_EPOCH {
            self.cause = outcome;
        }
    }

    /// Records a cancelled request.
    pub(crate) fn cancelled(&mut self, id: RequestId) {
        self.finish(id, OUTCOME_CANCELLED);
    }

    /// Processes a diagnostic of the informer.
    pub(crate) fn diagnostic(&mut self, diagnostic: &Diagnostic) {
        self.counters.diagnostic(diagnostic);
        match diagnostic {
            // A later failure does not replace this cause: the new epoch requires a list with or without that failure.
            Diagnostic::NewEpoch { .. } => self.cause = CAUSE_NEW_EPOCH,
            Diagnostic::Lost { .. } => self.cause = CAUSE_LOST_EVENTS,
            // A list without a preceding failure serves as a proof of freshness, or follows a record whose object could
            // not be identified.
            Diagnostic::Synced { .. } | Diagnostic::Relisted { .. } => self.cause = CAUSE_PROOF,
            _ => {}
        }
    }

    fn finish(&mut self, id: RequestId, outcome: usize) -> Option<usize> {
        let kind = self.kinds_in_flight.remove(&id)?;
        self.counters.finished[kind][outcome].count();
        Some(kind)
    }
}
