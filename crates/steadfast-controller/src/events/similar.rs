//! Events that differ only in their notes, like client-go's `EventAggregator`.

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// Prefix of the note of combined events (`EventAggregatorByReasonMessageFunc`).
pub(super) const COMBINED_PREFIX: &str = "(combined from similar events): ";

/// Similar events.
#[derive(Debug, Default)]
pub(super) struct Similar {
    /// Hashes of the notes of separate events.
    note_hashes: Vec<u64>,
    last: Instant,
}

impl Similar {
    /// Records a note. Returns true if the event must be combined.
    ///
    /// By default, the first nine events stay separate. client-go differs: each further event evicts an arbitrary one
    /// of its ten notes. One of the first nine events may then be combined later.
    pub(super) fn must_combine(&mut self, note: u64, now: Instant, settings: &EventSettings) -> bool {
        if now.since(self.last) > settings.similar_within {
            self.note_hashes.clear();
        }
        self.last = now;
        if self.note_hashes.contains(&note) {
            return false;
        }
        if self.note_hashes.len() + 1 >= settings.max_separate_similar {
            return true;
        }
        self.note_hashes.push(note);
        false
    }
}
