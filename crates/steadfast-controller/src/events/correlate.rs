//! What was recorded, and which requests that takes: counted, combined, limited and bounded, without I/O and without a clock.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use steadfast::environment::Instant;

use super::allowance::Allowance;
use super::answer::{Answer, Refusal};
use super::draft::EventDraft;
use super::figures::EventStats;
use super::key::{Key, Likeness, checked};
use super::names::{LONGEST_NOTE, cut, event_name};
use super::pace::Pace;
use super::recent::Recent;
use super::reporter::Reporter;
use super::series::{Moment, Order, Place, Series, Then};
use super::settings::EventSettings;
use super::similar::{PREFIX, Similar};

/// What became of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// There is something to be sent.
    Queued,
    /// It is counted, and the server is told later.
    Counted,
    /// It was one too many about its object.
    Filtered,
    /// There was no room for it.
    Dropped,
    /// The server would refuse it.
    Invalid(&'static str),
}

/// What is to be done now.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// This request is to be made, and [`Correlator::answered`] be told of its answer by this number.
    Send(u64, Order),
    /// Nothing until something is recorded or answered, or until then.
    Wait(Option<Instant>),
    /// Nothing any more.
    Over,
}

/// Recordings that were given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenUp {
    /// The object that they were about.
    pub(super) about: String,
    pub(super) reason: Cow<'static, str>,
    pub(super) count: u64,
    /// What the server said; none where it said nothing that was final.
    pub(super) refusal: Option<Refusal>,
}

/// What was recorded by one reporter, and which requests that takes.
///
/// There are at most as many open series as the settings say, and beside them none but such as wait to be sent or are being
/// sent; a new one is begun only where the settings' number does not wait already.
#[derive(Debug)]
pub(super) struct Correlator {
    reporter: Reporter,
    settings: EventSettings,
    hasher: RandomState,
    /// By their numbers, which rise.
    series: BTreeMap<u64, Series>,
    numbers: u64,
    /// Those in which further recordings are counted; and by their last uses, so that the first is over first.
    open: HashMap<Arc<Key>, u64>,
    uses: u64,
    by_use: BTreeMap<u64, u64>,
    /// Those to be sent.
    waiting: VecDeque<u64>,
    sending: usize,
    similar: Recent<Similar>,
    allowances: Recent<Allowance>,
    pace: Pace,
    /// The number in the name of the last event.
    named: u64,
    /// Up to which recording somebody waits for the server to count all.
    flushing: u64,
    is_closed: bool,
    /// When what is left is given up.
    until: Option<Instant>,
    /// How many recordings were let go of then.
    abandoned: u64,
    figures: EventStats,
}

impl Correlator {
    pub(super) fn new(reporter: Reporter, settings: EventSettings) -> Self {
        let settings = settings.sane();
        Self {
            reporter,
            settings,
            hasher: RandomState::new(),
            series: BTreeMap::new(),
            numbers: 0,
            open: HashMap::new(),
            uses: 0,
            by_use: BTreeMap::new(),
            waiting: VecDeque::new(),
            sending: 0,
            similar: Recent::new(settings.series),
            allowances: Recent::new(settings.series),
            pace: Pace::default(),
            named: 0,
            flushing: 0,
            is_closed: false,
            until: None,
            abandoned: 0,
            figures: EventStats::default(),
        }
    }

    pub(super) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// An event is recorded.
    pub(super) fn record(&mut self, regarding: ObjectReference, draft: EventDraft, at: Moment) -> Recorded {
        self.figures.recorded += 1;
        if self.is_closed {
            self.figures.dropped += 1;
            return Recorded::Dropped;
        }
        let (likeness, note) = match checked(regarding, draft) {
            Ok(checked) => checked,
            Err(invalid) => {
                self.figures.failed += 1;
                return Recorded::Invalid(invalid.0);
            }
        };
        self.end_overdue(at.now);
        let is_combined = self.is_one_too_many(&likeness, &note, at.now);
        self.figures.combined += u64::from(is_combined);
        let (key, note) = if is_combined {
            (Key { likeness, note: None }, Some(format!("{PREFIX}{note}")))
        } else {
            (Key { likeness, note: Some(note) }, None)
        };
        if let Some(number) = self.open.get(&key) {
            return self.count(*number, at);
        }
        if self.waiting.len() >= self.settings.queue {
            self.figures.dropped += 1;
            return Recorded::Dropped;
        }
        if !self.is_allowed(&key.likeness, at.now) {
            self.figures.filtered += 1;
            return Recorded::Filtered;
        }
        self.begin(key, note, at);
        Recorded::Queued
    }

