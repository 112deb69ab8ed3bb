//! State machine that determines the API requests for recorded events, without I/O or a clock. Counts, combines and
//! limits events.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use steadfast::environment::Instant;

use super::allowance::Allowance;
use super::draft::EventDraft;
use super::key::{EventKey, SimilarityKey, check_event};
use super::lru::LruMap;
use super::names::{MAX_NOTE_BYTES, event_name, truncated};
use super::outcome::{Rejection, RequestOutcome};
use super::pacer::Pacer;
use super::reporter::Reporter;
use super::series::{AfterResponse, EventRequest, RecordTime, Series, SeriesState};
use super::settings::EventSettings;
use super::similar::{COMBINED_PREFIX, Similar};
use super::stats::EventStats;

/// Result of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordResult {
    /// A request is pending.
    Queued,
    /// The event is counted. A later request reports the count.
    Counted,
    /// The object exceeded its limit.
    Filtered,
    /// The queue is full.
    Dropped,
    /// The server would reject the event.
    Invalid(&'static str),
}

/// Next action of the sender.
#[derive(Debug, PartialEq)]
pub(super) enum SenderAction {
    /// Send this request, and pass its outcome with this number to [`Correlator::on_outcome`].
    Send(u64, EventRequest),
    /// Wait for a recording, a response, or this instant.
    Wait(Option<Instant>),
    /// Nothing remains to be sent.
    Done,
}

/// Recordings that were abandoned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AbandonedEvents {
    /// The object of these events.
    pub(super) object: String,
    pub(super) reason: Cow<'static, str>,
    pub(super) count: u64,
    /// The rejection. None if no response was final.
    pub(super) rejection: Option<Rejection>,
}

/// Recordings of one reporter, and the requests that they need.
///
/// The memory is bounded. The settings limit the number of open series. All other series are queued or being sent, and
/// a new series starts only while the queue is below its limit.
#[derive(Debug)]
pub(super) struct Correlator {
    reporter: Reporter,
    settings: EventSettings,
    hasher: RandomState,
    /// Series by number, ascending.
    series: BTreeMap<u64, Series>,
    last_number: u64,
    /// Series that accept further recordings.
    open: HashMap<Arc<EventKey>, u64>,
    last_use_number: u64,
    numbers_by_last_use: BTreeMap<u64, u64>,
    /// Series to be sent.
    waiting: VecDeque<u64>,
    sending_count: usize,
    similar: LruMap<Similar>,
    allowances: LruMap<Allowance>,
    pacer: Pacer,
    /// Number in the name of the last event.
    last_name_number: u64,
    /// Last recording that a flush waits for.
    flush_target: u64,
    is_closed: bool,
    /// Deadline after which the remaining events are abandoned.
    deadline: Option<Instant>,
    /// Number of recordings abandoned at the deadline.
    abandoned: u64,
    stats: EventStats,
}

impl Correlator {
    pub(super) fn new(reporter: Reporter, settings: EventSettings) -> Self {
        let settings = settings.normalized();
        Self {
            reporter,
            settings,
            hasher: RandomState::new(),
            series: BTreeMap::new(),
            last_number: 0,
            open: HashMap::new(),
            last_use_number: 0,
            numbers_by_last_use: BTreeMap::new(),
            waiting: VecDeque::new(),
            sending_count: 0,
            similar: LruMap::new(settings.series),
            allowances: LruMap::new(settings.series),
            pacer: Pacer::default(),
            last_name_number: 0,
            flush_target: 0,
            is_closed: false,
            deadline: None,
            abandoned: 0,
            stats: EventStats::default(),
        }
    }

