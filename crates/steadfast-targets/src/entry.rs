//! Entries of a target, the desired and actual state, and the steps between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::origin::{ExistenceCheck, Origin, UncertainOrigins};
use crate::owner::ClaimResult;

/// Value of an entry at the target.
pub trait EntryValue: Clone + Debug + Eq + Send + Sync + 'static {
    /// Returns true if the entry receives traffic. An entry without traffic is removed without approval.
    fn serves(&self) -> bool {
        true
    }

    /// Returns the value that receives no new traffic. `None` if the target has no such value. The entry is then
    /// removed at once.
    fn drained(&self) -> Option<Self> {
        None
    }

    /// Returns the location at which the target stores the entry. Defaults to `name`. Another client's entry at the
    /// same location conflicts with this one. All entries at a location belong to the mirror, or none does.
    fn location<'a>(&'a self, name: &'a str) -> &'a str {
        name
    }

    /// Returns all locations that the entry occupies; its `name` is always occupied too. Defaults to
    /// [`location`](Self::location) alone. A location belongs to one [group](crate::Origin::group) of entries at a
    /// time.
    fn locations(&self, name: &str) -> Vec<String> {
        vec![self.location(name).to_owned()]
    }
}

/// Desired entry whose name already belongs to another entry in [`DesiredState::entries`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompetingEntry<V> {
    /// Name of the entry.
    pub name: String,
    /// Value of the entry.
    pub value: V,
    /// Origin of the entry.
    pub origin: Arc<Origin>,
}

/// All entries that should exist in the target.
#[derive(Clone, Debug)]
pub struct DesiredState<V> {
    /// The entries, by name.
    pub entries: BTreeMap<String, V>,
    /// Reason why all entries may be wrong. Nothing is removed while this reason is set.
    pub doubt: Option<Arc<str>>,
    /// Origins of the entries, by name. An entry without an origin belongs to the group with the empty name.
    pub origins: BTreeMap<String, Arc<Origin>>,
    /// Second and later entries with names from `entries`. The group that holds a name keeps the name. If no group
    /// holds the name, the entry in `entries` takes precedence.
    pub competing: Vec<CompetingEntry<V>>,
    /// Uncertainty about single clusters and objects.
    pub uncertain_origins: UncertainOrigins,
    /// Function that returns whether the object of an entry still exists. Without the function, each lost entry counts
    /// as a removal that may need approval.
    pub exists: Option<ExistenceCheck>,
    /// Number of the [term](crate::Term) in which the entries were determined; 0 without replicas. While the mirror has
    /// a permit of another term, nothing is removed: the earlier leader may have written newer entries than these.
    pub term: u64,
}

impl<V> Default for DesiredState<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            doubt: None,
            origins: BTreeMap::new(),
            competing: Vec::new(),
            uncertain_origins: UncertainOrigins::default(),
            exists: None,
            term: 0,
        }
    }
}

/// Compares everything except the existence check.
impl<V: PartialEq> PartialEq for DesiredState<V> {
    fn eq(&self, other: &Self) -> bool {
        let Self { entries, doubt, origins, competing, uncertain_origins, exists: _, term } = self;
        let other_parts = (&other.entries, &other.doubt, &other.origins, &other.competing, &other.uncertain_origins);
        (entries, doubt, origins, competing, uncertain_origins) == other_parts && *term == other.term
    }
}

impl<V> DesiredState<V> {
    /// Creates a desired state in which all `entries` are certain.
    pub fn new(entries: BTreeMap<String, V>) -> Self {
        Self { entries, ..Self::default() }
    }
}

/// Entries at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualState<V> {
    /// Entries of the mirror, by name.
    pub own: BTreeMap<String, V>,
    /// Names or [locations](EntryValue::location) of foreign entries, which the mirror never changes.
    pub others: BTreeSet<String>,
    /// Names of the mirror's entries that are still in use.
    pub busy: BTreeSet<String>,
}

/// Single change of the target.
#[derive(Clone, PartialEq, Eq)]
pub enum Step<V> {
    /// Adds a missing entry.
    Add {
        /// Name of the entry.
        name: String,
        /// Desired value.
        value: V,
    },
    /// Changes an entry.
    Change {
        /// Name of the entry.
        name: String,
        /// Value at the last read.
        from: V,
        /// Desired value.
        to: V,
    },
    /// Removes an entry.
    Remove {
        /// Name of the entry.
        name: String,
        /// Value at the last read.
        value: V,
    },
}

