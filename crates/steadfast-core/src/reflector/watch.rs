//! The watch, which is resumed exactly at its end (R4, R6).

use super::cache_state::CacheState;
use super::delayed_action::DelayedAction;
use super::diagnostic::RelistCause;
use super::effect::{Effect, Effects};
use super::failure::{Failure, FailureKind};
use super::list_plan::ListPlan;
use super::record_action::Record;
use super::request::RequestId;
use super::settings::ReflectorSettings;
use super::stream::Stream;
use crate::fault_injection::inject;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Watch in progress.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) id: RequestId,
    /// Time of the request.
    requested_at: Instant,
    /// Arrival time of the response's head.
    opened_at: Option<Instant>,
    /// Set after a record.
    is_proven: bool,
    /// Set if the records follow the list directly: the watch started with the list, or from its version.
    follows_list: bool,
}

/// Meaning of a watch's record.
#[derive(Clone, Copy, Debug)]
pub(super) enum RecordMeaning<'a> {
    /// A change after the cached version.
    Change(&'a ResourceVersion),
    /// A state that is not above the cached version. `reached_higher` is set if the watch has delivered a higher
    /// version.
    Repeated { reached_higher: bool },
    /// A bookmark. `is_new_version` is set if it is above the cached version.
    Bookmark { version: &'a ResourceVersion, is_new_version: bool },
    /// No effect on the watch.
    Ignored,
}

impl Watch {
    /// Creates the watch of the request `id`, which was sent at `now`.
    pub(super) fn requested(id: RequestId, now: Instant) -> Self {
        Self { id, requested_at: now, opened_at: None, is_proven: false, follows_list: false }
    }

    /// Creates the watch of the request `id`, whose response is open at `now`.
    pub(super) fn open(id: RequestId, now: Instant) -> Self {
        Self { opened_at: Some(now), ..Self::requested(id, now) }
    }

    /// Returns the watch as one whose records follow the list directly.
    pub(super) fn after_list(self) -> Self {
        Self { follows_list: true, ..self }
    }

    /// Continues on another stream. Both streams count as one watch: the age and the proofs carry over.
    pub(super) fn continue_on(&mut self, id: RequestId) -> RequestId {
        self.follows_list = false;
        std::mem::replace(&mut self.id, id)
    }

    /// Returns the watch as the activities alongside it see it.
    pub(super) fn stream(&self) -> Stream {
        Stream { id: self.id, is_open: self.opened_at.is_some() }
    }

    /// Returns whether the head of the response has arrived.
    pub(super) fn is_open(&self) -> bool {
        self.opened_at.is_some()
    }

    /// Records the head of the response.
    pub(super) fn opened(&mut self, now: Instant) {
        self.opened_at = Some(now);
    }

    /// Records that a record was above the cached version. Such a record proves that the watch works, so a short
    /// lifetime does not count as a failure.
    pub(super) fn mark_proven(&mut self) {
        self.is_proven = true;
    }

    /// Interprets a record. A record that is not above the cached version contains no new change (C3, C4).
    pub(super) fn record<'a>(&self, record: Record<'a>, cache: &CacheState) -> RecordMeaning<'a> {
        match record {
            Record::Object(_, identity) if cache.is_new_version(&identity.version) => {
                RecordMeaning::Change(&identity.version)
            }
            Record::Object(..) => RecordMeaning::Repeated { reached_higher: self.is_proven || self.follows_list },
            Record::Bookmark(bookmark) => RecordMeaning::Bookmark {
                version: &bookmark.version,
                is_new_version: cache.is_new_version(&bookmark.version),
            },
            Record::Error(_) => RecordMeaning::Ignored,
        }
    }

    /// Returns the deadline of the response's head. An open watch may be silent for long.
    pub(super) fn head_due(&self, settings: &ReflectorSettings) -> Option<Instant> {
        self.opened_at.is_none().then(|| self.requested_at + settings.list_stall_timeout)
    }

    /// Returns the time at which the watch has been open for long enough to reset the backoffs (R6).
    pub(super) fn healthy_at(&self, settings: &ReflectorSettings) -> Option<Instant> {
        self.opened_at.map(|opened_at| opened_at + settings.healthy_after)
    }

    /// Handles the regular end. A healthy watch resumes immediately, any other after a growing delay.
    pub(super) fn ended(&self, now: Instant, cache: &CacheState) -> Effects {
        let open_duration = self.opened_at.map(|opened_at| now.since(opened_at)).unwrap_or_default();
        let effect = if inject!(cache.faults(), ForgottenVersion) {
            Effect::WatchFailed(Failure::unreachable("the server ended a watch"))
        } else if open_duration >= cache.settings.min_watch_duration {
            Effect::Resume
        } else if self.is_proven {
            // Its records are a proof, but do not allow a retry without a delay: the sequence of such watches may be
            // endless (R6).
            Effect::ResumeLater
        } else {
            let reason = format!("the server ended a watch after {} ms", open_duration.as_millis());
            Effect::WatchFailed(Failure::unreachable(reason))
        };
        effect.into()
    }

    /// Handles a failure, by its kind.
    pub(super) fn failed(&self, now: Instant, failure: &Failure, cache: &CacheState) -> Effects {
        let reached = cache.reached_version();
        let (failure, reason) = (failure.clone(), failure.message.clone());
        match failure.kind {
            _ if inject!(cache.faults(), ForgottenVersion) => {
                let (plan, cause) = (ListPlan::not_older_than(reached), RelistCause::Expired);
                Effect::Relist { plan, cause, reason }.into()
            }
            // The server has compacted this version. Few objects may have changed since.
            FailureKind::Expired => {
                let plan = ListPlan::after_expiry(reached, now + cache.settings.delta_timeout);
                Effect::Relist { plan, cause: RelistCause::Expired, reason }.into()
            }
            // This replica has not reached our version, or the history was restored from a backup.
            FailureKind::ResourceVersionTooLarge => {
                Effect::Lagging { plan: ListPlan::not_older_than(reached), failure }.into()
            }
            // The server may reject this specific version.
            FailureKind::Invalid => Effect::VersionRejected(failure).into(),
            // The cache contains the records before the failure and none after it. A later list shows whether the
            // collection is within the limit of the cache again.
            FailureKind::CacheFull => {
                let mut effects = Effects::from(Effect::Broken(failure.clone()));
                effects.push(Effect::Wait { failure, then: DelayedAction::List(ListPlan::not_older_than(reached)) });
                effects
            }
            FailureKind::Unreachable | FailureKind::Busy | FailureKind::Denied | FailureKind::Unreadable => {
                let is_evidence = self.is_evidence(now, &failure, &cache.settings);
                Effect::WatchUnavailable { failure, is_evidence }.into()
            }
        }
    }

    /// Returns whether the failure is evidence about watches. An unreachable server is no such evidence, unless the
    /// request timed out without a response head. Neither is the break of a watch that was open for some time.
    fn is_evidence(&self, now: Instant, failure: &Failure, settings: &ReflectorSettings) -> bool {
        match (failure.kind, self.opened_at) {
            (FailureKind::Unreachable, None) => now >= self.requested_at + settings.list_stall_timeout,
            (FailureKind::Unreachable, Some(opened_at)) => now.since(opened_at) < settings.min_watch_duration,
            // Each request obtains credentials again, so expired credentials do not show that watches fail.
            _ => failure.code != 401,
        }
    }
}