    fn is_one_too_many(&mut self, likeness: &Likeness, note: &str, now: Instant) -> bool {
        let (likeness, note) = (self.hasher.hash_one(likeness), self.hasher.hash_one(note));
        self.similar.used(likeness).is_one_too_many(note, now, &self.settings)
    }

    fn is_allowed(&mut self, likeness: &Likeness, now: Instant) -> bool {
        let source = self.hasher.hash_one(likeness.source());
        self.allowances.used(source).take(now, &self.settings)
    }

    /// An event that there is already was recorded once more.
    fn count(&mut self, number: u64, at: Moment) -> Recorded {
        let Some(series) = self.series.get_mut(&number) else { unreachable!("an open series is there") };
        series.count(at, self.figures.recorded);
        self.by_use.remove(&series.used);
        self.uses += 1;
        series.used = self.uses;
        self.by_use.insert(self.uses, number);
        if series.place == Place::Idle && series.is_due(at.now, &self.settings) {
            self.queue(number);
            return Recorded::Queued;
        }
        Recorded::Counted
    }

    /// An event was recorded for the first time.
    fn begin(&mut self, key: Key, note: Option<String>, at: Moment) {
        while self.open.len() >= self.settings.series
            && let Some((_, &longest_ago)) = self.by_use.first_key_value()
        {
            self.close(longest_ago);
        }
        let nanoseconds = u64::try_from(at.wall.as_nanosecond()).unwrap_or_default();
        let name = self.next_name(&key, nanoseconds);
        let note = note.map(|mut note| {
            note.truncate(cut(&note, LONGEST_NOTE).len());
            note
        });
        self.numbers += 1;
        let (number, key) = (self.numbers, Arc::new(key));
        let mut series = Series::new(key.clone(), note, name, at, self.figures.recorded);
        self.uses += 1;
        series.used = self.uses;
        self.by_use.insert(self.uses, number);
        self.open.insert(key, number);
        self.series.insert(number, series);
        self.queue(number);
    }

    /// A name that no other event of this recorder has, by the time if that is later than all before.
    fn next_name(&mut self, key: &Key, nanoseconds: u64) -> String {
        self.named = nanoseconds.max(self.named + 1);
        event_name(&key.likeness.regarding.name, self.named)
    }

    fn queue(&mut self, number: u64) {
        if let Some(series) = self.series.get_mut(&number) {
            series.place = Place::Queued;
            self.waiting.push_back(number);
        }
    }

    /// Nothing further is counted in a series; the server is told what it does not count yet.
    fn close(&mut self, number: u64) {
        // Of one that is closed, the key may be another one's by now.
        let Some(series) = self.series.get_mut(&number).filter(|series| series.is_open) else { return };
        self.open.remove(&series.key);
        self.by_use.remove(&series.used);
        series.is_open = false;
        match (series.place, series.untold()) {
            (Place::Idle, 0) => drop(self.series.remove(&number)),
            (Place::Idle, _) => self.queue(number),
            (Place::Queued | Place::Sending, _) => {}
        }
    }

    /// Ends the series that nothing was added to for long enough.
    pub(super) fn end_overdue(&mut self, now: Instant) {
        while let Some((end, number)) = self.first_end()
            && end <= now
        {
            self.close(number);
        }
    }

    /// When the first of the open series is over, if nothing is added to it.
    fn first_end(&self) -> Option<(Instant, u64)> {
        let (_, number) = self.by_use.first_key_value()?;
        Some((self.series.get(number)?.last_at + self.settings.finish, *number))
    }

