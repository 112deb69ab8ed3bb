//! Objects that cannot be decoded, reported once for each of their versions, and in a log no more often than is read.

use std::time::Duration;

use steadfast_core::Instant;
use steadfast_core::reflector::Note;

/// How many lines of a log name such an object within a [`WINDOW`]; the others are summed up.
const NAMED: u32 = 10;

const WINDOW: Duration = Duration::from_secs(60);

/// What is to be reported of such objects, and what of it has been.
#[derive(Default)]
pub(super) struct Complaints {
    /// What is reported once the list that has it is complete: one that is not may be made again and again.
    staged: Vec<Note>,
    /// How many of them came later than what they are about.
    late: usize,
    /// When the present window began.
    since: Option<Instant>,
    /// How many were named in it.
    named: u32,
    /// How many were not, since they were summed up last.
    unnamed: u64,
    /// Whether this window has been summed up.
    summed: bool,
}

impl Complaints {
    /// Keeps what is to be reported of a list's object until it is complete.
    pub(super) fn stage(&mut self, note: Note) {
        self.staged.push(note);
    }

    /// How much was to be reported in time.
    pub(super) fn told(&self) -> usize {
        self.staged.len() - self.late
    }

    /// Keeps what is to be reported of a list's object that came when so much had been told, those before it first.
    pub(super) fn stage_late(&mut self, told: usize, note: Note) {
        self.staged.insert(told + self.late, note);
        self.late += 1;
    }

    /// What a list had, that is complete.
    pub(super) fn listed(&mut self) -> Vec<Note> {
        self.late = 0;
        std::mem::take(&mut self.staged)
    }

    /// Whether a log is to name one more at `now`.
    pub(super) fn names(&mut self, now: Instant) -> bool {
        self.turn(now);
        if self.named < NAMED {
            self.named += 1;
            return true;
        }
        self.unnamed += 1;
        false
    }

    /// How many more there were than a log has named, when it is time to say so.
    pub(super) fn sum(&mut self, now: Instant) -> Option<u64> {
        if self.unnamed == 0 {
            return None;
        }
        self.turn(now);
        let due = !std::mem::replace(&mut self.summed, true);
        due.then(|| std::mem::take(&mut self.unnamed))
    }

    fn turn(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now.since(since) >= WINDOW) {
            (self.since, self.named, self.summed) = (Some(now), 0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_names_a_few_of_many_and_counts_the_rest() {
        let at = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut complaints = Complaints::default();
        let first: usize = (0..500).map(|_| usize::from(complaints.names(at(1)))).sum();
        assert_eq!((first, complaints.sum(at(1)), complaints.sum(at(1))), (10, Some(490), None));
        let next = (2..50).filter(|second| complaints.names(at(*second)) || complaints.sum(at(*second)).is_some());
        assert_eq!(next.count(), 0, "a log has had enough for a minute");
        assert_eq!(complaints.sum(at(61)), Some(48), "and then the sum of it");
        assert!(complaints.names(at(62)));
        assert_eq!(complaints.sum(at(63)), None);
    }
}
