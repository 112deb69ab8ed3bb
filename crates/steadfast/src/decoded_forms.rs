//! Decoded forms of objects that a cache contains in encoded form: reports by readers, and the rule for dropping them.
//!
//! A reader that decodes an object keeps the result in the cache for the next reader. The driver drops decoded forms
//! that were not read between two sweeps. A sweep is due after some seconds, and earlier if readers have decoded many
//! objects: one pass over all objects therefore needs little memory. If an object is decoded a second time, its decoded
//! form stays for a minute after its last read. A repeated pass over all objects therefore decodes each object twice at
//! most, and then costs as much as in a cache of decoded objects.
//!
//! If readers use many objects soon after their events, as controllers do, the decoded objects of events stay until the
//! next sweep too.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_core::on_demand::DecodedUse;
use steadfast_core::store::Store;
use steadfast_core::{Instant, ObjectKey, WithSize};

/// Interval between two sweeps while decoded forms exist.
const SWEEP_EVERY: Duration = Duration::from_secs(15);

/// Time from the first decode by a reader to the next sweep.
const FIRST_SWEEP_AFTER: Duration = Duration::from_secs(1);

/// Divisor of the number of events: if readers use this share of their objects, decoded objects stay until the next
/// sweep.
const USEFUL_ONE_IN: usize = 4;

/// Memory of the forms decoded since the last sweep at which the next sweep is due, in bytes.
const MAX_UNSWEPT_BYTES: usize = 32 * 1024 * 1024;

/// Time without a read after which a form that was decoded repeatedly is dropped.
const REPEATED_FOR: Duration = Duration::from_secs(60);

/// Reports of readers about decoded objects.
#[derive(Default)]
pub(crate) struct DecodeReports(Mutex<Reported>);

#[derive(Default)]
struct Reported {
    keys: Vec<ObjectKey>,
    /// Memory of the forms decoded since the last sweep, in bytes.
    unswept: usize,
    /// Memory of the forms that the last sweep kept, in bytes.
    kept: usize,
    /// True after the driver was woken for the first, or for the last report before a sweep.
    is_told: bool,
    is_told_of_many: bool,
}

impl DecodeReports {
    /// Records a decoded object. Returns true if the driver must be woken.
    pub(crate) fn add(&self, key: &ObjectKey, bytes: usize) -> bool {
        let mut reported = self.0.lock();
        reported.keys.push(key.clone());
        reported.unswept += bytes;
        let is_first = !std::mem::replace(&mut reported.is_told, true);
        let are_many = reported.unswept >= MAX_UNSWEPT_BYTES && !std::mem::replace(&mut reported.is_told_of_many, true);
        is_first || are_many
    }

    /// Returns the memory of the decoded forms in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let reported = self.0.lock();
        reported.unswept + reported.kept
    }

    fn are_many(&self) -> bool {
        self.0.lock().unswept >= MAX_UNSWEPT_BYTES
    }

    fn take(&self) -> Vec<ObjectKey> {
        let mut reported = self.0.lock();
        (reported.unswept, reported.is_told, reported.is_told_of_many) = (0, false, false);
        std::mem::take(&mut reported.keys)
    }
}

/// Decoded forms in the cache of an informer. Only the driver sweeps.
#[derive(Default)]
pub(crate) struct DecodedForms {
    kept: HashMap<ObjectKey, Form>,
    next: Option<Instant>,
    /// True if the decoded objects of watch events stay in the cache until the next sweep. Controllers read an object
    /// soon after its event.
    keeps_recent: bool,
    /// Number of watch events since the last sweep.
    events: usize,
    /// Memory of the decoded objects of events since the last sweep, in bytes.
    recent_bytes: usize,
}

struct Form {
    /// Time of the last sweep that found the form decoded or read.
    read: Instant,
    origin: Origin,
}

/// Origin of a decoded form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A reader decoded the object.
    Reader,
    /// A reader decoded the object again, after its decoded form was dropped.
    Again,
    /// A watch event that no sweep has seen yet.
    Event,
}

impl DecodedForms {
    /// Returns the time of the next sweep; `None` without decoded forms.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Processes the report of a reader. Returns true if a sweep is due.
    pub(crate) fn reported(&mut self, reports: &DecodeReports, now: Instant) -> bool {
        // Soon, since the sweep decides whether to keep the objects of events.
        self.next.get_or_insert(now + FIRST_SWEEP_AFTER);
        reports.are_many()
    }

    /// Processes the object of a watch event, before it is in the cache.
    pub(crate) fn event<K>(&mut self, key: &ObjectKey, object: &WithSize<K>, now: Instant) {
        if !object.is_on_demand() {
            return;
        }
        self.events += 1;
        if self.keeps_recent {
            object.keep_unread();
            self.recent_bytes += object.bytes;
            self.kept.insert(key.clone(), Form { read: now, origin: Origin::Event });
            self.next.get_or_insert(now + SWEEP_EVERY);
        }
    }

    /// Returns true if the objects of events since the last sweep require another sweep.
    pub(crate) fn is_full(&self) -> bool {
        self.recent_bytes >= MAX_UNSWEPT_BYTES
    }

    /// Drops unused decoded forms. Returns true if the store has changed.
    pub(crate) fn sweep<K: Send + Sync + 'static>(
        &mut self,
        reports: &DecodeReports,
        store: &mut Store<K>,
        now: Instant,
    ) -> bool {
        let keys = reports.take();
        let (decoded, mut recent, mut recent_read) = (keys.len(), 0, 0);
        for key in keys {
            self.kept.insert(key, Form { read: now, origin: Origin::Reader });
        }
        let (mut kept, mut has_dropped) = (0, false);
        self.kept.retain(|key, form| {
            // A newer state has replaced the decoded one.
            let Some((usage, bytes)) = store.sweep_decoded(key) else { return false };
            if form.origin == Origin::Event {
                recent += 1;
                recent_read += usize::from(usage == DecodedUse::Read);
            }
            let origin = if let DecodedUse::New { again: true } = usage { Origin::Again } else { form.origin };
            match usage {
                DecodedUse::New { .. } | DecodedUse::Read => form.read = now,
                DecodedUse::Idle if origin == Origin::Again && now.since(form.read) < REPEATED_FOR => {}
                DecodedUse::Idle => {
                    store.drop_decoded(key);
                    has_dropped = true;
                    return false;
                }
            }
            form.origin = if origin == Origin::Event { Origin::Reader } else { origin };
            kept += bytes;
            true
        });
        // Without kept objects of events, readers decode what they need; their number shows the need. With them, the
        // number of objects that readers used shows it.
        self.keeps_recent = if self.keeps_recent && recent > 0 {
            recent_read * USEFUL_ONE_IN >= recent
        } else {
            self.events > 0 && decoded * USEFUL_ONE_IN >= self.events
        };
        (self.events, self.recent_bytes) = (0, 0);
        reports.0.lock().kept = kept;
        self.next = (!self.kept.is_empty()).then(|| now + SWEEP_EVERY);
        has_dropped
    }
}
