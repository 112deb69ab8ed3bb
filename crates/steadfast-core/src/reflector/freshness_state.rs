//! Effects of proofs, streams and failures on the evidence of freshness and on the state of the cache.

use std::sync::Arc;

use super::Reflector;
use super::comparison::WITHOUT_BOOKMARKS;
use super::diagnostic::Diagnostic;
use super::failure::{Failure, FailureKind};
use super::output::Output;
use super::phase::Phase;
use crate::fault_injection::inject;
use crate::freshness::FreshnessState;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Cause of the doubt that starts if an open stream has had no proof for two periods.
const UNPROVEN: &str = "no proof of freshness within two periods";

/// Cause of the doubt about a stream that was opened after a freeze.
const FROZEN: &str = "the process did not run for some time; no proof of freshness has arrived since";

impl Reflector {
    /// Advances to `version`. This is a proof of freshness, unless a stream broke and no proof has arrived since (C10):
    /// the record may belong to a backlog that has accumulated since the break, or to a replica that lags.
    pub(super) fn advance_to(&mut self, now: Instant, version: ResourceVersion) {
        self.cache.advance(now, version);
        if let Phase::Watching(watch) = &mut self.phase {
            watch.mark_proven();
        }
        self.polling.forget_failures();
        // A working watch replaces the polls.
        if self.polling.is_active() {
            self.end_polling();
            self.set_stream_open(now);
        }
        if self.probe.is_unproven_since_break(&self.cache) {
            self.advance_after_break(now);
        } else {
            self.record_proof(now, now);
        }
    }

    /// Handles a record after a stream broke. Rare, so it is not part of the path of each record.
    #[cold]
    fn advance_after_break(&mut self, now: Instant) {
        match self.probe.proof_after_break(now, &self.cache) {
            Some(proven_at) => self.record_proof(now, proven_at),
            None => self.record_progress(now),
        }
    }

    /// Records a complete list that is consistent (`is_consistent`), or newer than the cache was. If the list is a proof,
    /// it proves the state at the time of its request. The duration of the transfer has no influence.
    pub(super) fn record_list(&mut self, now: Instant, is_consistent: bool) {
        let is_late = inject!(self.cache.faults(), LateList);
        let requested = if is_late { now } else { self.list_requested };
        // A consistent read is a proof. Any other list comes from the watch cache of the responding server. That server
        // may lag although its list is newer than our cache, so the conditions are those for a record after a break.
        let proven_at =
            if is_consistent { Some(requested) } else { self.probe.proof_after_break(requested, &self.cache) };
        match proven_at {
            Some(proven_at) => self.record_proof(now, proven_at),
            None => self.record_progress(now),
        }
    }

    /// Records that the server works: it has delivered a change, or a proof. Resets the backoff for failures (R6).
    #[inline]
    fn record_progress(&mut self, now: Instant) {
        self.delta_policy.decay(now);
        self.backoffs.failures.reset();
        self.cache.evidence.attempts = self.backoffs.attempts();
    }

    /// Records a proof that the cache has all changes up to `proven_at`. The proof also resets the backoff for failures
    /// (R6).
    pub(super) fn record_proof(&mut self, now: Instant, proven_at: Instant) {
        // Proofs may arrive out of order. The newest state counts.
        let proven_at = self.cache.evidence.proven.map_or(proven_at, |earlier| earlier.max(proven_at));
        self.cache.evidence.proven = Some(proven_at);
        self.record_progress(now);
        self.cache.evidence.max_fresh_age = self.cache.bookmark_interval.period() * 2;
        self.probe.proven(proven_at, &self.cache.bookmark_interval, &mut self.requester);
        // A proof alone does not end `Resuming`: without an open stream, later changes would be
        // missed.
        match self.cache.evidence.state {
            FreshnessState::Suspect => self.set_stream_open(now),
            FreshnessState::Resuming if self.is_streaming() => self.set_stream_open(now),
            _ => {}
        }
    }

    /// Handles a proof of the state at `proven_at` that a request alongside the watch has provided.
    pub(super) fn handle_proof(&mut self, now: Instant, proven_at: Instant, out: &mut Vec<Output>) {
        let is_late = inject!(self.cache.faults(), LateProof);
        if self.probe.proof_found(&self.cache) {
            self.cache.bookmark_interval.confirm_silence();
        }
        self.polling.forget_failures();
        let was_suspect = self.cache.is_suspect();
        self.record_proof(now, if is_late { now } else { proven_at });
        // Routine proofs stay silent; the end of a doubt is logged.
        if was_suspect && !self.cache.is_suspect() {
            out.push(Output::Diagnostic(Diagnostic::Proven));
        }
    }

