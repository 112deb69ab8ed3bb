//! Records and list entries that belong to no identifiable object (R8).
//!
//! Such a record does not show which object it concerns. The whole cache is therefore in doubt until a complete list has
//! no such entry. An unidentified record of a watch causes a list, which may show the object with its identity. If that
//! list has unidentifiable entries itself, further lists follow, at growing intervals.

use std::sync::Arc;
use std::time::Duration;

use super::list_plan::ListPlan;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// State of unidentified records, and the time of the list that should resolve them.
#[derive(Debug, Default)]
pub(super) struct Unidentified {
    /// Error of the last such record. Only a complete list clears it: a list that fails resolves nothing.
    reason: Option<Arc<str>>,
    /// Error of the last such entry of the list in progress. It counts when the list is complete, since a list that
    /// fails does not change the cache.
    list_entry: Option<Arc<str>>,
    /// Set if a watch delivered such a record after the start of the list in progress, which may not contain the object.
    is_newer_than_list: bool,
    /// Time of the next list.
    due: Option<Instant>,
    /// Set if a record contradicted the cache by its version.
    has_contradiction: bool,
    /// End of the last list for this purpose.
    last_list_at: Option<Instant>,
    /// Number of consecutive complete lists that did not end the doubt.
    unresolving_lists: u32,
}

impl Unidentified {
    /// Returns whether no list is needed.
    pub(super) fn is_resolved(&self) -> bool {
        self.reason.is_none() && self.due.is_none()
    }

    /// Records the start of a list.
    pub(super) fn list_started(&mut self) {
        self.list_entry = None;
        self.is_newer_than_list = false;
    }

    /// Records a complete list.
    pub(super) fn list_complete(&mut self, now: Instant, period: Duration) {
        if self.due.take().is_some() {
            self.last_list_at = Some(now);
        }
        if !std::mem::take(&mut self.is_newer_than_list) {
            self.reason = None;
        }
        self.reason = self.list_entry.take().or_else(|| self.reason.take());
        if self.reason.is_none() {
            self.unresolving_lists = 0;
            return;
        }
        // Each list that does not end the doubt doubles the interval, up to 80 periods.
        self.due = Some(now + period * (5 << self.unresolving_lists.min(4)));
        self.unresolving_lists += 1;
    }

    /// Returns the error of the last unidentified record.
    pub(super) fn reason(&self) -> Option<&Arc<str>> {
        self.reason.as_ref()
    }

    /// Returns the time of the next list.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Records the error `reason` of an entry of the list in progress.
    pub(super) fn record_list_entry(&mut self, reason: Arc<str>) {
        self.list_entry = Some(reason);
    }

    /// Records a record of a watch that contradicts the cache by its version.
    pub(super) fn record_contradiction(&mut self, now: Instant, period: Duration, reason: Arc<str>) {
        self.record(now, period, reason);
        self.has_contradiction = true;
    }

    /// Returns the list that resolves the records and its reason, if it is due.
    pub(super) fn take_due_list(
        &mut self,
        now: Instant,
        version: Option<&ResourceVersion>,
    ) -> Option<(ListPlan, Arc<str>)> {
        self.due.filter(|due| now >= *due)?;
        let reason = self.reason.clone().unwrap_or_else(|| "a record could not be read".into());
        // Uncertain versions cannot serve as a minimum version, so the list must be consistent.
        let has_contradiction = std::mem::take(&mut self.has_contradiction);
        Some((if has_contradiction { ListPlan::first() } else { ListPlan::not_older_than(version) }, reason))
    }

    /// Schedules a list for an unidentified record of a watch, at most one per period. `reason` is the record's error.
    pub(super) fn record(&mut self, now: Instant, period: Duration, reason: Arc<str>) {
        self.reason = Some(reason);
        self.is_newer_than_list = true;
        let due = self.last_list_at.map_or(now, |last_list_at| now.max(last_list_at + period));
        self.due = Some(self.due.map_or(due, |planned| planned.min(due)));
    }
}
