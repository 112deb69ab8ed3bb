//! A full transfer: how new it has to be, and in which form it comes.

use std::sync::Arc;
use std::time::Duration;

use super::ListFrom;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// A full transfer to be made.
#[derive(Clone, Debug)]
pub(super) struct Full {
    /// How new it has to be.
    pub(super) from: ListFrom,
    /// Whether all objects are requested at once: no continue token that could expire on the way (F14).
    pub(super) whole: bool,
    /// Whether it is streamed.
    pub(super) form: Form,
    /// Until when it may begin to be made by difference from what is held; none where it may not.
    pub(super) by_difference: Option<Instant>,
    /// Whether it takes the place of a watch.
    pub(super) in_place: bool,
    /// Whether the versions begin anew.
    pub(super) new_epoch: bool,
    /// Since when the answering server has been known to lag; the first `TooLarge`.
    pub(super) lagging: Option<Instant>,
}

impl Full {
    /// The first list.
    pub(super) fn first() -> Self {
        Self {
            from: ListFrom::Consistent,
            whole: false,
            form: Form::AsItWorks,
            by_difference: None,
            in_place: false,
            new_epoch: false,
            lagging: None,
        }
    }

    /// The server's newest, in place of a watch: only that is a proof though nothing has changed.
    pub(super) fn poll() -> Self {
        Self { in_place: true, ..Self::first() }
    }

    /// A list that can only go forward from `version`; opaque versions cannot be ordered, so the server's newest it is.
    pub(super) fn again(version: Option<&ResourceVersion>) -> Self {
        let from = match version {
            Some(version) if version.is_ordered() => ListFrom::NotOlderThan(version.clone()),
            _ => ListFrom::Consistent,
        };
        Self { from, ..Self::first() }
    }

    /// The same after a watch whose version the server holds no more: what is held was the collection until then, and what
    /// differs from it may be all that is needed, if that is requested before `until`.
    pub(super) fn after_expiry(version: Option<&ResourceVersion>, until: Instant) -> Self {
        Self { by_difference: Some(until), ..Self::again(version) }
    }

    /// A list of another history.
    pub(super) fn new_epoch() -> Self {
        Self { new_epoch: true, ..Self::first() }
    }

    /// A list to repair what another one has shown to be wrong: requested in the same way.
    pub(super) fn repair(new_epoch: bool) -> Self {
        Self { form: Form::Pages, new_epoch, ..Self::first() }
    }

    /// Requests a consistent list from now on; returns whether the last one was not.
    ///
    /// The response to a consistent list comes from the quorum, so it is never older than the cached objects. It comes in
    /// pages: kube-apiserver reads those from etcd, while a streamed list waits for the watch cache that lags.
    pub(super) fn make_consistent(&mut self) -> bool {
        self.form = Form::Pages;
        std::mem::replace(&mut self.from, ListFrom::Consistent) != ListFrom::Consistent
    }

    /// Returns whether no list has succeeded within `period` since the first `TooLarge`; the next period starts now.
    pub(super) fn has_lagged_for(&mut self, period: Duration, now: Instant) -> bool {
        let long = self.lagging.is_some_and(|since| now.since(since) >= period);
        if long {
            self.lagging = Some(now);
        }
        long
    }
}

/// How a list comes.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Streamed, unless that is known not to work.
    AsItWorks,
    /// In pages, as the list was that it repairs.
    Pages,
    /// In pages, as it did not come in a stream.
    Instead(Instead),
}

/// Why a list comes in pages that was to be streamed.
#[derive(Clone, Debug)]
pub(super) struct Instead {
    pub(super) why: Arc<str>,
    /// Whether it is so for everyone who lists this resource, as a permission is not.
    pub(super) general: bool,
}
