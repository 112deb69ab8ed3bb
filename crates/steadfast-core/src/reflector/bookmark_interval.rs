//! Interval at which a stream shows that it is alive (R2).
//!
//! Without changes, only rising bookmarks show that a stream is alive. The period is the longest of the last three
//! intervals between such bookmarks. Two or three bookmarks in short succession therefore do not shorten the period.
//! The period stays within configured bounds, so a gap in the stream does not lengthen the period without limit.

use std::time::Duration;

use super::ReflectorSettings;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Number of intervals that determine the period.
const INTERVAL_COUNT: usize = 3;

/// Minimum time between two bookmarks that count as an interval. Servers send them several seconds apart.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Number of periods between two lists, if only a list is a proof (R2).
pub(super) const PERIODS_BETWEEN_LISTS: u32 = 5;

/// Minimum number of short watches without a bookmark before the server certainly sends none.
const MIN_WATCHES_WITHOUT_BOOKMARKS: u8 = 3;

/// Interval at which the current stream shows that it is alive.
#[derive(Debug)]
pub(super) struct BookmarkInterval {
    /// Period before enough intervals are known.
    default_period: Duration,
    min_period: Duration,
    max_period: Duration,
    period: Duration,
    /// Last intervals, the newest at the end.
    intervals: [Duration; INTERVAL_COUNT],
    known_intervals: usize,
    /// Last bookmark whose version rose, with the time of its arrival.
    last_bookmark: Option<(Instant, ResourceVersion)>,
    /// Set after a bookmark on any stream of this server. The end of initial events does not count.
    has_seen_bookmark: bool,
    /// Number of short watches that received no bookmark.
    watches_without_bookmark: u8,
}

