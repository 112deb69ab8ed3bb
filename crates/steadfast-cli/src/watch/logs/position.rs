//! Position in the log of a container, so that a repeated request prints no line twice.
//!
//! A request can start at a second only (`sinceTime`), so the server sends lines of that second again. These lines are
//! recognized by their time and content.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;

/// Seconds that a request repeats before the newest line: the streams of a container are merged, and their lines may be
/// slightly out of order.
const OVERLAP_SECONDS: i64 = 1;

/// Maximum number of remembered lines. Above this number, lines that are sent again are printed again.
const MAX_REMEMBERED: usize = 100_000;

/// Position in a log.
#[derive(Debug)]
pub(super) struct LogPosition {
    /// Start of the requested log; `None` for the whole log.
    start: Option<Timestamp>,
    /// Second of the newest line.
    newest: Option<i64>,
    /// Hashes of the lines of the newest seconds, each with its second and its number of occurrences.
    recent: HashMap<u64, (i64, u32)>,
    /// Lines that the current response may repeat.
    repeatable: HashMap<u64, u32>,
    /// First second that the current response may contain.
    floor: Option<i64>,
}

impl LogPosition {
    /// Creates the position before the first line since `start`.
    pub(super) fn new(start: Option<Timestamp>) -> Self {
        Self { start, newest: None, recent: HashMap::new(), repeatable: HashMap::new(), floor: None }
    }

    /// Starts a request; returns its `sinceTime`, in whole seconds.
    pub(super) fn resume(&mut self) -> Option<Timestamp> {
        self.repeatable = self.recent.iter().map(|(hash, (_, count))| (*hash, *count)).collect();
        self.floor = self.newest.map(|newest| newest - OVERLAP_SECONDS);
        let start = self.start.map(Timestamp::as_second);
        let second = self.floor.max(start)?;
        Timestamp::from_second(second).ok()
    }

    /// Records a line of the response; returns whether it is new. Lines without a time are new.
    pub(super) fn is_new(&mut self, time: Option<Timestamp>, content: &[u8]) -> bool {
        let Some(time) = time else { return true };
        let second = time.as_second();
        if self.floor.is_some_and(|floor| second < floor) {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (time, content).hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(count) = self.repeatable.get_mut(&hash).filter(|count| **count > 0) {
            *count -= 1;
            return false;
        }
        let newest = self.newest.map_or(second, |newest| newest.max(second));
        if self.newest.is_some_and(|earlier| earlier < newest) {
            self.recent.retain(|_, (second, _)| *second >= newest - OVERLAP_SECONDS);
        }
        self.newest = Some(newest);
        if second >= newest - OVERLAP_SECONDS && self.recent.len() < MAX_REMEMBERED {
            self.recent.entry(hash).or_insert((second, 0)).1 += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Option<Timestamp> {
        format!("2026-01-01T00:00:{text}Z").parse().ok()
    }

    /// Returns the new lines of a response.
    fn new_lines<'a>(position: &mut LogPosition, lines: &[(&str, &'a str)]) -> Vec<&'a str> {
        lines.iter().filter(|(at, line)| position.is_new(time(at), line.as_bytes())).map(|(_, line)| *line).collect()
    }

    #[test]
    fn repeated_lines_are_recognized() {
        let mut position = LogPosition::new(time("01.5"));
        assert_eq!(position.resume(), time("01"));
        let first = [("02.1", "a"), ("03.1", "b"), ("03.1", "b"), ("03.2", "c"), ("03.15", "late")];
        assert_eq!(new_lines(&mut position, &first), ["a", "b", "b", "c", "late"]);
        assert_eq!(position.resume(), time("02"));
        // The server sends all lines of the second again; equal lines with equal times are counted.
        let second = [&first[..], &[("03.1", "b"), ("03.9", "d"), ("04.0", "a")]].concat();
        assert_eq!(new_lines(&mut position, &second), ["b", "d", "a"]);
        assert_eq!(position.resume(), time("03"));
        // A server that ignores `sinceTime`.
        assert_eq!(new_lines(&mut position, &[("02.1", "a"), ("04.0", "a"), ("04.0", "e")]), ["e"]);
    }

    #[test]
    fn line_without_time_is_new() {
        let mut position = LogPosition::new(None);
        assert_eq!(position.resume(), None);
        assert!(position.is_new(None, b"x") && position.is_new(None, b"x"));
    }
}
