//! What is told now and then, however often it happens.

use std::time::Duration;

use steadfast::environment::Instant;

/// How long nothing is told after something was.
const SILENCE: Duration = Duration::from_secs(60);

/// What is told now and then, however often it happens.
#[derive(Debug, Default)]
pub(super) struct Complaint {
    count: u64,
    told: Option<Instant>,
}

impl Complaint {
    /// It happened to so many more: to how many since it was last told, if that is to be told now.
    pub(super) fn of(&mut self, more: u64, now: Instant) -> Option<u64> {
        self.count += more;
        if self.told.is_some_and(|told| now.since(told) < SILENCE) {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_at_once_and_then_once_a_minute_of_all_in_between() {
        let at = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut complaint = Complaint::default();
        assert_eq!(complaint.of(1, at(0)), Some(1));
        assert_eq!(complaint.of(2, at(1)), None);
        assert_eq!(complaint.of(3, at(59)), None);
        assert_eq!(complaint.of(1, at(60)), Some(6));
    }
}
