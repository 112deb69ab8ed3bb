//! Status of a mirror.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;

use crate::entry::Step;
use crate::guard::ApprovalRequest;
use crate::plan::SkipReason;

/// Status of a mirror at its last read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MirrorStatus<V> {
    /// Number of reads.
    pub reads: u64,
    /// Time of the last successful read.
    pub last_read: Option<Instant>,
    /// True if the target had the desired state, except for the entries in `skipped`.
    pub settled: bool,
    /// Number of the mirror's entries in the target.
    pub entries: usize,
    /// Skipped entries, each with the reason.
    pub skipped: BTreeMap<String, SkipReason>,
    /// First element of `approvals`, if any.
    pub first_approval: Option<ApprovalRequest>,
    /// Removals that need approval, at most one request per group. Approve a request with
    /// [`MirrorMemory::approve`](crate::MirrorMemory::approve), then call [`compare_now`](crate::Mirror::compare_now).
    pub approvals: Vec<ApprovalRequest>,
    /// Names for which one group gave several different entries. The entry in service is used, otherwise the earlier
    /// one.
    pub conflicting: Vec<String>,
    /// Reason of the first uncertainty that keeps an entry, if any.
    pub uncertain: Option<Arc<str>>,
    /// Reason why the last pass failed. After a successful read, the reason why steps failed while the target has no
    /// entry of the mirror.
    pub failing: Option<Arc<str>>,
    /// Steps of the last attempt. The target may have rejected some of them; the next read shows the result.
    pub applied: Vec<Step<V>>,
    /// Number of restarts after a panic.
    pub restarts: u64,
    /// The last loss of entries that [`Target::changed`](crate::Target::changed) reported.
    pub loss: Option<EntryLoss>,
    /// ID of another process with the same mark. This process then adds entries and removes none.
    pub other_process: Option<Arc<str>>,
    /// True if another replica is the leader.
    pub is_standby: bool,
}

/// Loss of entries after a restart of the target or a change by another client.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryLoss {
    /// Number of the entries.
    pub missing: usize,
    /// Description of the change of the target.
    pub reason: Arc<str>,
    /// Time at which the loss was detected.
    pub detected: Instant,
}

/// State of a mirror. If several apply, the first variant of this list is reported. Only the rejection of single
/// entries is reported after `Uncertain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// Another replica leads. This replica neither reads nor writes the target.
    Standby,
    /// The target cannot be read or rejects a change, with the reason.
    Blocked(Arc<str>),
    /// Removals need approval: their IDs.
    NeedsApproval(Vec<String>),
    /// Entries stay because a view is uncertain, with the reason.
    Uncertain(Arc<str>),
    /// Steps are pending.
    Converging,
    /// The target matches the desired state, except for the entries in [`MirrorStatus::skipped`].
    Synced,
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standby => f.write_str("standby"),
            Self::Blocked(reason) => write!(f, "blocked ({reason})"),
            Self::NeedsApproval(ids) => write!(f, "needs approval ({})", ids.join(", ")),
            Self::Uncertain(reason) => write!(f, "uncertain ({reason})"),
            Self::Converging => f.write_str("converging"),
            Self::Synced => f.write_str("synced"),
        }
    }
}

impl<V> Default for MirrorStatus<V> {
    fn default() -> Self {
        Self {
            reads: 0,
            last_read: None,
            settled: false,
            entries: 0,
            skipped: BTreeMap::new(),
            first_approval: None,
            approvals: Vec::new(),
            conflicting: Vec::new(),
            uncertain: None,
            failing: None,
            applied: Vec::new(),
            restarts: 0,
            loss: None,
            other_process: None,
            is_standby: false,
        }
    }
}

impl<V> MirrorStatus<V> {
    /// Returns the state of the mirror at its last read.
    pub fn state(&self) -> MirrorState {
        // Only the most urgent condition is shown; the fields contain the others.
        if self.is_standby {
            MirrorState::Standby
        } else if let Some(reason) = &self.failing {
            MirrorState::Blocked(reason.clone())
        } else if self.last_read.is_none() {
            MirrorState::Converging
        } else if !self.approvals.is_empty() {
            MirrorState::NeedsApproval(self.approvals.iter().map(|request| request.id.clone()).collect())
        } else if let Some(reason) = &self.uncertain {
            MirrorState::Uncertain(reason.clone())
        } else if let Some((entry, reason)) =
            self.skipped.iter().find(|(_, reason)| matches!(reason, SkipReason::Rejected(_)))
        {
            MirrorState::Blocked(format!("{}: {reason}", entry.escape_debug()).into())
        } else if self.settled {
            MirrorState::Synced
        } else {
            MirrorState::Converging
        }
    }
}
