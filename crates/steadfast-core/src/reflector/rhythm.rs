//! The rhythm of a stream: how often it has shown that it is alive (R2).
//!
//! Bookmarks that rise are what a stream shows of itself when nothing changes. Three intervals between them make a
//! rhythm, and the longest of the three is its period: a few bookmarks that follow each other closely shorten nothing.
//! Nothing moves the period beyond the bounds set for it, so that a hole in the stream does not lengthen it either.

use std::time::Duration;

use super::ReflectorSettings;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// How many intervals make a rhythm.
const INTERVALS: usize = 3;

/// How many periods apart lists are made where only a list is a proof (R2).
pub(super) const PERIODS_BETWEEN_LISTS: u32 = 5;

/// How often the present stream shows that it is alive.
#[derive(Debug)]
pub(super) struct Rhythm {
    /// The period until there is a rhythm.
    assumed: Duration,
    shortest: Duration,
    longest: Duration,
    period: Duration,
    /// The last intervals, the newest at the end.
    intervals: [Duration; INTERVALS],
    known: usize,
    /// The last bookmark that rose.
    last: Option<(Instant, ResourceVersion)>,
    /// Whether the server has sent a bookmark, on this stream or another; the end of initial events is none of these.
    heard: bool,
    /// How often a short watch has shown that it sends none.
    without: u8,
}

