//! What lies outside under a name, whose it is, and what is to be done about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::origin::{Doubts, Exists, Origin};
use crate::owner::Claim;

/// What lies outside under a name.
pub trait Value: Clone + Debug + Eq + Send + Sync + 'static {
    /// Whether anything comes to it. What nothing comes to is missed by nobody when it goes.
    fn serves(&self) -> bool {
        true
    }

    /// The same with nothing new coming to it; `None` where there is no such state, so that it goes at once.
    fn drained(&self) -> Option<Self> {
        None
    }

    /// Returns the place that others would occupy, if that is not the `name` of the entry: a place belongs to the mirror as a
    /// whole or not at all.
    fn place<'a>(&'a self, name: &'a str) -> &'a str {
        name
    }

    /// Returns every place of the entry next to its `name`: a place belongs to one group of entries at a time.
    fn places(&self, name: &str) -> Vec<String> {
        vec![self.place(name).to_owned()]
    }
}

/// A further entry of a name that is wanted already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival<V> {
    /// Name of the entry.
    pub name: String,
    /// Value of the entry.
    pub value: V,
    /// Origin of the entry.
    pub origin: Arc<Origin>,
}

/// All entries that should exist in the target.
#[derive(Clone, Debug)]
pub struct Wanted<V> {
    /// The entries, by name.
    pub entries: BTreeMap<String, V>,
    /// Reason why all entries may be wrong, if there is one: nothing is removed while it is set.
    pub doubt: Option<Arc<str>>,
    /// Origins of the entries, by name. An entry without one belongs to the group with the empty name.
    pub origins: BTreeMap<String, Arc<Origin>>,
    /// Further entries of names in `entries`. The group that holds a name keeps it; otherwise the one in `entries` comes first.
    pub rivals: Vec<Rival<V>>,
    /// What is uncertain about single clusters and objects.
    pub doubts: Doubts,
    /// Tells whether the object of an entry exists. Without this, the loss of every entry counts.
    pub exists: Option<Exists>,
}

impl<V> Default for Wanted<V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            doubt: None,
            origins: BTreeMap::new(),
            rivals: Vec::new(),
            doubts: Doubts::default(),
            exists: None,
        }
    }
}

/// Two are equal if they want the same, whatever tells whether objects exist.
impl<V: PartialEq> PartialEq for Wanted<V> {
    fn eq(&self, other: &Self) -> bool {
        let Self { entries, doubt, origins, rivals, doubts, exists: _ } = self;
        (entries, doubt, origins, rivals, doubts)
            == (&other.entries, &other.doubt, &other.origins, &other.rivals, &other.doubts)
    }
}

impl<V> Wanted<V> {
    /// Wants `entries` without any doubt.
    pub fn certain(entries: BTreeMap<String, V>) -> Self {
        Self { entries, ..Self::default() }
    }
}

/// What there is outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<V> {
    /// What is the mirror's, by name.
    pub own: BTreeMap<String, V>,
    /// The names, or [places](Value::place), of what is not. They are left alone.
    pub others: BTreeSet<String>,
    /// The names of those of its own that somebody still uses.
    pub busy: BTreeSet<String>,
}

/// One thing that is done.
#[derive(Clone, PartialEq, Eq)]
pub enum Step<V> {
    /// What is missing is put there.
    Add {
        /// Its name.
        name: String,
        /// What it is to be.
        value: V,
    },
    /// What is there becomes another.
    Change {
        /// Its name.
        name: String,
        /// What it was when it was looked at.
        from: V,
        /// What it is to be.
        to: V,
    },
    /// What is there and not wanted goes.
    Remove {
        /// Its name.
        name: String,
        /// What it was when it was looked at.
        value: V,
    },
}

impl<V> Step<V> {
    /// What it is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Add { name, .. } | Self::Change { name, .. } | Self::Remove { name, .. } => name,
        }
    }
}

/// As in a difference: what comes after `+`, what goes after `-`.
impl<V: Debug> Debug for Step<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { name, value } => write!(f, "+ {name} {value:?}"),
            Self::Change { name, from, to } => write!(f, "~ {name} {from:?} to {to:?}"),
            Self::Remove { name, value } => write!(f, "- {name} {value:?}"),
        }
    }
}

/// Where the entries are.
pub trait Target: Send + Sync + 'static {
    /// What lies there.
    type Value: Value;
    /// Why something could not be seen or done, and what to do about it.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Whether the target keeps an ownership record, which [`claim`](Self::claim) renews. Defaults to false.
    const HAS_OWNER_RECORD: bool = false;

    /// What there is now. Nothing that was answered earlier will do.
    fn look(&self) -> impl Future<Output = Result<Found<Self::Value>, Self::Error>> + Send;

    /// Carries out `steps` in their order, as far as it can; an error is about the first that could not be. Whatever this
    /// answers, it is looked at again afterwards what there is.
    fn act(&self, steps: &[Step<Self::Value>]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns the commands of the target's own tool that would carry out `steps` on `found`, for people who only want to see them.
    fn describe(&self, found: &Found<Self::Value>, steps: &[Step<Self::Value>]) -> Vec<String>;

    /// Makes all wanted entries consistent with each other, and removes the entries that the target cannot hold.
    ///
    /// Returns the reason for each removed entry, by name. A removed entry affects no other one: an entry of this name that
    /// the target already has is left unchanged. Accepts every entry by default.
    fn settle(&self, wanted: &mut BTreeMap<String, Self::Value>) -> BTreeMap<String, String> {
        let _ = wanted;
        BTreeMap::new()
    }

    /// Completes when the target was restarted or changed by another hand, so that the mirror looks at once.
    ///
    /// The mirror drops and recreates this future as often as it likes: a baseline for the comparison belongs into the target, and
    /// [`look`](Self::look) renews the baseline. Never completes by default.
    fn changed(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Returns what happened to the target, if a poll or look has found that it was restarted or changed by another hand since the last
    /// call. It is for the log. `None` by default.
    fn change_reason(&self) -> Option<String> {
        None
    }

    /// Keeps alive what would expire at the target without a mirror, such as a lease.
    ///
    /// The mirror calls this from its start, once per [`compare`](crate::Settings::compare) period at least, also before
    /// anything is wanted. Does nothing by default.
    ///
    /// # Errors
    ///
    /// If the target does not confirm the renewal. The mirror retries soon.
    fn renew(&self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        std::future::ready(Ok(()))
    }

    /// Records at the target that the process `instance` maintains the entries of this mark, at `now` in seconds since 1970.
    ///
    /// A process should call this about once a minute. A record that was not renewed for [`OWNER_EXPIRES_SECS`](crate::OWNER_EXPIRES_SECS)
    /// is taken over. Targets without such a record return [`Claim::Ours`], as this does by default.
    ///
    /// # Errors
    ///
    /// If the target does not confirm the record: then it is unknown whether another process maintains the entries.
    fn claim(&self, instance: &str, now: u64) -> impl Future<Output = Result<Claim, Self::Error>> + Send {
        let _ = (instance, now);
        std::future::ready(Ok(Claim::Ours))
    }

    /// Makes the target reject what an earlier leader writes: from now on, every write requires that no term after `term` has
    /// been recorded at the target. Returns whether that is so.
    ///
    /// Replicas call this at the start of each [term](crate::Term), before the first write, and about once a minute. Targets that
    /// cannot compare return true, as this does by default.
    ///
    /// # Errors
    ///
    /// If the target does not confirm the record.
    fn fence(&self, term: u64, now: u64) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        let _ = (term, now);
        std::future::ready(Ok(true))
    }
}