    /// What is to be done now.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        self.end_overdue(now);
        if self.is_closed && (self.left() == 0 || self.until.is_some_and(|until| until <= now)) {
            self.abandon();
            return Next::Over;
        }
        let has_room = self.sending < self.pace.at_once(&self.settings);
        let is_paused = now < self.pace.until();
        if has_room
            && !is_paused
            && let Some(number) = self.waiting.pop_front()
            && let Some(series) = self.series.get_mut(&number)
        {
            self.sending += 1;
            return Next::Send(number, series.order(&self.reporter, self.figures.recorded + 1));
        }
        let paused = (has_room && !self.waiting.is_empty()).then(|| self.pace.until());
        let end = self.first_end().map(|(end, _)| end);
        Next::Wait([paused, end, self.until].into_iter().flatten().min())
    }

    /// A request has been answered; `random` decides within the pause that this may ask for.
    pub(super) fn answered(&mut self, number: u64, answer: Answer, now: Instant, random: u64) -> Option<GivenUp> {
        let series = self.series.get_mut(&number)?;
        self.sending -= 1;
        let (then, refusal) = match answer {
            Answer::Accepted => {
                let requests = if series.exists() { &mut self.figures.patches } else { &mut self.figures.creates };
                *requests += 1;
                (Then::Told, None)
            }
            Answer::Missing => (series.is_missing(), Some(Refusal { code: 404, ..Refusal::default() })),
            Answer::Exists if !series.exists() => (series.is_there(), None),
            Answer::Exists => (Then::Later, None),
            Answer::Later { code, asked } => {
                // With 429 a server says that it has not even begun.
                if code != Some(429) {
                    series.doubt();
                }
                self.pace.failed(asked, now, random, &self.settings);
                (Then::Later, None)
            }
            Answer::Refused(refusal) => (Then::GiveUp, Some(refusal)),
        };
        let is_last = series.tries >= self.settings.tries;
        match then {
            Then::Told => {
                self.told(number, now);
                return None;
            }
            Then::GiveUp => return self.give_up(number, refusal),
            _ if is_last => return self.give_up(number, None),
            Then::Rename => {
                let key = series.key.clone();
                let name = self.next_name(&key, 0);
                if let Some(series) = self.series.get_mut(&number) {
                    series.name = name;
                }
            }
            Then::Next | Then::Later => {}
        }
        self.figures.retries += 1;
        self.queue(number);
        if then != Then::Later
            && let Some(number) = self.waiting.pop_back()
        {
            self.waiting.push_front(number);
        }
        None
    }

    /// The server counts what the last request said.
    fn told(&mut self, number: u64, now: Instant) {
        self.pace.well();
        let Some(series) = self.series.get_mut(&number) else { return };
        self.figures.delivered += series.told(now);
        let is_awaited = !series.is_open || series.since <= self.flushing;
        match series.untold() {
            0 if series.is_open => {}
            0 => drop(self.series.remove(&number)),
            _ if is_awaited || series.is_due(now, &self.settings) => self.queue(number),
            _ => {}
        }
    }

    /// The server will not count what it does not count yet. What is recorded from now on is another event.
    fn give_up(&mut self, number: u64, refusal: Option<Refusal>) -> Option<GivenUp> {
        self.close(number);
        let series = self.series.remove(&number)?;
        let count = series.untold();
        self.figures.failed += count;
        let Likeness { regarding, reason, .. } = &series.key.likeness;
        Some(GivenUp { about: regarding.to_string(), reason: reason.clone(), count, refusal })
    }

    /// Has all be sent that was recorded until now, counts of series too, and soon; returns the number of the last recording.
    pub(super) fn flush(&mut self) -> u64 {
        let idle: Vec<u64> = self.by_use.values().copied().filter(|number| self.is_behind(*number)).collect();
        for number in idle {
            self.queue(number);
        }
        self.pace.hurry();
        self.flushing = self.figures.recorded;
        self.flushing
    }

    fn is_behind(&self, number: u64) -> bool {
        self.series.get(&number).is_some_and(|series| series.place == Place::Idle && series.untold() > 0)
    }

    /// Whether nothing up to this recording is left to be sent.
    pub(super) fn is_flushed(&self, last: u64) -> bool {
        self.left() == 0 || self.series.values().all(|series| series.untold() == 0 || series.since > last)
    }

    /// Records nothing any more, and sends what is left until then.
    pub(super) fn close_by(&mut self, until: Instant) {
        self.is_closed = true;
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
        while let Some((_, &number)) = self.by_use.first_key_value() {
            self.close(number);
        }
        self.pace.hurry();
    }

    fn abandon(&mut self) {
        self.abandoned += self.left();
        self.figures.dropped += self.left();
        self.series.clear();
        self.waiting.clear();
        self.sending = 0;
    }

    /// How many recordings were let go of when the time was over.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// How many recordings the server does not count yet, and may come to count.
    pub(super) fn left(&self) -> u64 {
        let EventStats { recorded, delivered, filtered, dropped, failed, .. } = self.figures;
        recorded - delivered - filtered - dropped - failed
    }

    pub(super) fn figures(&self) -> EventStats {
        EventStats { waiting: self.left(), queued: self.waiting.len(), series: self.open.len(), ..self.figures }
    }

    /// The series in which further recordings are counted, by their numbers, the one that was used longest ago first.
    #[cfg(test)]
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &Key)> {
        self.by_use.values().filter_map(|number| Some((*number, &*self.series.get(number)?.key)))
    }

    /// How much is remembered: series, similar events, allowances.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize, usize) {
        (self.series.len(), self.similar.len(), self.allowances.len())
    }
}
