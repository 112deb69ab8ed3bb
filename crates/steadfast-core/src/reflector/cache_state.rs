//! Facts about the cache and the server that all machines read. Only the reflector changes them.

use std::sync::Arc;

use super::bookmark_interval::BookmarkInterval;
use super::settings::ReflectorSettings;
use super::streamed_lists::StreamedLists;
use crate::fault_injection::{FaultInjection, inject};
use crate::freshness::{Evidence, FreshnessState};
use crate::keyset::KeySet;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Facts about the cache, and the settings.
#[derive(Debug)]
pub(super) struct CacheState {
    pub(super) settings: ReflectorSettings,
    /// Version that lists and the watch have reached. The watch resumes from it.
    pub(super) version: Option<ResourceVersion>,
    /// Version up to which a short watch has shown all changes, if our own watch has not reached it.
    pub(super) short_watch_version: Option<ResourceVersion>,
    /// Time at which the version was reached.
    pub(super) reached_at: Instant,
    /// Set after the first complete list, or after a restored checkpoint.
    pub(super) is_synced: bool,
    pub(super) bookmark_interval: BookmarkInterval,
    pub(super) streamed_lists: StreamedLists,
    pub(super) evidence: Evidence,
}

impl CacheState {
    /// Creates the state of an empty cache.
    pub(super) fn new(settings: ReflectorSettings) -> Self {
        let evidence = Evidence {
            state: FreshnessState::Starting,
            since: Instant::ZERO,
            reason: Arc::from("not started"),
            version: None,
            attempts: 0,
            next_attempt: None,
            proven: None,
            polled: None,
            max_fresh_age: settings.period * 2,
            stale_after: settings.stale_after,
            tainted: KeySet::default(),
            needs_list: false,
            faults: settings.rules.faults,
        };
        Self {
            version: None,
            short_watch_version: None,
            reached_at: Instant::ZERO,
            is_synced: false,
            bookmark_interval: BookmarkInterval::new(&settings),
            streamed_lists: StreamedLists::new(settings.streamed_lists),
            evidence,
            settings,
        }
    }

    /// Returns the faults that a test injects.
    pub(super) fn faults(&self) -> FaultInjection {
        self.settings.rules.faults
    }

    /// Returns the version of our own watch, or a higher version shown by a short watch.
    pub(super) fn reached_version(&self) -> Option<&ResourceVersion> {
        // A short watch may have proven more than our own watch has delivered. Resumes still start
        // from `version`.
        match (&self.version, &self.short_watch_version) {
            (Some(version), Some(short_watch_version)) if short_watch_version.is_newer_than(version) => {
                Some(short_watch_version)
            }
            (version, _) => version.as_ref(),
        }
    }

    /// Returns whether `version` is above the cached one. Opaque versions follow the order of delivery (C12).
    pub(super) fn is_new_version(&self, version: &ResourceVersion) -> bool {
        let Some(held) = &self.version else { return true };
        if inject!(self.faults(), RepeatedRecords) {
            return true;
        }
        match version.order(held) {
            Some(order) => order.is_gt(),
            None => true,
        }
    }

    /// Returns whether the cache has all changes up to `version`, as our own watch or a short watch has shown.
    pub(super) fn has_shown(&self, version: &ResourceVersion) -> bool {
        !self.is_new_version(version) || self.reached_version().is_some_and(|reached| !version.is_newer_than(reached))
    }

    /// Returns whether a proof covers the state at `then`.
    pub(super) fn is_proven_since(&self, then: Instant) -> bool {
        self.evidence.proven.is_some_and(|proven| proven >= then)
    }

    /// Records that our own watch or a list has reached `version`.
    pub(super) fn advance(&mut self, now: Instant, version: ResourceVersion) {
        self.version = Some(version);
        self.reached_at = now;
        self.evidence.version = self.reached_version().cloned();
    }

    /// Records that a short watch has shown all changes up to `version`.
    pub(super) fn set_shown(&mut self, now: Instant, version: ResourceVersion) {
        self.short_watch_version = Some(version);
        self.reached_at = now;
        self.evidence.version = self.reached_version().cloned();
    }

    /// Records a complete list at `version`.
    pub(super) fn list_complete(&mut self, now: Instant, version: Option<ResourceVersion>) {
        self.evidence.version.clone_from(&version);
        // A short watch's evidence about the old version does not apply to the new content.
        self.short_watch_version = None;
        (self.version, self.reached_at) = (version, now);
    }

    /// Treats all versions as opaque from here on.
    pub(super) fn make_opaque(&mut self) {
        self.version = self.version.as_ref().map(ResourceVersion::unordered);
        self.evidence.version.clone_from(&self.version);
    }

    /// Returns whether the cache is in doubt although a stream is open.
    pub(super) fn is_suspect(&self) -> bool {
        self.evidence.state == FreshnessState::Suspect
    }

    /// Sets the freshness state and its cause.
    pub(super) fn set_state(&mut self, now: Instant, state: FreshnessState, reason: impl Into<Arc<str>>) {
        self.evidence.set_state(now, state, reason);
    }
}