    pub(super) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Records an event.
    pub(super) fn record(&mut self, regarding: ObjectReference, draft: EventDraft, at: RecordTime) -> RecordResult {
        self.stats.recorded += 1;
        if self.is_closed {
            self.stats.dropped += 1;
            return RecordResult::Dropped;
        }
        let (similarity, note) = match check_event(regarding, draft) {
            Ok(checked) => checked,
            Err(invalid) => {
                self.stats.failed += 1;
                return RecordResult::Invalid(invalid.0);
            }
        };
        // Expired series end before the lookup, so that they do not accept the recording.
        self.close_expired(at.now);
        let is_combined = self.must_combine(&similarity, &note, at.now);
        self.stats.combined += u64::from(is_combined);
        let (key, note) = if is_combined {
            // A combined event has no note in its key, so all similar events count in one series.
            (EventKey { similarity, note: None }, Some(format!("{COMBINED_PREFIX}{note}")))
        } else {
            (EventKey { similarity, note: Some(note) }, None)
        };
        if let Some(number) = self.open.get(&key) {
            return self.count_repetition(*number, at);
        }
        // Only new series are limited. A counted recording needs no space in the queue.
        if self.waiting.len() >= self.settings.queue {
            self.stats.dropped += 1;
            return RecordResult::Dropped;
        }
        if !self.is_allowed(&key.similarity, at.now) {
            self.stats.filtered += 1;
            return RecordResult::Filtered;
        }
        self.start_series(key, note, at);
        RecordResult::Queued
    }

    fn must_combine(&mut self, similarity: &SimilarityKey, note: &str, now: Instant) -> bool {
        let (similarity, note) = (self.hasher.hash_one(similarity), self.hasher.hash_one(note));
        self.similar.get_or_default(similarity).must_combine(note, now, &self.settings)
    }

    fn is_allowed(&mut self, similarity: &SimilarityKey, now: Instant) -> bool {
        let source = self.hasher.hash_one(similarity.source());
        self.allowances.get_or_default(source).take(now, &self.settings)
    }

    /// Counts a repeated event.
    fn count_repetition(&mut self, number: u64, at: RecordTime) -> RecordResult {
        // Recordings are counted locally. The server learns the count at the next request.
        let Some(series) = self.series.get_mut(&number) else { unreachable!("an open series exists") };
        series.count(at, self.stats.recorded);
        self.numbers_by_last_use.remove(&series.last_use);
        self.last_use_number += 1;
        series.last_use = self.last_use_number;
        self.numbers_by_last_use.insert(self.last_use_number, number);
        if series.state == SeriesState::Idle && series.is_due(at.now, &self.settings) {
            self.queue(number);
            return RecordResult::Queued;
        }
        RecordResult::Counted
    }

    /// Starts a series for a new event.
    fn start_series(&mut self, key: EventKey, note: Option<String>, at: RecordTime) {
        // The series with the oldest use is closed early. Its undelivered count is still sent.
        while self.open.len() >= self.settings.series
            && let Some((_, &oldest)) = self.numbers_by_last_use.first_key_value()
        {
            self.close(oldest);
        }
        let nanoseconds = u64::try_from(at.wall_time.as_nanosecond()).unwrap_or_default();
        let name = self.next_name(&key, nanoseconds);
        let note = note.map(|mut note| {
            note.truncate(truncated(&note, MAX_NOTE_BYTES).len());
            note
        });
        self.last_number += 1;
        let (number, key) = (self.last_number, Arc::new(key));
        let mut series = Series::new(key.clone(), note, name, at, self.stats.recorded);
        self.last_use_number += 1;
        series.last_use = self.last_use_number;
        self.numbers_by_last_use.insert(self.last_use_number, number);
        self.open.insert(key, number);
        self.series.insert(number, series);
        self.queue(number);
    }

    /// Returns a name that no other event of this recorder has. Its number is the time, or the last number plus one if
    /// that is higher.
    fn next_name(&mut self, key: &EventKey, nanoseconds: u64) -> String {
        // The numbers strictly increase, so that names of one process never collide, even if the clock steps back.
        self.last_name_number = nanoseconds.max(self.last_name_number + 1);
        event_name(&key.similarity.regarding.name, self.last_name_number)
    }

    fn queue(&mut self, number: u64) {
        if let Some(series) = self.series.get_mut(&number) {
            series.state = SeriesState::Queued;
            self.waiting.push_back(number);
        }
    }

