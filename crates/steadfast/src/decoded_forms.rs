//! Decoded forms of objects that a cache contains in encoded form: reports by readers, and the rule for dropping them.
//!
//! A reader that decodes an object keeps the result in the cache for the next reader. The driver drops unused decoded
//! forms in *sweeps*. Each form belongs to one of three generations:
//!
//! - *reported*: decoded since the last sweep. The next sweep marks the form as unread, so that the following sweep
//!   detects reads.
//! - *fresh*: seen by one sweep. The following sweep drops the form, unless a reader has used it since.
//! - *kept*: used again, or decoded again after a drop. Such a form stays for 15 s after its last use; a form that was
//!   decoded again stays for 60 s. A repeated pass over all objects therefore decodes each object twice at most, and
//!   then costs as much as in a cache of decoded objects.
//!
//! A timed sweep visits all generations: 1 s after the first decode by a reader, and then every 15 s while forms exist.
//! An additional sweep runs after each 32 MB of decoded objects, so that one pass over all objects needs little memory.
//! Such a sweep omits the kept forms: otherwise, one pass over n objects would cause n² visits. A sweep runs in steps
//! between the events of the watch, so that it delays none of them noticeably.
//!
//! If readers use many objects soon after their events, as controllers do, the decoded objects of events become fresh
//! forms too.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_core::on_demand::DecodedUse;
use steadfast_core::store::Store;
use steadfast_core::{Instant, ObjectKey, WithSize};

/// Interval between two timed sweeps while decoded forms exist, and the retention of forms that were decoded once.
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);

/// Time from the first decode by a reader to the next sweep.
const FIRST_SWEEP_DELAY: Duration = Duration::from_secs(1);

/// Denominator of the share of event objects that readers must use. At this share or above, the decoded objects of
/// later events stay until the next sweep.
const MIN_USED_SHARE_DENOMINATOR: usize = 4;

/// Memory of the forms that were decoded since the last sweep, in bytes. At this value, another sweep is due.
const MAX_UNSWEPT_BYTES: usize = 32 * 1024 * 1024;

/// Time without a read after which a form that was decoded repeatedly is dropped.
const REPEATED_RETENTION: Duration = Duration::from_secs(60);

/// Maximum number of forms that one step visits. A visit takes about 0.2 µs.
const MAX_VISITS_PER_STEP: usize = 512;

/// Maximum number of forms that one step drops. The drop of a pod takes about 7 µs, so a step takes about 0.5 ms.
const MAX_DROPS_PER_STEP: usize = 64;

/// Maximum delay of a step by other input of the driver.
const MAX_STEP_DELAY: Duration = Duration::from_millis(2);

/// Reports of readers about decoded objects.
#[derive(Default)]
pub(crate) struct DecodeReports(Mutex<Reported>);

#[derive(Default)]
struct Reported {
    forms: VecDeque<Report>,
    /// Memory of the reported forms, in bytes.
    bytes: usize,
    /// Memory of the forms that the driver has accepted, in bytes.
    accepted_bytes: usize,
}

struct Report {
    key: ObjectKey,
    bytes: usize,
}

impl DecodeReports {
    /// Records a decoded object. Returns true if the driver must be woken.
    pub(crate) fn add(&self, key: &ObjectKey, bytes: usize) -> bool {
        let mut reported = self.0.lock();
        let (is_first, bytes_before) = (reported.forms.is_empty(), reported.bytes);
        reported.forms.push_back(Report { key: key.clone(), bytes });
        reported.bytes += bytes;
        // Once for the first report since the last sweep, and once when the memory reaches the limit.
        is_first || (bytes_before < MAX_UNSWEPT_BYTES && reported.bytes >= MAX_UNSWEPT_BYTES)
    }

    /// Returns the memory of the decoded forms in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let reported = self.0.lock();
        reported.bytes + reported.accepted_bytes
    }

    fn are_many(&self) -> bool {
        self.0.lock().bytes >= MAX_UNSWEPT_BYTES
    }

    /// Returns all reports and their memory in bytes.
    fn take(&self) -> (VecDeque<Report>, usize) {
        let mut reported = self.0.lock();
        (std::mem::take(&mut reported.forms), std::mem::take(&mut reported.bytes))
    }
}

/// Decoded forms in the cache of an informer. Only the driver sweeps.
#[derive(Default)]
pub(crate) struct DecodedForms {
    forms: HashMap<ObjectKey, Form>,
    /// Reports that the sweep in progress must accept.
    reported: VecDeque<Report>,
    /// Forms that one sweep has seen, and decoded objects of events, from the oldest to the newest.
    fresh: VecDeque<Queued>,
    /// Forms that only timed sweeps visit.
    kept: VecDeque<Queued>,
    /// Memory of `reported` and `forms`, in bytes.
    bytes: usize,
    /// Number of queued forms so far.
    tickets: u64,
    /// Time of the next timed sweep.
    next: Option<Instant>,
    /// Sweep in progress.
    sweep: Option<Sweep>,
    /// Latest time of the next step, if a sweep is in progress or due because of memory.
    step_by: Option<Instant>,
    /// True if the decoded objects of watch events stay in the cache until the next sweep. Controllers read an object
    /// soon after its event.
    keeps_recent: bool,
    /// Number of watch events since the last sweep.
    events: usize,
    /// Memory of the decoded objects of events since the last sweep, in bytes.
    recent_bytes: usize,
    /// Number of visited forms.
    #[cfg(test)]
    visits: usize,
}

