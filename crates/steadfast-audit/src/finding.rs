//! Findings of an audit.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use steadfast::environment::Instant;

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum AuditFindingKind {
    /// The endpoint does not respond.
    Unresponsive,
    /// Consistent reads fail, while other requests succeed.
    ReadsFailing,
    /// A watch does not deliver changes that a new watch of the endpoint delivers.
    StalledStream,
    /// The watch cache of the endpoint does not reach a version that another source has shown.
    ReplicaBehind,
    /// A watch has passed the version of a change without delivering the change.
    LostEvents,
    /// A watch has no bookmarks, although the version of the resource rises.
    MissingBookmarks,
    /// Versions went back: the history of the cluster was replaced.
    HistoryReset,
    /// The endpoint rejects the requests of the audit for this resource.
    NotAudited,
}

impl AuditFindingKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Unresponsive,
        Self::ReadsFailing,
        Self::StalledStream,
        Self::ReplicaBehind,
        Self::LostEvents,
        Self::MissingBookmarks,
        Self::HistoryReset,
        Self::NotAudited,
    ];

    /// Returns the name in metrics and documentation: `stalled-stream`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unresponsive => "unresponsive",
            Self::ReadsFailing => "reads-failing",
            Self::StalledStream => "stalled-stream",
            Self::ReplicaBehind => "replica-behind",
            Self::LostEvents => "lost-events",
            Self::MissingBookmarks => "missing-bookmarks",
            Self::HistoryReset => "history-reset",
            Self::NotAudited => "not-audited",
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::Unresponsive => "the endpoint does not respond",
            Self::ReadsFailing => "consistent reads fail",
            Self::StalledStream => "the watch is stalled",
            Self::ReplicaBehind => "the watch cache is behind",
            Self::LostEvents => "the watch lost events",
            Self::MissingBookmarks => "the watch has no bookmarks",
            Self::HistoryReset => "versions went back",
            Self::NotAudited => "the resource is not audited",
        }
    }
}

/// Subject of a finding: an endpoint, and a resource unless the finding concerns the whole endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditSubject {
    /// Number of the endpoint.
    pub endpoint: usize,
    /// Number of the resource; `None` for the whole endpoint.
    pub resource: Option<usize>,
}

/// Start or end of a finding. `Display` writes one sentence.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AuditFinding {
    /// Kind of the finding.
    pub kind: AuditFindingKind,
    /// Name of the endpoint.
    pub endpoint: String,
    /// Name of the resource; `None` for the whole endpoint.
    pub resource: Option<String>,
    /// Start or end of the finding.
    pub state: AuditFindingState,
    /// Evidence, with texts of the server escaped.
    pub evidence: String,
}

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AuditFindingState {
    /// The finding started.
    Started,
    /// The finding ended after this duration.
    Ended(Duration),
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint)?;
        if let Some(resource) = &self.resource {
            write!(f, ", {resource}")?;
        }
        match self.state {
            AuditFindingState::Started => {
                write!(f, ": {} ({}): {}", self.kind.statement(), self.kind.name(), self.evidence)
            }
            AuditFindingState::Ended(lasted) => {
                write!(f, ": {} ended after {} s: {}", self.kind.name(), lasted.as_secs(), self.evidence)
            }
        }
    }
}

/// Active findings, and the numbers of all findings.
#[derive(Debug, Default)]
pub(crate) struct FindingLog {
    active: BTreeMap<(AuditFindingKind, AuditSubject), Instant>,
    totals: BTreeMap<(AuditFindingKind, usize), u64>,
    changes: Vec<(AuditFindingKind, AuditSubject, AuditFindingState, String)>,
}

impl FindingLog {
    /// Starts a finding; an active finding stays unchanged.
    pub(crate) fn start(&mut self, now: Instant, kind: AuditFindingKind, subject: AuditSubject, evidence: String) {
        if self.active.contains_key(&(kind, subject)) {
            return;
        }
        self.active.insert((kind, subject), now);
        *self.totals.entry((kind, subject.endpoint)).or_default() += 1;
        self.changes.push((kind, subject, AuditFindingState::Started, evidence));
    }

    /// Ends a finding, if it is active.
    pub(crate) fn end(&mut self, now: Instant, kind: AuditFindingKind, subject: AuditSubject, evidence: &str) {
        if let Some(since) = self.active.remove(&(kind, subject)) {
            let state = AuditFindingState::Ended(now.since(since));
            self.changes.push((kind, subject, state, evidence.to_owned()));
        }
    }

    /// Returns the start of an active finding.
    pub(crate) fn active_since(&self, kind: AuditFindingKind, subject: AuditSubject) -> Option<Instant> {
        self.active.get(&(kind, subject)).copied()
    }

    /// Returns the number of active findings of an endpoint.
    pub(crate) fn active_count(&self, kind: AuditFindingKind, endpoint: usize) -> usize {
        self.active.keys().filter(|(active, subject)| *active == kind && subject.endpoint == endpoint).count()
    }

    /// Returns the number of all findings of an endpoint so far.
    pub(crate) fn total(&self, kind: AuditFindingKind, endpoint: usize) -> u64 {
        self.totals.get(&(kind, endpoint)).copied().unwrap_or_default()
    }

    /// Removes and returns the starts and ends since the last call.
    pub(crate) fn take(&mut self) -> Vec<(AuditFindingKind, AuditSubject, AuditFindingState, String)> {
        std::mem::take(&mut self.changes)
    }
}