    /// Closes a series for further recordings. Its remaining count is still sent.
    fn close(&mut self, number: u64) {
        // The key of a closed series may already belong to another series.
        let Some(series) = self.series.get_mut(&number).filter(|series| series.is_open) else { return };
        self.open.remove(&series.key);
        self.numbers_by_last_use.remove(&series.last_use);
        series.is_open = false;
        // A queued or sending series is removed after its response.
        match (series.state, series.undelivered()) {
            (SeriesState::Idle, 0) => drop(self.series.remove(&number)),
            (SeriesState::Idle, _) => self.queue(number),
            (SeriesState::Queued | SeriesState::Sending, _) => {}
        }
    }

    /// Closes all series without a recent recording.
    pub(super) fn close_expired(&mut self, now: Instant) {
        while let Some((end, number)) = self.first_end()
            && end <= now
        {
            self.close(number);
        }
    }

    /// Returns the series that ends first if no recording arrives, with the time of that end.
    fn first_end(&self) -> Option<(Instant, u64)> {
        let (_, number) = self.numbers_by_last_use.first_key_value()?;
        Some((self.series.get(number)?.last_at + self.settings.series_timeout, *number))
    }

    /// Returns the next action.
    pub(super) fn next(&mut self, now: Instant) -> SenderAction {
        self.close_expired(now);
        if self.is_closed && (self.undelivered() == 0 || self.deadline.is_some_and(|until| until <= now)) {
            self.abandon();
            return SenderAction::Done;
        }
        let has_capacity = self.sending_count < self.pacer.max_concurrent(&self.settings);
        let is_paused = now < self.pacer.until();
        if has_capacity
            && !is_paused
            && let Some(number) = self.waiting.pop_front()
            && let Some(series) = self.series.get_mut(&number)
        {
            self.sending_count += 1;
            // The count is read when the request is built: recordings during the wait need no second request.
            return SenderAction::Send(number, series.next_request(&self.reporter, self.stats.recorded + 1));
        }
        let resume_at = (has_capacity && !self.waiting.is_empty()).then(|| self.pacer.until());
        let end = self.first_end().map(|(end, _)| end);
        SenderAction::Wait([resume_at, end, self.deadline].into_iter().flatten().min())
    }

    /// Processes the outcome of a request. `random` chooses the length of a pause.
    pub(super) fn on_outcome(
        &mut self,
        number: u64,
        outcome: RequestOutcome,
        now: Instant,
        random: u64,
    ) -> Option<AbandonedEvents> {
        let series = self.series.get_mut(&number)?;
        self.sending_count -= 1;
        let (response_action, rejection) = match outcome {
            RequestOutcome::Accepted => {
                let requests = if series.exists() { &mut self.stats.patches } else { &mut self.stats.creates };
                *requests += 1;
                (AfterResponse::Acknowledged, None)
            }
            RequestOutcome::Missing => (series.on_not_found(), Some(Rejection { code: 404, ..Rejection::default() })),
            RequestOutcome::Exists if !series.exists() => (series.on_already_exists(), None),
            RequestOutcome::Exists => (AfterResponse::RetryLater, None),
            RequestOutcome::RetryLater { code, retry_after } => {
                // Code 429 guarantees that the server did not process the request.
                // Any other code may come from a proxy after the server processed the request.
                if code != Some(429) {
                    series.mark_outcome_unknown();
                }
                self.pacer.record_failure(retry_after, now, random, &self.settings);
                (AfterResponse::RetryLater, None)
            }
            RequestOutcome::Rejected(rejection) => (AfterResponse::Abandon, Some(rejection)),
        };
        // A series that fails repeatedly must not occupy the queue forever.
        let is_last = series.attempts >= self.settings.max_attempts;
        match response_action {
            AfterResponse::Acknowledged => {
                self.record_acknowledgement(number, now);
                return None;
            }
            AfterResponse::Abandon => return self.abandon_series(number, rejection),
            _ if is_last => return self.abandon_series(number, None),
            AfterResponse::Rename => {
                let key = series.key.clone();
                let name = self.next_name(&key, 0);
                if let Some(series) = self.series.get_mut(&number) {
                    series.name = name;
                }
            }
            AfterResponse::SendNow | AfterResponse::RetryLater => {}
        }
        self.stats.retries += 1;
        self.queue(number);
        // An immediate retry goes to the front. Otherwise newer series would delay the correction.
        if response_action != AfterResponse::RetryLater
            && let Some(number) = self.waiting.pop_back()
        {
            self.waiting.push_front(number);
        }
        None
    }