/// Entry of a queue. It is void if the form has received another ticket since.
struct Queued {
    key: ObjectKey,
    ticket: u64,
}

/// Sweep in progress.
struct Sweep {
    is_timed: bool,
    /// Numbers of queued forms that the sweep still has to visit.
    fresh: usize,
    kept: usize,
    /// Number of forms that readers decoded.
    decoded: usize,
    /// Number of visited forms of events, and of those that a reader has used.
    recent: usize,
    recent_read: usize,
}

struct Form {
    ticket: u64,
    bytes: usize,
    /// Time of the last sweep that found the form decoded or read.
    read: Instant,
    origin: FormOrigin,
}

/// Origin of a decoded form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FormOrigin {
    /// A reader decoded the object.
    Reader,
    /// A reader decoded the object again, after its decoded form was dropped.
    Redecoded,
    /// A watch event that no sweep has seen yet.
    Event,
}

impl DecodedForms {
    /// Returns the time at which [`step`](Self::step) must run; `None` without decoded forms.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.step_by.or(self.next)
    }

    /// Returns true if [`step`](Self::step) has work: its time has come, or a sweep is in progress.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.has_step() || self.next.is_some_and(|next| next <= now)
    }

    /// Returns true if [`step`](Self::step) should run as soon as the driver has no other input.
    pub(crate) fn has_step(&self) -> bool {
        self.step_by.is_some()
    }

    /// Processes the report of a reader.
    pub(crate) fn reported(&mut self, reports: &DecodeReports, now: Instant) {
        if reports.are_many() {
            self.step_by.get_or_insert(now + MAX_STEP_DELAY);
        } else if self.sweep.is_none() {
            // Soon, since the sweep decides whether to keep the objects of events.
            self.next.get_or_insert(now + FIRST_SWEEP_DELAY);
        }
    }

    /// Processes the object of a watch event that is cached encoded, before it is in the cache. The driver applies the
    /// event before the next [`step`](Self::step). Returns true if the decoded object stays in the cache.
    pub(crate) fn event<K>(&mut self, key: &ObjectKey, object: &WithSize<K>, now: Instant) -> bool {
        self.events += 1;
        if self.keeps_recent {
            object.keep_unread();
            self.recent_bytes += object.bytes;
            self.bytes += object.bytes;
            let form = self.insert(key.clone(), object.bytes, now, FormOrigin::Event);
            self.fresh.push_back(form);
            self.next.get_or_insert(now + SWEEP_INTERVAL);
            if self.recent_bytes >= MAX_UNSWEPT_BYTES {
                self.step_by.get_or_insert(now + MAX_STEP_DELAY);
            }
        }
        self.keeps_recent
    }

    /// Visits some forms and drops the unused ones. Returns true if the store has changed.
    ///
    /// A step visits a bounded number of forms, because it holds the lock of the store. While
    /// [`has_step`](Self::has_step) returns true, further steps are due.
    pub(crate) fn step<K: Send + Sync + 'static>(
        &mut self,
        reports: &DecodeReports,
        store: &mut Store<K>,
        now: Instant,
    ) -> bool {
        let mut sweep = self.sweep.take().unwrap_or_else(|| self.begin(reports, now));
        let (mut visits, mut drops) = (0, 0);
        let mut is_complete = false;
        while visits < MAX_VISITS_PER_STEP && drops < MAX_DROPS_PER_STEP {
            let is_dropped = if let Some(report) = self.reported.pop_front() {
                self.accept(report, store, now);
                false
            } else if sweep.fresh > 0 {
                sweep.fresh -= 1;
                let queued = self.fresh.pop_front();
                self.visit(queued, Some(&mut sweep), store, now)
            } else if sweep.kept > 0 {
                sweep.kept -= 1;
                let queued = self.kept.pop_front();
                self.visit(queued, None, store, now)
            } else {
                is_complete = true;
                break;
            };
            visits += 1;
            drops += usize::from(is_dropped);
        }
        #[cfg(test)]
        {
            self.visits += visits;
        }
        if is_complete {
            self.finish(&sweep, reports, now);
        } else {
            self.sweep = Some(sweep);
            self.step_by = Some(now + MAX_STEP_DELAY);
        }
        reports.0.lock().accepted_bytes = self.bytes;
        drops > 0
    }

    /// Starts a sweep. Forms that are reported or queued later belong to the next sweep.
    fn begin(&mut self, reports: &DecodeReports, now: Instant) -> Sweep {
        let is_timed = self.next.is_some_and(|next| next <= now);
        let (reported, bytes) = reports.take();
        self.reported = reported;
        self.bytes += bytes;
        Sweep {
            is_timed,
            fresh: self.fresh.len(),
            kept: if is_timed { self.kept.len() } else { 0 },
            decoded: self.reported.len(),
            recent: 0,
            recent_read: 0,
        }
    }

    fn finish(&mut self, sweep: &Sweep, reports: &DecodeReports, now: Instant) {
        // If decoded objects of events are kept, the number of objects that readers used shows the need for them.
        // Otherwise, the number of objects that readers decoded shows the need.
        self.keeps_recent = if self.keeps_recent && sweep.recent > 0 {
            sweep.recent_read * MIN_USED_SHARE_DENOMINATOR >= sweep.recent
        } else {
            self.events > 0 && sweep.decoded * MIN_USED_SHARE_DENOMINATOR >= self.events
        };
        (self.events, self.recent_bytes) = (0, 0);
        if sweep.is_timed {
            self.next = None;
        }
        if !self.forms.is_empty() || !reports.0.lock().forms.is_empty() {
            self.next.get_or_insert(now + SWEEP_INTERVAL);
        }
        // A pass over many objects must not leave large empty tables.
        let target = 2 * self.forms.len();
        if self.forms.capacity() > 4 * target {
            self.forms.shrink_to(target);
            self.fresh.shrink_to(target);
            self.kept.shrink_to(target);
        }
        // Readers may have decoded many objects during the sweep.
        self.step_by = reports.are_many().then(|| now + MAX_STEP_DELAY);
    }

    /// Accepts the form of a report: it is fresh, or kept if it was dropped too early.
    fn accept<K: Send + Sync + 'static>(&mut self, report: Report, store: &Store<K>, now: Instant) {
        let Report { key, bytes } = report;
        let Some(usage) = store.sweep_decoded(&key) else {
            // A newer state has replaced the decoded one.
            self.bytes -= bytes;
            return;
        };
        let origin = match usage {
            DecodedUse::New { again: true } => FormOrigin::Redecoded,
            DecodedUse::New { again: false } => FormOrigin::Reader,
            // A sweep has already visited the key, because of an earlier form.
            DecodedUse::Read | DecodedUse::Idle => self.forms.get(&key).map_or(FormOrigin::Reader, |form| form.origin),
        };
        let form = self.insert(key, bytes, now, origin);
        if origin == FormOrigin::Redecoded { self.kept.push_back(form) } else { self.fresh.push_back(form) }
    }

    /// Visits a queued form. Returns true if it was dropped. `sweep` is given for a fresh form: only fresh forms can
    /// belong to an event, and an unused form is dropped immediately.
    fn visit<K: Send + Sync + 'static>(
        &mut self,
        queued: Option<Queued>,
        sweep: Option<&mut Sweep>,
        store: &mut Store<K>,
        now: Instant,
    ) -> bool {
        let Some(queued) = queued else { return false };
        let Some(form) = self.forms.get_mut(&queued.key).filter(|form| form.ticket == queued.ticket) else {
            return false;
        };
        let Some(usage) = store.sweep_decoded(&queued.key) else {
            self.remove(&queued.key);
            return false;
        };
        let retention = match form.origin {
            _ if sweep.is_some() => Duration::ZERO,
            FormOrigin::Redecoded => REPEATED_RETENTION,
            FormOrigin::Reader | FormOrigin::Event => SWEEP_INTERVAL,
        };
        if let Some(sweep) = sweep
            && form.origin == FormOrigin::Event
        {
            form.origin = FormOrigin::Reader;
            sweep.recent += 1;
            sweep.recent_read += usize::from(usage == DecodedUse::Read);
        }
        match usage {
            DecodedUse::Idle if now.since(form.read) >= retention => {
                store.drop_decoded(&queued.key);
                self.remove(&queued.key);
                return true;
            }
            DecodedUse::Idle => {}
            DecodedUse::New { again } => {
                // The form belongs to a newer state. The report of this form follows, and uses the origin that is set
                // here.
                form.origin = if again { FormOrigin::Redecoded } else { form.origin };
                form.read = now;
            }
            DecodedUse::Read => form.read = now,
        }
        self.kept.push_back(queued);
        false
    }

    /// Inserts a form whose memory `self.bytes` already includes. Queue entries of the key's earlier form become void.
    fn insert(&mut self, key: ObjectKey, bytes: usize, read: Instant, origin: FormOrigin) -> Queued {
        self.tickets += 1;
        let ticket = self.tickets;
        if let Some(earlier) = self.forms.insert(key.clone(), Form { ticket, bytes, read, origin }) {
            self.bytes -= earlier.bytes;
        }
        Queued { key, ticket }
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(form) = self.forms.remove(key) {
            self.bytes -= form.bytes;
        }
    }
}

#[cfg(test)]
mod tests;
