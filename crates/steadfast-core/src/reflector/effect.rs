//! Effects of a machine's step on the reflector and its other machines.

use std::sync::Arc;
use std::time::Duration;

use super::delayed_action::DelayedAction;
use super::diagnostic::{Diagnostic, RelistCause};
use super::failure::Failure;
use super::list_plan::ListPlan;
use super::output::Output;
use super::request::{Request, RequestId};
use crate::freshness::FreshnessState;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// Effect that a machine requests outside of its own data.
#[derive(Debug)]
pub(super) enum Effect {
    /// Perform an action.
    Perform(Output),

    /// The cache had all changes up to this instant.
    Proven(Instant),
    /// The activity alongside the watch has proven that the cache had all changes up to this instant.
    ProofFound(Instant),
    /// A requested proof did not arrive, for this reason.
    Unproven(Arc<str>),
    /// The watch is suspect, for this reason. Another watch is opened.
    Suspect(Arc<str>),
    /// The server does not respond on the connection of a watch without a response head.
    NoResponse,
    /// No complete list or no stream exists, because of a failure.
    Broken(Failure),
    /// Set the freshness state of the cache, with this cause. The state may stay the same while its cause changes.
    SetFreshness(FreshnessState, Arc<str>),
    /// A bookmark arrived on a stream alongside the watch.
    BookmarkReceived,
    /// A short watch received no bookmark.
    NoBookmarks,
    /// The server rejects streamed lists that match nothing.
    StreamsRejected,

    /// The cache contains all changes up to this version: the watch resumes from it.
    Advance(ResourceVersion),
    /// A short watch has shown all changes up to this version. The watch resumes from its own version.
    ShortWatchReached(ResourceVersion),

    /// Check if the short watch proves freshness. The cache has advanced before this effect.
    JudgeShortWatch,
    /// Only a list can provide the requested proof.
    CompareWithList,
    /// A proof is needed now.
    SeekProof,
    /// The next proof is due at this instant.
    ScheduleProof(Instant),
    /// The server requested this delay before the next request for a proof.
    DelayProof(Duration),
    /// Drop a running comparison.
    DropComparison,

    /// Request the whole collection again, for this reason.
    Relist { plan: ListPlan, cause: RelistCause, reason: Arc<str> },
    /// Request the list after the delay of relists, or after the delay that the server requested.
    ListLater { plan: ListPlan, retry_after: Option<Duration> },
    /// The list is complete. `fetched_count` is the number of objects that a delta relist transferred in full.
    ListComplete { version: Option<ResourceVersion>, fetched_count: Option<usize> },
    /// The list failed.
    ListFailed(Failure),
    /// The streamed list does not work: request pages immediately.
    FallBackToPages(Arc<str>),
    /// A streamed list failed, and streaming may be the cause: count the failure. After several failures, pages are
    /// requested.
    CountStreamedListFailure(Arc<str>),
    /// The delta relist was abandoned. Request a full list instead, but not before the end of a delay that the server
    /// requested.
    ListInFull { plan: ListPlan, not_before: Option<Instant>, reason: Arc<str> },
    /// A request of the delta relist is repeated later.
    DelayDeltaList(Failure),
    /// The responding server has not reached the version of the cache.
    Lagging { plan: ListPlan, failure: Failure },
    /// A consistent read returned this version, which is lower than the cached one: the server has another history.
    HistoryChanged(ResourceVersion),
    /// The version `proof` is lower than the cached version `held`: list the new history.
    ListNewHistory { held: ResourceVersion, proof: ResourceVersion, plan: ListPlan },

    /// Drop the watch and the activities alongside it.
    LeaveWatch,
    /// Watch from the version of the cache.
    Watch,
    /// The watch reached its regular end: watch again immediately.
    Resume,
    /// The watch reached its regular end too early: watch again after a growing delay.
    ResumeLater,
    /// The second watch replaces the suspect one.
    WatchReplaced(RequestId),
    /// The successor on another connection replaces the watch.
    TakeOver(RequestId),
    /// The watch failed.
    WatchFailed(Failure),
    /// The server rejects the version of the watch.
    VersionRejected(Failure),
    /// The watch failed independently of its version. `is_evidence` is set if the failure indicates that watches do not
    /// work on this server.
    WatchUnavailable { failure: Failure, is_evidence: bool },
    /// Wait for the delay that the server requested, or for the backoff.
    Wait { failure: Failure, then: DelayedAction },
    /// Request the list again after the backoff.
    RetryList(ListPlan),
    /// Wait until an instant.
    WaitUntil { until: Instant, then: DelayedAction },
    /// Lists replace the watch, for this reason.
    Poll { every: Duration, reason: Arc<str> },
}

/// Effects of one step, in order.
#[derive(Debug, Default)]
pub(super) struct Effects(Vec<Effect>);

impl Effects {
    /// Adds an effect.
    pub(super) fn push(&mut self, effect: Effect) {
        self.0.push(effect);
    }

    /// Adds an action.
    pub(super) fn perform(&mut self, output: Output) {
        self.push(Effect::Perform(output));
    }

    /// Adds the actions `outputs`.
    pub(super) fn perform_all(&mut self, outputs: impl IntoIterator<Item = Output>) {
        self.0.extend(outputs.into_iter().map(Effect::Perform));
    }

    /// Adds all effects of another step.
    pub(super) fn append(&mut self, effects: Self) {
        self.0.extend(effects.0);
    }

    /// Adds the request `id`.
    pub(super) fn send(&mut self, id: RequestId, request: Request) {
        self.perform(Output::Send(id, request));
    }

    /// Adds the cancellation of the request `id`.
    pub(super) fn cancel(&mut self, id: RequestId) {
        self.perform(Output::Cancel(id));
    }

    /// Adds a diagnostic.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.perform(Output::Diagnostic(diagnostic));
    }
}

impl From<Effect> for Effects {
    fn from(effect: Effect) -> Self {
        Self(vec![effect])
    }
}

impl IntoIterator for Effects {
    type Item = Effect;
    type IntoIter = std::vec::IntoIter<Effect>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
