//! Backoffs of the reflector's phases.

use super::settings::ReflectorSettings;
use crate::backoff::{Backoff, BackoffSettings};

/// Backoffs between attempts. Each has its own condition for a reset.
#[derive(Debug)]
pub(super) struct Backoffs {
    /// Backoff for failures. Any proof resets it.
    pub(super) failures: Backoff,
    /// Backoff for lists after a watch that could not resume. Only a stream that stays open resets it. A list is a
    /// proof, but does not reset this backoff: the watch after the list may end in another `410` (R5).
    pub(super) relists: Backoff,
    /// Backoff for watches that end within a second although they delivered a record. A delivered change, or a longer
    /// watch, resets this backoff.
    pub(super) immediate_ends: Backoff,
}

impl Backoffs {
    /// Creates the backoffs without failures.
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        // Only jitter delays the first list after a watch that could not resume (R5).
        let relists = BackoffSettings {
            initial_delay: settings.relist_jitter,
            max_delay: settings.period / 2,
            ..settings.backoff
        };
        Self {
            failures: Backoff::new(settings.backoff),
            relists: Backoff::new(relists),
            immediate_ends: Backoff::new(settings.backoff),
        }
    }

    /// Returns the number of attempts since the backoffs were last reset.
    pub(super) fn attempts(&self) -> u32 {
        self.failures.failures().saturating_add(self.relists.failures())
    }

    /// Records a stream that stayed open.
    pub(super) fn stream_stayed_open(&mut self) {
        self.failures.reset();
        self.relists.reset();
    }
}
