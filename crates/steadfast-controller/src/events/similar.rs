//! Events that differ only in their notes, like client-go's `EventAggregator`.

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// Prefix of the note of combined events (`EventAggregatorByReasonMessageFunc`).
pub(super) const PREFIX: &str = "(combined from similar events): ";

/// Similar events.
#[derive(Debug, Default)]
pub(super) struct Similar {
    /// Hashes of the notes of separate events.
    own: Vec<u64>,
    last: Instant,
}

impl Similar {
    /// Records a note. Returns true if the event must be combined.
    ///
    /// The first nine events stay separate. client-go evicts any of its ten notes at each further event, so that one of
    /// the first nine events may be combined later.
    pub(super) fn must_combine(&mut self, note: u64, now: Instant, settings: &EventSettings) -> bool {
        if now.since(self.last) > settings.similar_within {
            self.own.clear();
        }
        self.last = now;
        if self.own.contains(&note) {
            return false;
        }
        if self.own.len() + 1 >= settings.max_separate_similar {
            return true;
        }
        self.own.push(note);
        false
    }
}
