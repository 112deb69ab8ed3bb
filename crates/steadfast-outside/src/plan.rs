//! What there is beside what is wanted: which steps lead there, and what has to wait, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::entry::{Found, Step, Value, Wanted};
use crate::guard::{Ask, Limits, Record};

/// Why something is not as it is wanted, and is left so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Under the name lies what is not the mirror's.
    Others,
    /// It would be taken out on the word of a view that is in doubt.
    Doubt,
    /// It waits, with others, to be approved of.
    Asked,
    /// Somebody still uses it.
    Busy,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Others => "under its name lies what somebody else has put there",
            Self::Doubt => "what would take it out is in doubt",
            Self::Asked => "it waits, with others, to be approved of",
            Self::Busy => "somebody still uses it",
        })
    }
}

/// What is to be done now.
#[derive(Clone, Debug)]
pub(crate) struct Plan<V> {
    /// What serves more comes before what serves less, so that there is never less than there was and is to be.
    pub(crate) steps: Vec<Step<V>>,
    pub(crate) kept: BTreeMap<String, Kept>,
    pub(crate) ask: Option<Ask>,
    /// When something that is busy goes all the same.
    pub(crate) until: Option<Instant>,
}

/// What is remembered from one plan to the next.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// Since when what is to go has been without anything new.
    since: BTreeMap<String, Instant>,
}

/// When it is, by a clock for people and by one that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Seconds since 1970.
    pub(crate) unix: u64,
    pub(crate) instant: Instant,
}

/// Plans what leads from `found` to `wanted`. What is busy is waited for as long as `patience`.
pub(crate) fn plan<V: Value>(
    wanted: &Wanted<V>,
    found: &Found<V>,
    (record, limits): (&mut Record, &Limits),
    (draining, patience): (&mut Draining, Duration),
    now: Now,
) -> Plan<V> {
    let (mut more, mut less, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = BTreeMap::new();
    for (name, value) in &wanted.entries {
        let (name, value) = (name.clone(), value.clone());
        match found.own.get(&name) {
            None if found.others.contains(value.place(&name)) => _ = kept.insert(name, Kept::Others),
            None => more.push(Step::Add { name, value }),
            Some(there) if *there == value => {}
            Some(there) => {
                let is_out = there.serves() && !value.serves();
                let change = Step::Change { name, from: there.clone(), to: value };
                if is_out { less.push(change) } else { more.push(change) }
            }
        }
    }
    let unwanted = || found.own.iter().filter(|(name, _)| !wanted.entries.contains_key(*name));
    draining.since.retain(|name, _| unwanted().any(|(other, there)| other == name && !there.serves()));
    let mut until = None;
    for (name, there) in unwanted() {
        let remove = || Step::Remove { name: name.clone(), value: there.clone() };
        if there.serves() {
            less.push(match there.drained() {
                Some(to) => Step::Change { name: name.clone(), from: there.clone(), to },
                None => remove(),
            });
            continue;
        }
        let over = *draining.since.entry(name.clone()).or_insert(now.instant) + patience;
        if wanted.doubt.is_some() {
            kept.insert(name.clone(), Kept::Doubt);
        } else if found.busy.contains(name) && now.instant < over {
            kept.insert(name.clone(), Kept::Busy);
            until = Some(until.map_or(over, |other: Instant| other.min(over)));
        } else {
            gone.push(remove());
        }
    }
    let outs: BTreeSet<_> = less.iter().map(|step| step.name().to_owned()).collect();
    if wanted.doubt.is_some() {
        kept.extend(outs.into_iter().map(|name| (name, Kept::Doubt)));
        // What waits to be approved of is still what it was.
        return Plan { steps: more, kept, ask: record.ask().cloned(), until };
    }
    let serving = found.own.iter().filter(|(_, there)| there.serves()).map(|(name, _)| name.clone()).collect();
    let verdict = record.judge(limits, &outs, &serving, now.unix);
    kept.extend(outs.difference(&verdict.granted).map(|name| (name.clone(), Kept::Asked)));
    less.retain(|step| verdict.granted.contains(step.name()));
    let steps = more.into_iter().chain(less).chain(gone).collect();
    Plan { steps, kept, ask: verdict.ask, until }
}

#[cfg(test)]
mod tests;
