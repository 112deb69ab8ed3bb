//! Events that are alike but for their notes, as client-go's `EventAggregator` finds them.

use steadfast::environment::Instant;

use super::settings::EventSettings;

/// What the note of those that are combined begins with (`EventAggregatorByReasonMessageFunc`).
pub(super) const PREFIX: &str = "(combined from similar events): ";

/// The similar events of which the last came not long ago.
#[derive(Debug, Default)]
pub(super) struct Similar {
    /// The notes of those that are events of their own, by their hashes.
    own: Vec<u64>,
    last: Instant,
}

impl Similar {
    /// Takes note of one more: whether it is one too many to be an event of its own.
    ///
    /// The first nine stay what they are. client-go forgets any of its ten at each further one, so that one of the nine may
    /// begin to be combined too.
    pub(super) fn is_one_too_many(&mut self, note: u64, now: Instant, settings: &EventSettings) -> bool {
        if now.since(self.last) > settings.similar_within {
            self.own.clear();
        }
        self.last = now;
        if self.own.contains(&note) {
            return false;
        }
        if self.own.len() + 1 >= settings.similar {
            return true;
        }
        self.own.push(note);
        false
    }
}