impl BookmarkInterval {
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        let default_period = settings.period;
        Self {
            default_period,
            min_period: settings.min_period.min(default_period),
            max_period: settings.max_period.unwrap_or(default_period).max(default_period),
            period: default_period,
            intervals: [Duration::ZERO; INTERVAL_COUNT],
            known_intervals: 0,
            last_bookmark: None,
            has_seen_bookmark: false,
            watches_without_bookmark: 0,
        }
    }

    /// Returns the maximum time without a proof before one is requested.
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Resets the intervals for another stream. The knowledge that the server sends no bookmarks is kept.
    pub(super) fn reset(&mut self) {
        // The period only grows here: short intervals of the old stream may not hold for the new stream.
        (self.period, self.known_intervals, self.last_bookmark) = (self.period.max(self.default_period), 0, None);
    }

    /// Records a bookmark. A bookmark whose version does not rise proves nothing about the server's store, and does not
    /// count.
    pub(super) fn bookmark(&mut self, now: Instant, version: &ResourceVersion) {
        self.record_any_bookmark();
        if let Some((at, last_bookmark)) = &self.last_bookmark {
            if !version.is_newer_than(last_bookmark) {
                return;
            }
            // Bookmarks of a backlog arrive together, for example after a freeze of the process.
            if now.since(*at) < MIN_INTERVAL {
                self.last_bookmark = Some((now, version.clone()));
                return;
            }
            self.intervals.rotate_left(1);
            self.intervals[INTERVAL_COUNT - 1] = now.since(*at);
            self.known_intervals = (self.known_intervals + 1).min(INTERVAL_COUNT);
        }
        self.last_bookmark = Some((now, version.clone()));
        if self.known_intervals == INTERVAL_COUNT
            && let Some(longest) = self.intervals.iter().max()
        {
            self.period = (*longest).clamp(self.min_period, self.max_period);
        }
    }

    /// Records that the server has sent a bookmark, on any stream.
    pub(super) fn record_any_bookmark(&mut self) {
        self.has_seen_bookmark = true;
        // This bookmark disproves that the server sends none, so the configured period applies again.
        if std::mem::take(&mut self.watches_without_bookmark) > 0 {
            self.period = self.default_period;
        }
    }

    /// Records that nothing had changed during a silence longer than the period. Doubles the period within its bound,
    /// until new intervals are known.
    pub(super) fn confirm_silence(&mut self) {
        self.known_intervals = 0;
        self.period = (self.period * 2).min(self.max_period);
    }

    /// Returns whether the server has ever sent a bookmark.
    pub(super) fn has_bookmarks(&self) -> bool {
        self.has_seen_bookmark
    }

    /// Records that the server sends no bookmarks. Only lists are proofs then. The period becomes the interval between
    /// lists, up to the maximum period.
    pub(super) fn record_missing_bookmarks(&mut self) {
        self.watches_without_bookmark = self.watches_without_bookmark.saturating_add(1);
        self.period = (self.default_period * PERIODS_BETWEEN_LISTS).min(self.max_period);
    }

    /// Returns whether the server is known to send no bookmarks.
    pub(super) fn is_without_bookmarks(&self) -> bool {
        self.watches_without_bookmark > 0
    }

    /// Returns whether at least three short watches received no bookmark. Another short watch before the next list
    /// would then provide no proof.
    pub(super) fn is_certainly_without_bookmarks(&self) -> bool {
        self.watches_without_bookmark >= MIN_WATCHES_WITHOUT_BOOKMARKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn period_after(settings: &ReflectorSettings, seconds: &[u64]) -> u64 {
        let mut bookmark_interval = BookmarkInterval::new(settings);
        let mut now = Instant::ZERO;
        for (index, pause) in [0].iter().chain(seconds).enumerate() {
            now = now + SECOND * u32::try_from(*pause).unwrap();
            bookmark_interval.bookmark(now, &ResourceVersion::from(format!("{}", index + 1).as_str()));
        }
        bookmark_interval.period().as_secs()
    }

    #[test]
    fn longest_of_three_intervals_is_the_period() {
        let settings = ReflectorSettings::default();
        assert_eq!(period_after(&settings, &[]), 60);
        assert_eq!(period_after(&settings, &[20, 20]), 60, "two intervals are too few");
        assert_eq!(period_after(&settings, &[20, 21, 20]), 21);
        assert_eq!(period_after(&settings, &[20, 20, 20, 1, 1]), 20, "a burst does not shorten the period");
        assert_eq!(period_after(&settings, &[20, 20, 20, 50]), 50);
        assert_eq!(period_after(&settings, &[20, 20, 20, 50, 20, 20, 20]), 20, "only the last three intervals count");
    }

    #[test]
    fn period_stays_within_its_bounds() {
        let settings = ReflectorSettings::default();
        assert_eq!(period_after(&settings, &[1, 1, 1, 1]), 10);
        assert_eq!(period_after(&settings, &[120, 120, 120]), 60, "limited by the default maximum");
        let allowed = ReflectorSettings { max_period: Some(SECOND * 150), ..settings };
        assert_eq!(period_after(&allowed, &[120, 120, 120]), 120);
        let short = ReflectorSettings { period: SECOND * 4, ..ReflectorSettings::default() };
        assert_eq!(period_after(&short, &[1, 1, 1]), 4, "the default period is never below the minimum");
    }

    #[test]
    fn equal_bookmarks_do_not_count() {
        let settings = ReflectorSettings { max_period: Some(SECOND * 600), ..ReflectorSettings::default() };
        let mut bookmark_interval = BookmarkInterval::new(&settings);
        for beat in 0..20_u64 {
            let version = ResourceVersion::from((1 + beat / 4).to_string().as_str());
            bookmark_interval.bookmark(Instant::ZERO + SECOND * 10 * u32::try_from(beat).unwrap(), &version);
        }
        assert_eq!(bookmark_interval.period(), SECOND * 40);
    }

    #[test]
    fn correct_silence_lengthens_period_until_next_stream() {
        let mut bookmark_interval = BookmarkInterval::new(&ReflectorSettings::default());
        for beat in 1..5_u32 {
            bookmark_interval
                .bookmark(Instant::ZERO + SECOND * 10 * beat, &ResourceVersion::from(beat.to_string().as_str()));
        }
        let mut periods = vec![bookmark_interval.period().as_secs()];
        for _ in 0..3 {
            bookmark_interval.confirm_silence();
            periods.push(bookmark_interval.period().as_secs());
        }
        assert_eq!(periods, [10, 20, 40, 60]);
        assert!(bookmark_interval.has_bookmarks());
        bookmark_interval.reset();
        assert_eq!(bookmark_interval.period(), SECOND * 60);
    }

    #[test]
    fn period_without_bookmarks_follows_lists() {
        let settings = ReflectorSettings::default();
        let mut bookmark_interval = BookmarkInterval::new(&settings);
        bookmark_interval.record_missing_bookmarks();
        assert_eq!(bookmark_interval.period(), SECOND * 60, "the bound is unchanged");
        let mut bookmark_interval =
            BookmarkInterval::new(&ReflectorSettings { max_period: Some(SECOND * 500), ..settings });
        bookmark_interval.record_missing_bookmarks();
        assert_eq!(bookmark_interval.period(), SECOND * 300);
        bookmark_interval.reset();
        assert_eq!(bookmark_interval.period(), SECOND * 300, "a resumed watch does not shorten the period");
        bookmark_interval.bookmark(Instant::ZERO, &ResourceVersion::from("1"));
        assert_eq!(bookmark_interval.period(), SECOND * 60, "a bookmark shortens the period");
        assert!(!bookmark_interval.is_without_bookmarks());
    }

    #[test]
    fn bookmarks_of_a_backlog_keep_the_period() {
        let mut interval = BookmarkInterval::new(&ReflectorSettings::default());
        let period = interval.period();
        for version in 1..9 {
            interval.bookmark(Instant::ZERO + period, &ResourceVersion::from(version.to_string().as_str()));
        }
        assert_eq!(interval.period(), period);
    }
}
