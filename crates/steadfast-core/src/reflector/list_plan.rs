//! Full transfers: their minimum version and their form.

use std::sync::Arc;
use std::time::Duration;

use super::ListFrom;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Full transfer to be requested.
#[derive(Clone, Debug)]
pub(super) struct ListPlan {
    /// Minimum version.
    pub(super) from: ListFrom,
    /// Set to request all objects in one response, without continue tokens that could expire (F14).
    pub(super) is_unpaged: bool,
    /// Form of the transfer.
    pub(super) form: ListForm,
    /// Latest start of a delta relist; `None` if a full list is required.
    pub(super) delta_until: Option<Instant>,
    /// Set if the list replaces a watch.
    pub(super) replaces_watch: bool,
    /// Set if the versions restart.
    pub(super) new_epoch: bool,
    /// Time since which the responding server has lagged: the first such failure, or the start of the current period.
    pub(super) lagging_since: Option<Instant>,
}

impl ListPlan {
    /// Creates the first list.
    pub(super) fn first() -> Self {
        Self {
            from: ListFrom::Consistent,
            is_unpaged: false,
            form: ListForm::StreamedIfSupported,
            delta_until: None,
            replaces_watch: false,
            new_epoch: false,
            lagging_since: None,
        }
    }

    /// Creates a consistent list instead of a watch. Without changes, no other list proves freshness.
    pub(super) fn poll() -> Self {
        Self { replaces_watch: true, ..Self::first() }
    }

    /// Creates a list with the minimum `version`. Opaque versions have no order and require a consistent list.
    pub(super) fn not_older_than(version: Option<&ResourceVersion>) -> Self {
        let from = match version {
            Some(version) if version.is_ordered() => ListFrom::NotOlderThan(version.clone()),
            _ => ListFrom::Consistent,
        };
        Self { from, ..Self::first() }
    }

    /// Creates a list after a watch whose version expired. The cache was complete up to this version, so the
    /// differences may suffice, if they are requested before `until`.
    pub(super) fn after_expiry(version: Option<&ResourceVersion>, until: Instant) -> Self {
        Self { delta_until: Some(until), ..Self::not_older_than(version) }
    }

    /// Creates a list of another history.
    pub(super) fn new_epoch() -> Self {
        Self { new_epoch: true, ..Self::first() }
    }

    /// Creates a list to repair errors found by another list, in the form of the other list.
    pub(super) fn repair(new_epoch: bool) -> Self {
        Self { form: ListForm::Pages, new_epoch, ..Self::first() }
    }

    /// Requests a consistent list from now on; returns whether the previous list was not consistent.
    ///
    /// A consistent list comes from the quorum and never precedes the cached objects. Pages are required:
    /// kube-apiserver reads pages from etcd, while a streamed list waits for the lagging watch cache.
    pub(super) fn make_consistent(&mut self) -> bool {
        self.form = ListForm::Pages;
        std::mem::replace(&mut self.from, ListFrom::Consistent) != ListFrom::Consistent
    }

    /// Requests pages, because the streamed list does not work for the reason `reason`.
    pub(super) fn in_pages(self, reason: Arc<str>) -> Self {
        Self { form: ListForm::PagesFallback(PagesFallback { reason, applies_to_all_clients: true }), ..self }
    }

    /// Returns whether the server has lagged for `period` without a successful list. If so, the next period starts now.
    pub(super) fn has_lagged_for(&mut self, period: Duration, now: Instant) -> bool {
        let has_lagged = self.lagging_since.is_some_and(|since| now.since(since) >= period);
        if has_lagged {
            self.lagging_since = Some(now);
        }
        has_lagged
    }
}

/// Form of a list.
#[derive(Clone, Debug)]
pub(super) enum ListForm {
    /// Streamed, unless streams are known not to work.
    StreamedIfSupported,
    /// Paged: like the list whose errors this list repairs, or because a consistent stream would wait for a lagging
    /// server.
    Pages,
    /// Paged, after a streamed list failed.
    PagesFallback(PagesFallback),
}

/// Reason for pages instead of a stream.
#[derive(Clone, Debug)]
pub(super) struct PagesFallback {
    pub(super) reason: Arc<str>,
    /// Set if the reason applies to all clients that list this resource. A missing permission does not.
    pub(super) applies_to_all_clients: bool,
}
