//! One event as the server has it or will have it, and how often it was recorded.

use std::sync::Arc;

use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use steadfast::environment::Instant;

use super::key::{Key, Referent};
use super::reporter::Reporter;
use super::settings::EventSettings;

/// A moment by both clocks: that which says how long something takes, and that of people.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
}

/// Where an event is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is to be sent.
    Idle,
    /// It waits for its turn.
    Queued,
    /// A request is under way.
    Sending,
}

/// A request to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Order {
    Create(Box<Event>),
    Patch { namespace: String, name: String, series: EventSeries },
}

/// One event as the server has it or will have it.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: Arc<Key>,
    /// The note, where the key has none.
    combined: Option<String>,
    pub(super) name: String,
    /// When it was recorded first and last.
    first: Timestamp,
    last: Timestamp,
    pub(super) last_at: Instant,
    /// How often it was recorded, and how often of that the server is known to count.
    pub(super) count: u64,
    pub(super) told: u64,
    told_at: Instant,
    /// What the request that is under way says of that.
    asked: u64,
    /// Which recording, of all that there ever were, is the first one that the server does not count; and which one is it
    /// once the request that is under way is done. None is later.
    pub(super) since: u64,
    after: u64,
    /// Whether the server has it; whether it may have it, for nobody knows what became of a request to make it.
    exists: bool,
    is_in_doubt: bool,
    pub(super) tries: u32,
    pub(super) place: Place,
    /// Whether further ones are counted in it, and which use of a series its last one was.
    pub(super) is_open: bool,
    pub(super) used: u64,
}

/// What is to be done after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The server counts what the request said.
    Told,
    /// Another request at once.
    Next,
    /// The same with another name.
    Rename,
    /// The same later.
    Later,
    /// Nothing any more.
    GiveUp,
}

impl Series {
    /// An event that was recorded for the first time, as recording number `since`.
    pub(super) fn new(key: Arc<Key>, combined: Option<String>, name: String, at: Moment, since: u64) -> Self {
        Self {
            key,
            combined,
            name,
            first: at.wall,
            last: at.wall,
            last_at: at.now,
            count: 1,
            told: 0,
            told_at: at.now,
            asked: 0,
            since,
            after: since,
            exists: false,
            is_in_doubt: false,
            tries: 0,
            place: Place::Idle,
            is_open: true,
            used: 0,
        }
    }

    /// It was recorded once more, as recording number `number`.
    pub(super) fn count(&mut self, at: Moment, number: u64) {
        if self.untold() == 0 {
            self.since = number;
        }
        self.count += 1;
        self.last = self.last.max(at.wall);
        self.last_at = at.now;
    }

    /// How many recordings the server does not count yet.
    pub(super) fn untold(&self) -> u64 {
        self.count - self.told
    }

    /// Whether it is time to tell the server of those: what it shows is never less than half of what was, nor older than the
    /// refresh. Each further request takes twice as many events as the one before, however many come.
    pub(super) fn is_due(&self, now: Instant, settings: &EventSettings) -> bool {
        let is_behind = self.count >= self.told.saturating_mul(2) || now.since(self.told_at) >= settings.refresh;
        self.untold() > 0 && is_behind
    }

    /// The request that tells the server of all there is; `next` is the number of the next recording.
    pub(super) fn order(&mut self, reporter: &Reporter, next: u64) -> Order {
        self.place = Place::Sending;
        self.asked = self.count;
        self.after = next;
        self.tries += 1;
        let namespace = self.key.likeness.regarding.events_namespace().to_owned();
        match self.series() {
            Some(series) if self.exists => Order::Patch { namespace, name: self.name.clone(), series },
            series => Order::Create(Box::new(self.event(reporter, namespace, series))),
        }
    }

    /// The series: none of what was recorded once.
    fn series(&self) -> Option<EventSeries> {
        let count = i32::try_from(self.count).unwrap_or(i32::MAX);
        (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(self.last) })
    }

    fn event(&self, reporter: &Reporter, namespace: String, series: Option<EventSeries>) -> Event {
        let Key { likeness, note } = &*self.key;
        let note = self.combined.as_ref().or(note.as_ref()).filter(|note| !note.is_empty());
        Event {
            action: Some(likeness.action.to_string()),
            event_time: Some(MicroTime(self.first)),
            metadata: ObjectMeta { name: Some(self.name.clone()), namespace: Some(namespace), ..ObjectMeta::default() },
            note: note.cloned(),
            reason: Some(likeness.reason.to_string()),
            regarding: Some(likeness.regarding.reference()),
            related: likeness.related.as_ref().map(Referent::reference),
            reporting_controller: Some(reporter.controller.clone()),
            reporting_instance: Some(reporter.instance.clone()),
            series,
            type_: Some(likeness.kind.as_str().to_owned()),
            ..Event::default()
        }
    }

    /// The request is done: how many recordings more the server counts.
    pub(super) fn told(&mut self, now: Instant) -> u64 {
        let more = self.asked - self.told;
        (self.told, self.told_at, self.since) = (self.asked, now, self.after);
        (self.exists, self.is_in_doubt, self.tries) = (true, false, 0);
        self.place = Place::Idle;
        more
    }

    /// Whether the server has it, as far as is known.
    pub(super) fn exists(&self) -> bool {
        self.exists
    }

    /// There is none of this name any more, if there ever was: what to do.
    pub(super) fn is_missing(&mut self) -> Then {
        // To be made, it misses its namespace.
        if !self.exists {
            return Then::GiveUp;
        }
        (self.exists, self.is_in_doubt) = (false, false);
        Then::Next
    }

    /// There is one of this name already: what to do.
    pub(super) fn is_there(&mut self) -> Then {
        if !self.is_in_doubt {
            return Then::Rename;
        }
        // It was made by a request whose answer was lost, and is there as it was then.
        (self.exists, self.is_in_doubt) = (true, false);
        if self.asked == 1 { Then::Told } else { Then::Next }
    }

    /// Nobody knows whether the request was done.
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt |= !self.exists;
    }
}