impl<V> Step<V> {
    /// Returns the name of the entry.
    pub fn name(&self) -> &str {
        match self {
            Self::Add { name, .. } | Self::Change { name, .. } | Self::Remove { name, .. } => name,
        }
    }
}

/// Formats steps like a diff: `+` adds, `~` changes, `-` removes.
impl<V: Debug> Debug for Step<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { name, value } => write!(f, "+ {name} {value:?}"),
            Self::Change { name, from, to } => write!(f, "~ {name} {from:?} to {to:?}"),
            Self::Remove { name, value } => write!(f, "- {name} {value:?}"),
        }
    }
}

/// External system that holds the entries.
pub trait Target: Send + Sync + 'static {
    /// Value of an entry.
    type Value: EntryValue;
    /// Error of a read or a change, with advice.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Set to true by a target that keeps an ownership record, which [`claim`](Self::claim) renews. Defaults to false.
    const HAS_OWNER_RECORD: bool = false;

    /// Reads the current entries. Must not return a cached result.
    fn read(&self) -> impl Future<Output = Result<ActualState<Self::Value>, Self::Error>> + Send;

    /// Applies `steps`, and continues after a failed step. Steps of different entries may be applied concurrently.
    /// Returns the error of the first failed step.
    ///
    /// The mirror reads the target again afterwards, with either result.
    fn apply(&self, steps: &[Step<Self::Value>]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns the commands of the target's own tool that would apply `steps` to `found`.
    fn describe(&self, found: &ActualState<Self::Value>, steps: &[Step<Self::Value>]) -> Vec<String>;

    /// Makes all desired entries consistent with each other, and removes the entries that the target cannot hold.
    ///
    /// Returns the reason for each removed entry, by name. A removed entry does not affect other entries. If the target
    /// already has an entry of this name, the mirror leaves that entry unchanged. Accepts every entry by default.
    fn validate(&self, desired: &mut BTreeMap<String, Self::Value>) -> BTreeMap<String, String> {
        let _ = desired;
        BTreeMap::new()
    }

    /// Completes when the target was restarted or changed by another client, so that the mirror reads it immediately.
    ///
    /// The mirror can drop and recreate this future at any time. So the target must store the state to compare with,
    /// and each [`read`](Self::read) must update this state. Never completes by default.
    fn changed(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Returns the last change of the target by a restart or another client since the previous call, for the log.
    /// `None` by default.
    fn change_reason(&self) -> Option<String> {
        None
    }

    /// Keeps leases and similar resources of the target alive.
    ///
    /// The mirror calls this at least once per [`compare`](crate::MirrorSettings::compare) period from its start on,
    /// even before the first desired state is set. Does nothing by default.
    ///
    /// # Errors
    ///
    /// Returns an error if the target does not confirm the renewal. The mirror retries soon.
    fn renew(&self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Records at the target that the process `instance` maintains the entries of this mark, at `now` in seconds since
    /// 1970.
    ///
    /// A process should call this about once a minute. A record that was not renewed for
    /// [`OWNER_EXPIRES_SECS`](crate::OWNER_EXPIRES_SECS) is taken over. Targets without such a record return
    /// [`ClaimResult::Ours`], which is the default.
    ///
    /// # Errors
    ///
    /// Returns an error if the target does not confirm the record. Another process may then maintain the entries.
    fn claim(&self, instance: &str, now: u64) -> impl Future<Output = Result<ClaimResult, Self::Error>> + Send {
        let _ = (instance, now);
        std::future::ready(Ok(ClaimResult::Ours))
    }

    /// Makes the target reject writes of an earlier leader. From now on, every write of this process fails if the
    /// target has recorded a later term than `term`. Returns false if a later term is already recorded.
    ///
    /// Replicas call this at the start of each [term](crate::Term), before the first write, and about once a minute.
    /// Targets without conditional writes return true, which is the default.
    ///
    /// # Errors
    ///
    /// Returns an error if the target does not confirm the record.
    fn record_term(&self, term: u64, now: u64) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (term, now);
        std::future::ready(Ok(true))
    }
}