    /// Processes [`Input::Frozen`](super::Input::Frozen). Unread records of a stream may precede the end of the freeze.
    /// They are no proofs until the stream has reached the version of a later probe (C10).
    ///
    /// The last proof remains valid, and its age includes the freeze. The state therefore does not change.
    pub(super) fn handle_freeze(&mut self, now: Instant, out: &mut Vec<Output>) {
        let reads_stream = match &self.phase {
            Phase::Watching(_) => true,
            // The records after the initial events are those of the watch.
            Phase::Listing(list) => list.is_streamed,
            _ => false,
        };
        if !reads_stream {
            return;
        }
        out.extend(self.probe.set_frozen(now));
        if self.is_streaming() {
            self.probe.schedule.request_soon(now, &mut self.requester);
        }
    }

    /// Returns whether a watch is open.
    pub(super) fn is_streaming(&self) -> bool {
        matches!(&self.phase, Phase::Watching(watch) if watch.is_open())
    }

    /// Records the health of a watch that was open for some time, independent of the cause of its end (R6).
    pub(super) fn record_watch_health(&mut self, now: Instant) {
        if let Phase::Watching(watch) = &self.phase
            && watch.healthy_at(&self.cache.settings).is_some_and(|healthy| now >= healthy)
        {
            self.backoffs.stream_stayed_open();
            if self.polling.is_active() {
                self.end_polling();
                self.set_stream_open(now);
            }
        }
    }

    /// Ends polling, because a watch works or because lists fail too.
    pub(super) fn end_polling(&mut self) {
        self.polling.end();
        self.cache.evidence.polled = None;
        self.cache.streamed_lists.reset_after_permission();
    }

    /// Sets the state after `failure`, which leaves the cache without a complete list or without a stream.
    pub(super) fn set_broken(&mut self, now: Instant, failure: &Failure) {
        self.probe.set_broken(now);
        let state = match failure.kind {
            // These failures rarely end without a change by an operator.
            FailureKind::Denied | FailureKind::Invalid | FailureKind::CacheFull => FreshnessState::Failed,
            // Without a first list, no cached state can be stale.
            FailureKind::ResourceVersionTooLarge if self.cache.is_synced => FreshnessState::Stale,
            _ => self.state_without_stream(),
        };
        self.cache.set_state(now, state, failure.message.clone());
    }

    /// Returns the state while a list or a resume is in progress.
    pub(super) fn state_without_stream(&self) -> FreshnessState {
        if self.cache.is_synced { FreshnessState::Resuming } else { FreshnessState::Starting }
    }

    /// Sets the state after a stream was opened. Freshness follows from the last proof, unless an unidentified
    /// record keeps the cache in doubt. After a broken stream, only a proof after the break counts (C10).
    pub(super) fn set_stream_open(&mut self, now: Instant) {
        let (state, reason) = match self.unidentified.reason() {
            // An unidentified record keeps the whole cache in doubt, even on an open stream (R8).
            Some(reason) => (FreshnessState::Suspect, reason.clone()),
            None if self.probe.is_unproven_since_break(&self.cache) => {
                self.probe.schedule.request_soon(now, &mut self.requester);
                let evidence = &self.cache.evidence;
                // Each break sets its cause with another state. Only a freeze keeps the state.
                let is_frozen = matches!(evidence.state, FreshnessState::Starting | FreshnessState::Streaming);
                (FreshnessState::Resuming, if is_frozen { Arc::from(FROZEN) } else { evidence.reason.clone() })
            }
            None if self.cache.bookmark_interval.is_without_bookmarks() => {
                (FreshnessState::Streaming, Arc::from(WITHOUT_BOOKMARKS))
            }
            None => {
                let polled = self.cache.evidence.polled.as_ref().map(|polled| Arc::from(polled.to_string()));
                (FreshnessState::Streaming, polled.unwrap_or_else(|| Arc::from(UNPROVEN)))
            }
        };
        self.cache.set_state(now, state, reason);
    }
}
