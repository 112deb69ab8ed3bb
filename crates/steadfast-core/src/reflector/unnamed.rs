//! Records and list entries that belong to no identifiable object (R8).
//!
//! No object can be marked as unknown for them. The whole cache is therefore in doubt until a list has no such entry. A
//! list may name the object of an unidentified record. A list that also has such entries is repeated at growing
//! intervals.

use std::sync::Arc;
use std::time::Duration;

use super::list_plan::ListPlan;
use super::{Diagnostic, Failure, Input, Output, Phase, Reflector, RequestId, Verdict};
use crate::record::Identity;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// State of unidentified records, and the time of the list that should resolve them.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    /// Error of the last such record since the start of the last list.
    pub(super) why: Option<Arc<str>>,
    /// Time of the next list.
    pub(super) due: Option<Instant>,
    /// Set if a record contradicted the cache by its version.
    contradicted: bool,
    /// End of the last list for this purpose.
    listed: Option<Instant>,
    /// Number of consecutive lists that had unidentified entries themselves.
    in_vain: u32,
}

impl Unnamed {
    /// Returns whether no list is needed.
    pub(super) fn is_at_rest(&self) -> bool {
        self.why.is_none() && self.due.is_none()
    }

    /// Records the start of a list: its own entries count from here on.
    pub(super) fn list_begins(&mut self) {
        self.why = None;
    }

    /// Records a complete list.
    pub(super) fn list_complete(&mut self, now: Instant, period: Duration) {
        if self.due.take().is_some() {
            self.listed = Some(now);
        }
        if self.why.is_none() {
            self.in_vain = 0;
            return;
        }
        // Each list in vain doubles the interval, up to 80 periods.
        self.due = Some(now + period * (5 << self.in_vain.min(4)));
        self.in_vain += 1;
    }

    /// Schedules a list for an unidentified record of a watch, at most one per period.
    fn record(&mut self, now: Instant, period: Duration) {
        let due = self.listed.map_or(now, |listed| now.max(listed + period));
        self.due = Some(self.due.map_or(due, |planned| planned.min(due)));
    }
}

impl Reflector {
    /// Processes [`super::Input::Unidentified`].
    pub(super) fn unidentified(&mut self, now: Instant, id: RequestId, why: Arc<str>, out: &mut Vec<Output>) {
        let (watched, compared) = (self.is_read_from(id), self.is_comparing(id));
        let spared = self.is_sparing(id);
        match &mut self.phase {
            Phase::Listing { id: listing, progress, .. } if *listing == id => *progress = now,
            _ if spared => return self.list_all(now, why, out),
            _ if compared => {
                let failure =
                    Failure::unreadable(format!("a list of versions has an entry that cannot be named: {why}"));
                out.push(Output::Cancel(id));
                self.comparison_failed(now, &failure, out);
                return;
            }
            _ if watched => self.unnamed.record(now, self.settings.period),
            _ => return,
        }
        self.unnamed.why = Some(why.clone());
        self.evidence.unnamed = true;
        out.push(Output::Diagnostic(Diagnostic::Unidentified { why }));
        if watched {
            self.set_streaming(now);
        }
    }

    /// Handles an object without a version, if a version is needed to watch from or to compare with the cache.
    pub(super) fn unversioned(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Verdict {
        let why: Arc<str> = format!("{} came without a version to watch from", identity.key).into();
        if !matches!(self.phase, Phase::Listing { id: listing, streamed: true, .. } if listing == id) {
            return Verdict::Do(self.step(now, Input::Unidentified(id, why)));
        }
        // Without a version, the stream cannot continue as a watch after the list. Pages replace
        // the stream.
        let mut out = vec![Output::Cancel(id)];
        self.fall_back(now, why, &mut out);
        Verdict::Do(out)
    }

    /// Processes [`super::Input::Contradicted`]: a list decides, at most one per period.
    pub(super) fn contradicted(&mut self, now: Instant, id: RequestId, why: Arc<str>, out: &mut Vec<Output>) {
        if !self.is_read_from(id) {
            return;
        }
        self.unnamed.record(now, self.settings.period);
        self.unnamed.why = Some(why.clone());
        self.unnamed.contradicted = true;
        self.evidence.unnamed = true;
        out.push(Output::Diagnostic(Diagnostic::Contradicted { why }));
        self.set_streaming(now);
    }

    /// Processes [`super::Input::Disordered`]. From here on, the version of the cache serves only as the start of a
    /// watch.
    pub(super) fn disordered(&mut self, out: &mut Vec<Output>) {
        out.push(Output::Diagnostic(Diagnostic::Disordered));
        self.version = self.version.as_ref().map(ResourceVersion::unordered);
        self.evidence.version.clone_from(&self.version);
    }

    /// Starts the list that resolves unidentified records, if it is due.
    pub(super) fn list_unnamed(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.unnamed.due.is_none_or(|due| now < due) {
            return;
        }
        self.leave_watch(out);
        let why = self.unnamed.why.clone().unwrap_or_else(|| "a record could not be read".into());
        // Uncertain versions cannot serve as a minimum version, so the list must be consistent.
        let contradicted = std::mem::take(&mut self.unnamed.contradicted);
        let plan = if contradicted { ListPlan::first() } else { ListPlan::again(self.version.as_ref()) };
        self.relist(now, plan, why, out);
    }
}