    /// Records that the server has the counts of the last request.
    fn record_acknowledgement(&mut self, number: u64, now: Instant) {
        self.pacer.record_success();
        let Some(series) = self.series.get_mut(&number) else { return };
        self.stats.delivered += series.acknowledge(now);
        // A flush waits for this series, or the series no longer accepts recordings.
        let is_awaited = !series.is_open || series.first_undelivered <= self.flush_target;
        match series.undelivered() {
            0 if series.is_open => {}
            0 => drop(self.series.remove(&number)),
            _ if is_awaited || series.is_due(now, &self.settings) => self.queue(number),
            _ => {}
        }
    }

    /// Abandons the undelivered recordings of a series. Later recordings start another event.
    fn abandon_series(&mut self, number: u64, rejection: Option<Rejection>) -> Option<AbandonedEvents> {
        self.close(number);
        let series = self.series.remove(&number)?;
        let count = series.undelivered();
        self.stats.failed += count;
        let SimilarityKey { regarding, reason, .. } = &series.key.similarity;
        Some(AbandonedEvents { object: regarding.to_string(), reason: reason.clone(), count, rejection })
    }

    /// Queues all series with undelivered counts, and cancels pauses. Returns the number of the last recording.
    pub(super) fn flush(&mut self) -> u64 {
        let idle: Vec<u64> =
            self.numbers_by_last_use.values().copied().filter(|number| self.has_undelivered(*number)).collect();
        for number in idle {
            self.queue(number);
        }
        self.pacer.cancel_pause();
        self.flush_target = self.stats.recorded;
        // A recording number, not an instant: recordings after this call do not delay the flush.
        self.flush_target
    }

    fn has_undelivered(&self, number: u64) -> bool {
        self.series.get(&number).is_some_and(|series| series.state == SeriesState::Idle && series.undelivered() > 0)
    }

    /// Returns true if no recording up to `last` is undelivered.
    pub(super) fn is_flushed(&self, last: u64) -> bool {
        self.undelivered() == 0
            || self.series.values().all(|series| series.undelivered() == 0 || series.first_undelivered > last)
    }

    /// Stops recording. The remaining events are sent until the deadline.
    pub(super) fn close_by(&mut self, until: Instant) {
        self.is_closed = true;
        self.deadline = Some(self.deadline.map_or(until, |earlier| earlier.min(until)));
        // Each close queues the undelivered counts, so a stop delivers as much as a flush.
        while let Some((_, &number)) = self.numbers_by_last_use.first_key_value() {
            self.close(number);
        }
        self.pacer.cancel_pause();
    }

    fn abandon(&mut self) {
        self.abandoned += self.undelivered();
        self.stats.dropped += self.undelivered();
        self.series.clear();
        self.waiting.clear();
        self.sending_count = 0;
    }

    /// Returns the number of recordings abandoned at the deadline.
    pub(super) fn abandoned(&self) -> u64 {
        self.abandoned
    }

    /// Returns the number of undelivered recordings.
    pub(super) fn undelivered(&self) -> u64 {
        let EventStats { recorded, delivered, filtered, dropped, failed, .. } = self.stats;
        recorded - delivered - filtered - dropped - failed
    }

    pub(super) fn stats(&self) -> EventStats {
        EventStats { waiting: self.undelivered(), queued: self.waiting.len(), series: self.open.len(), ..self.stats }
    }

    /// Returns the open series with their numbers, the least recently used first.
    #[cfg(test)]
    pub(super) fn open(&self) -> impl Iterator<Item = (u64, &EventKey)> {
        self.numbers_by_last_use.values().filter_map(|number| Some((*number, &*self.series.get(number)?.key)))
    }

    /// Returns the numbers of series, similar events and allowances.
    #[cfg(test)]
    pub(super) fn entry_counts(&self) -> (usize, usize, usize) {
        (self.series.len(), self.similar.len(), self.allowances.len())
    }
}
