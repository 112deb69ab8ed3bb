//! Publication: diagnostics, edits of the store, and the notification of handlers and waiters.

use steadfast_core::Instant;
use steadfast_core::decode::{Cacheable, DecodeError};
use steadfast_core::reflector::Input;

use super::Driver;
use super::cache_writer::ReadFailure;
use super::transfer::Transfer;

impl<K: Cacheable> Driver<K> {
    /// Passes `input` to the reflector, and publishes the result.
    pub(super) fn step(&mut self, input: Input) {
        self.step_at(self.shared.environment.now(), input);
    }

    /// Passes `input`, which occurred at `now`, to the reflector, and publishes the result.
    pub(super) fn step_at(&mut self, now: Instant, input: Input) {
        let outputs = self.reflector.step(now, input);
        self.perform(outputs);
        self.flush();
    }

    /// Delivers diagnostics, applies edits, publishes the result, and notifies handlers and waiters.
    pub(super) fn flush(&mut self) {
        self.unpublished = None;
        self.writer.prepare(&mut self.diagnostics);
        self.keep_transfer_slots();
        // Callbacks run before the lock is taken, because they may call this informer.
        self.diagnostics.deliver(&self.shared, self.requests.metrics());
        let edited = self.writer.has_edits();
        let disordered =
            edited && self.writer.publish(&mut self.reflector, self.comparison.as_mut(), &mut self.ordering);
        if edited {
            self.recheck_failures();
        }
        // After the publication, so that a woken waiter finds the new state.
        if self.shared.publish_state(self.reflector.evidence()) || edited {
            self.shared.notify_changed();
        }
        if disordered {
            self.ordering.is_known = true;
            self.step(Input::VersionsUnordered);
        }
        if let Some(comparison) = &mut self.comparison
            && std::mem::take(&mut comparison.is_due)
        {
            // The list is complete. The evaluation uses no bandwidth, so another transfer can start.
            comparison.slot = None;
            let found = comparison.differences(&self.shared.snapshot());
            self.step(Input::Compared(found));
        }
    }

    /// Keeps the slots of transfers while the transfers make progress (R7).
    fn keep_transfer_slots(&mut self) {
        if let (Transfer::Held(slot), Some(heard)) = (&mut self.transfer, self.reflector.list_progress()) {
            slot.record_progress(heard);
        }
        let comparison = self.comparison.as_mut().and_then(|comparison| comparison.slot.as_mut());
        if let (Some(slot), Some(heard)) = (comparison, self.reflector.comparison_progress()) {
            slot.record_progress(heard);
        }
    }

    /// Records a cached state that failed to decode on a read (R8).
    pub(super) fn read_failed(&mut self, error: &DecodeError) {
        match self.writer.read_failed(error, &mut self.diagnostics) {
            ReadFailure::Remembered => {}
            ReadFailure::Recorded => {
                self.unpublished.get_or_insert(self.shared.environment.now());
            }
            ReadFailure::RecordedMany => self.flush(),
        }
    }

    /// Re-checks failures that were reported before their objects were in the cache. Failures of objects that are still
    /// missing are dropped, unless a list is in progress.
    fn recheck_failures(&mut self) {
        let failures = self.writer.take_early_failures();
        if failures.is_empty() {
            return;
        }
        for error in failures {
            self.read_failed(&error);
        }
        self.writer.forget_early_failures();
    }
}
