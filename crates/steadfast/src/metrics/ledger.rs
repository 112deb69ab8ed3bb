//! What becomes of each of an informer's requests, and why whole collections are transferred.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::reflector::{FailureKind, Note, Request, RequestId};

use super::counted::Counted;

/// The requests under way, by their place in [`REQUESTS`](super::counted::REQUESTS).
pub(crate) struct Ledger {
    counted: Arc<Counted>,
    running: BTreeMap<RequestId, usize>,
    /// Why the next full transfer is made, by its place in [`CAUSES`](super::counted::CAUSES).
    cause: usize,
}

/// Its place in `CAUSES`.
const FIRST: usize = 0;
/// Its place in `CAUSES`.
const NEW_EPOCH: usize = 9;
/// Its place in `CAUSES`.
const PROOF: usize = 10;
/// Its place in `CAUSES`.
const LOST: usize = 11;
/// The place in `OUTCOMES` of a request that nobody waits for any more.
const CANCELLED: usize = 9;

impl Ledger {
    pub(crate) fn new(counted: Arc<Counted>) -> Self {
        Self { counted, running: BTreeMap::new(), cause: FIRST }
    }

    /// A request was sent.
    pub(crate) fn sent(&mut self, id: RequestId, request: &Request) {
        let kind = match request {
            Request::StreamedList { .. } => 0,
            Request::Page { .. } => 1,
            Request::Watch { .. } => 2,
            // Also one that another informer's answer serves.
            Request::Probe { .. } => 3,
            Request::ShortWatch { .. } => 4,
            Request::Versions { .. } => 5,
            Request::Metadata { .. } => 6,
            Request::State { .. } => 7,
        };
        self.counted.sent[kind].count();
        self.running.insert(id, kind);
        // The pages after the first belong to the transfer that it began.
        let goes_on = matches!(
            request,
            Request::Page { continue_token: Some(_), .. } | Request::Metadata { continue_token: Some(_), .. }
        );
        if request.is_full_transfer() && !goes_on {
            self.counted.transfers[self.cause].count();
        }
    }

    /// The head of an answer came, and it is a good one.
    pub(crate) fn opened(&self, id: RequestId) {
        if let Some(kind) = self.running.get(&id) {
            self.counted.opened[*kind].count();
        }
    }

    /// An answer came to its regular end.
    pub(crate) fn ended(&mut self, id: RequestId) {
        self.over(id, 0);
    }

    /// A request failed or its answer broke off.
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
        // A proof that fails is no reason to list; a watch or a list that does may be, be it one by difference.
        let leads_to_a_list = |request| request <= 2 || request >= 6;
        if self.over(id, place).is_some_and(leads_to_a_list) && self.cause != NEW_EPOCH {
            self.cause = place;
        }
    }

    /// A request is given up.
    pub(crate) fn cancelled(&mut self, id: RequestId) {
        self.over(id, CANCELLED);
    }

    /// The informer notes something of itself.
    pub(crate) fn note(&mut self, note: &Note) {
        self.counted.note(note);
        match note {
            Note::NewEpoch { .. } => self.cause = NEW_EPOCH,
            Note::Lost { .. } => self.cause = LOST,
            // What no failure led to is a list for its own sake: the only proof there is, or to name what is unnamed.
            Note::Synced { .. } | Note::Relisted { .. } => self.cause = PROOF,
            _ => {}
        }
    }

    fn over(&mut self, id: RequestId, outcome: usize) -> Option<usize> {
        let kind = self.running.remove(&id)?;
        self.counted.over[kind][outcome].count();
        Some(kind)
    }
}
