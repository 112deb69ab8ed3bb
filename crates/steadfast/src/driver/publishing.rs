//! Publication: diagnostics, edits of the store, and the notification of handlers and waiters.

use steadfast_core::decode::Cacheable;
use steadfast_core::event::Event;
use steadfast_core::record::RecordKind;
use steadfast_core::reflector::{Diagnostic, Input, Severity};

use super::Driver;
use super::edits::Edit;
use super::transfer::Transfer;

impl<K: Cacheable> Driver<K> {
    /// Passes `input` to the reflector, and publishes the result.
    pub(super) fn step(&mut self, input: Input) {
        let now = self.shared.environment.now();
        let outputs = self.reflector.step(now, input);
        self.perform(outputs);
        self.flush();
    }

    /// Delivers diagnostics, applies edits, publishes the result, and notifies handlers and waiters.
    pub(super) fn flush(&mut self) {
        self.unpublished = None;
        // An edit must have its decoded object before it is applied. Objects of an unfinished list can wait.
        if self.decoding.has_edits() {
            self.finish_decoding();
        }
        self.keep_place();
        self.late_diagnostics = 0;
        // Callbacks run before the lock is taken, because they may call this informer.
        for diagnostic in std::mem::take(&mut self.diagnostics) {
            self.report(&diagnostic);
        }
        if let Some(more) = self.log_throttle.sum(self.shared.environment.now()) {
            let informer = &self.shared.name;
            tracing::warn!(%informer, "{more} more objects cannot be decoded; the debug log and the diagnostics name each of them");
        }
        let edited = !self.edits.is_empty();
        let disordered = edited && self.edit();
        if edited && !self.early.is_empty() {
            self.recheck_failures();
        }
        // After the publication, so that a woken waiter finds the new state.
        if self.shared.publish_state(self.reflector.evidence()) || edited {
            self.shared.notify_changed();
        }
        if disordered {
            self.ordering.is_known = true;
            self.step(Input::Disordered);
        }
        if let Some(comparison) = &mut self.comparison
            && std::mem::take(&mut comparison.is_due)
        {
            // The list is complete. The evaluation uses no bandwidth, so another transfer can start.
            comparison.slot = None;
            let found = comparison.judge(&self.shared.snapshot());
            self.step(Input::Judged(found));
        }
    }

    /// Keeps the slot of a full transfer while the transfer makes progress (R7).
    fn keep_place(&mut self) {
        if let (Transfer::Held(slot), Some(heard)) = (&mut self.transfer, self.reflector.list_progress()) {
            slot.record_progress(heard);
        }
        let comparison = self.comparison.as_mut().and_then(|comparison| comparison.slot.as_mut());
        if let (Some(slot), Some(heard)) = (comparison, self.reflector.comparison_progress()) {
            slot.record_progress(heard);
        }
    }

    fn report(&mut self, diagnostic: &Diagnostic) {
        self.request_metrics.diagnostic(diagnostic);
        let informer = &self.shared.name;
        let spared = matches!(diagnostic, Diagnostic::Undecodable { .. })
            && !self.log_throttle.names(self.shared.environment.now());
        match (diagnostic.severity(), diagnostic) {
            (Severity::Fault, Diagnostic::Failed { code, reason, .. }) => {
                // Fields without a value are absent from the log line.
                tracing::warn!(%informer, code, reason = reason.as_deref(), "{diagnostic}");
            }
            (Severity::Fault, _) if !spared => tracing::warn!(%informer, "{diagnostic}"),
            (Severity::Fault | Severity::Routine, _) => tracing::debug!(%informer, "{diagnostic}"),
        }
        self.shared.report(diagnostic);
    }

    /// Applies all edits under one lock, with one publication. Returns true if a list has proven that versions are
    /// unordered.
    fn edit(&mut self) -> bool {
        let mut changes = Vec::new();
        let (mut viewed, mut disordered) = (false, false);
        let shared = self.shared.clone();
        // Objects held only by the old snapshot are dropped after the lock is released: the drop can take long, and
        // `Drop` is user code.
        let _before = shared.snapshot();
        shared.edit(|store| {
            // Removals are recorded before the edits, so that the comparison does not count them as lost.
            if let Some(comparison) = &mut self.comparison {
                for edit in &self.edits {
                    if let Edit::Apply(RecordKind::Deleted, identity, _) = edit {
                        comparison.removed(&identity.uid);
                    }
                }
            }
            for edit in self.edits.drain(..) {
                let before = changes.len();
                let committed = if let Edit::Commit { new_epoch, .. } = &edit { Some(*new_epoch) } else { None };
                let relisted = matches!(edit, Edit::Commit { initial: false, new_epoch: false, .. });
                viewed |= edit.carry_out(store, &mut changes, &shared.name);
                if relisted {
                    self.reflector.list_differed(changes.len() - before);
                }
                shared.counted.changes(&changes[before..], committed.is_some());
                let proven = committed.map(|new_epoch| self.ordering.is_proven(store.working(), new_epoch));
                disordered |= proven.unwrap_or_default();
            }
            for change in &changes {
                if let Event::Deleted { .. } = change.event {
                    self.ordering.ended(change.uid());
                }
            }
            // Before the publication, because the evidence published with it contains the tainted objects.
            self.reflector.set_tainted(store.working().tainted().clone());
            shared.publish(store, &changes, viewed, self.reflector.evidence());
        });
        disordered
    }

    /// Drops some decoded forms that no reader uses. All edits have been applied.
    pub(super) fn sweep_decoded(&mut self) {
        let shared = self.shared.clone();
        let now = shared.environment.now();
        // The decoded forms are dropped after the lock is released: this can take long, and their `Drop` is user code.
        let _before = shared.snapshot();
        shared.edit(|store| {
            if self.decoded_forms.step(&shared.decode_reports, store, now) {
                store.publish();
            }
        });
    }

    /// Re-checks failures that were reported before their objects were in the cache. Failures of objects that are still
    /// missing are dropped, unless a list is in progress.
    fn recheck_failures(&mut self) {
        for error in std::mem::take(&mut self.early) {
            if self.unread(&error) {
                self.flush();
            }
        }
        if self.staging.is_none() {
            self.early.clear();
        }
    }
}