impl Rhythm {
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        let assumed = settings.period;
        Self {
            assumed,
            shortest: settings.shortest_period.min(assumed),
            longest: settings.longest_period.unwrap_or(assumed).max(assumed),
            period: assumed,
            intervals: [Duration::ZERO; INTERVALS],
            known: 0,
            last: None,
            heard: false,
            without: 0,
        }
    }

    /// How long without a proof before one is sought.
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Another stream begins: nothing is known of its rhythm. That the server is a quiet one is known still.
    pub(super) fn begin(&mut self) {
        (self.period, self.known, self.last) = (self.period.max(self.assumed), 0, None);
    }

    /// Takes in a bookmark. One that does not rise says nothing of the server's store, and so is no beat.
    pub(super) fn bookmark(&mut self, now: Instant, version: &ResourceVersion) {
        self.hear();
        if let Some((at, last)) = &self.last {
            if !version.is_newer_than(last) {
                return;
            }
            self.intervals.rotate_left(1);
            self.intervals[INTERVALS - 1] = now.since(*at);
            self.known = (self.known + 1).min(INTERVALS);
        }
        self.last = Some((now, version.clone()));
        if self.known == INTERVALS
            && let Some(longest) = self.intervals.iter().max()
        {
            self.period = (*longest).clamp(self.shortest, self.longest);
        }
    }

    /// The server has sent a bookmark, on whatever stream.
    pub(super) fn hear(&mut self) {
        self.heard = true;
        if std::mem::take(&mut self.without) > 0 {
            self.period = self.assumed;
        }
    }

    /// A silence longer than the period was right: the stream had nothing to show, so its period is another one.
    pub(super) fn was_silent_rightly(&mut self) {
        self.known = 0;
        self.period = (self.period * 2).min(self.longest);
    }

    /// Whether the server has ever sent a bookmark.
    pub(super) fn has_bookmarks(&self) -> bool {
        self.heard
    }

    /// Takes note that the server sends no bookmarks: only lists are proofs then, and they are what it is measured by,
    /// as far as the bound allows it.
    pub(super) fn without_bookmarks(&mut self) {
        self.without = self.without.saturating_add(1);
        self.period = (self.assumed * PERIODS_BETWEEN_LISTS).min(self.longest);
    }

    /// Whether the server is known to send no bookmarks.
    pub(super) fn is_without_bookmarks(&self) -> bool {
        self.without > 0
    }

    /// Whether that was seen often enough, that it is no use to ask again before a list is due.
    pub(super) fn is_surely_without(&self) -> bool {
        self.without >= 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn rhythm(settings: &ReflectorSettings, seconds: &[u64]) -> u64 {
        let mut rhythm = Rhythm::new(settings);
        let mut now = Instant::ZERO;
        for (index, pause) in [0].iter().chain(seconds).enumerate() {
            now = now + SECOND * u32::try_from(*pause).unwrap();
            rhythm.bookmark(now, &ResourceVersion::from(format!("{}", index + 1).as_str()));
        }
        rhythm.period().as_secs()
    }

    #[test]
    fn three_intervals_make_a_rhythm_and_the_longest_is_the_period() {
        let settings = ReflectorSettings::default();
        assert_eq!(rhythm(&settings, &[]), 60);
        assert_eq!(rhythm(&settings, &[20, 20]), 60, "two are not enough");
        assert_eq!(rhythm(&settings, &[20, 21, 20]), 21);
        assert_eq!(rhythm(&settings, &[20, 20, 20, 1, 1]), 20, "a burst shortens nothing");
        assert_eq!(rhythm(&settings, &[20, 20, 20, 50]), 50);
        assert_eq!(rhythm(&settings, &[20, 20, 20, 50, 20, 20, 20]), 20, "nor does a hole last");
    }

    #[test]
    fn neither_a_burst_nor_a_hole_moves_the_period_beyond_its_bounds() {
        let settings = ReflectorSettings::default();
        assert_eq!(rhythm(&settings, &[1, 1, 1, 1]), 10);
        assert_eq!(rhythm(&settings, &[120, 120, 120]), 60, "what the user did not allow");
        let allowed = ReflectorSettings { longest_period: Some(SECOND * 150), ..settings };
        assert_eq!(rhythm(&allowed, &[120, 120, 120]), 120);
        let short = ReflectorSettings { period: SECOND * 4, ..ReflectorSettings::default() };
        assert_eq!(rhythm(&short, &[1, 1, 1]), 4, "the assumed period is never below the shortest");
    }

    #[test]
    fn bookmarks_that_do_not_rise_are_no_beat() {
        let settings = ReflectorSettings { longest_period: Some(SECOND * 600), ..ReflectorSettings::default() };
        let mut rhythm = Rhythm::new(&settings);
        for beat in 0..20_u64 {
            let version = ResourceVersion::from((1 + beat / 4).to_string().as_str());
            rhythm.bookmark(Instant::ZERO + SECOND * 10 * u32::try_from(beat).unwrap(), &version);
        }
        assert_eq!(rhythm.period(), SECOND * 40);
    }

    #[test]
    fn a_silence_that_was_right_makes_the_period_longer_and_another_stream_forgets_all() {
        let mut rhythm = Rhythm::new(&ReflectorSettings::default());
        for beat in 1..5_u32 {
            rhythm.bookmark(Instant::ZERO + SECOND * 10 * beat, &ResourceVersion::from(beat.to_string().as_str()));
        }
        let mut periods = vec![rhythm.period().as_secs()];
        for _ in 0..3 {
            rhythm.was_silent_rightly();
            periods.push(rhythm.period().as_secs());
        }
        assert_eq!(periods, [10, 20, 40, 60]);
        assert!(rhythm.has_bookmarks());
        rhythm.begin();
        assert_eq!(rhythm.period(), SECOND * 60);
    }

    #[test]
    fn a_server_without_bookmarks_is_measured_by_its_lists_as_far_as_that_is_allowed() {
        let settings = ReflectorSettings::default();
        let mut rhythm = Rhythm::new(&settings);
        rhythm.without_bookmarks();
        assert_eq!(rhythm.period(), SECOND * 60, "the bound stays what it is");
        let mut rhythm = Rhythm::new(&ReflectorSettings { longest_period: Some(SECOND * 500), ..settings });
        rhythm.without_bookmarks();
        assert_eq!(rhythm.period(), SECOND * 300);
        rhythm.begin();
        assert_eq!(rhythm.period(), SECOND * 300, "a resumed watch is no reason to think otherwise");
        rhythm.bookmark(Instant::ZERO, &ResourceVersion::from("1"));
        assert_eq!(rhythm.period(), SECOND * 60, "but a bookmark is");
        assert!(!rhythm.is_without_bookmarks());
    }
}
