//! The steps from what the target has to what is wanted, and the reasons for what has to wait.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::claims::{Claims, Conflict};
use crate::entry::{Found, Step, Value, Wanted};
use crate::guard::{Ask, Flow, Rules, Verdict};
use crate::origin::Origin;
use crate::record::{Held, Record};

/// Reason why an entry is not as it is wanted, and is left unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// Another hand put something else in its place.
    Others,
    /// Its removal rests on a view that is uncertain.
    Doubt,
    /// Its removal needs approval.
    Asked,
    /// The entries that replace it are not in service yet.
    Replaced,
    /// It is drained, and somebody still uses it.
    Busy,
    /// Its place belongs to another group.
    Conflict(Conflict),
    /// The target cannot hold it.
    Invalid(Arc<str>),
    /// The target refused to change it. It is retried.
    Refused(Arc<str>),
    /// Nothing wants it any more, and the mirror never removes.
    UpsertOnly,
    /// Another process with the same mark holds it.
    OtherProcess,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Others => f.write_str("its place is taken by something that this mirror did not put there"),
            Self::Doubt => f.write_str("its removal rests on an uncertain view"),
            Self::Asked => f.write_str("its removal needs approval"),
            Self::Replaced => f.write_str("it goes when the entries that replace it are in service"),
            Self::Busy => f.write_str("it is drained and still in use"),
            Self::Conflict(Conflict { place, holder, claimant }) => {
                let Origin { group, object, .. } = &**claimant;
                let place = place.escape_debug();
                write!(f, "{place} belongs to the group {holder:?}; {object} of the group {group:?} wants it, too")
            }
            Self::Invalid(why) | Self::Refused(why) => f.write_str(why),
            Self::UpsertOnly => f.write_str("nothing wants it any more; this mirror never removes entries"),
            Self::OtherProcess => f.write_str("another process with the same mark holds it"),
        }
    }
}

/// What to do now.
#[derive(Clone, Debug)]
pub(crate) struct Plan<V> {
    /// Entries that serve more. They wait for nothing, and come first, so that the capacity never falls below both ends.
    pub(crate) more: Vec<Step<V>>,
    /// Entries that serve less, and removals: only after the record of them is on disk.
    pub(crate) less: Vec<Step<V>>,
    pub(crate) kept: BTreeMap<String, Kept>,
    pub(crate) asks: Vec<Ask>,
    /// Names for which one group gave several different entries.
    pub(crate) contested: Vec<String>,
    /// Reason of the first uncertainty that keeps an entry.
    pub(crate) uncertain: Option<Arc<str>>,
    /// When an entry in use is removed all the same.
    pub(crate) until: Option<Instant>,
}

/// State of the drains from one plan to the next.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// Since when each entry that is to go gets nothing new.
    since: BTreeMap<String, Instant>,
}

/// The time, by the wall clock and by a clock that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Seconds since 1970.
    pub(crate) unix: u64,
    pub(crate) instant: Instant,
}

/// How to plan.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) rules: Rules,
    /// How long an entry in use may drain.
    pub(crate) drain: Duration,
    pub(crate) upsert_only: bool,
    pub(crate) shared: Shared,
}

/// Whether another process with the same mark may be at work at the target.
#[derive(Clone, Debug)]
pub(crate) enum Shared {
    /// No other process is, or the target cannot tell.
    No,
    /// Another process owns the mark: this one removes nothing.
    ByOwner,
    /// This process owns the mark. Entries that it has no record of and that were not there at its first look, which found these,
    /// are another process's, except at a place of its own: there another hand has changed something.
    Perhaps(Arc<BTreeSet<String>>),
}

/// Makes entries consistent with each other, and returns the reason for each that the target cannot hold: [`Target::settle`](crate::Target::settle).
pub(crate) type Settle<'a, V> = &'a dyn Fn(&mut BTreeMap<String, V>) -> BTreeMap<String, String>;

/// Plans the steps from `found` to `wanted`, and records in `record` what the mirror holds from now on.
pub(crate) fn plan<V: Value>(
    wanted: &Wanted<V>,
    found: &Found<V>,
    settle: Settle<'_, V>,
    terms: &Terms,
    (record, draining): (&mut Record, &mut Draining),
    now: Now,
) -> Plan<V> {
    let Claims { mut values, origins, conflicts, contested } = Claims::resolve(wanted, found, record);
    let invalid = settle(&mut values);
    let mut planning = Planning { wanted, found, terms, kept: BTreeMap::new(), uncertain: None };
    planning.kept.extend(conflicts.into_iter().map(|(name, conflict)| (name, Kept::Conflict(conflict))));
    let invalid_names: BTreeSet<&String> = invalid.keys().collect();
    planning.kept.extend(invalid.iter().map(|(name, why)| (name.clone(), Kept::Invalid(Arc::from(why.as_str())))));

    let mut more = Vec::new();
    let mut flows: BTreeMap<String, Flow> = BTreeMap::new();
    let mut outs: BTreeMap<String, Step<V>> = BTreeMap::new();
    for (name, value) in &values {
        let step = match found.own.get(name) {
            None if found.others.contains(value.place(name)) => {
                planning.kept.insert(name.clone(), Kept::Others);
                continue;
            }
            None => Step::Add { name: name.clone(), value: value.clone() },
            Some(there) if there == value => continue,
            Some(there) => Step::Change { name: name.clone(), from: there.clone(), to: value.clone() },
        };
        let served = found.own.get(name).is_some_and(Value::serves);
        if served && !value.serves() {
            outs.insert(name.clone(), step);
        } else {
            if !served && value.serves() {
                flow(&mut flows, origins.get(name)).coming += 1;
            }
            more.push(step);
        }
    }

    let unwanted = || {
        let is_unwanted = |name: &String| !values.contains_key(name) && !invalid_names.contains(name);
        found.own.iter().filter(move |(name, _)| is_unwanted(name))
    };
    draining.since.retain(|name, _| unwanted().any(|(other, there)| other == name && !there.serves()));
    let (mut removals, mut until) = (Vec::new(), None);
    for (name, there) in unwanted() {
        if let Some(why) = planning.holds(name, record) {
            planning.kept.insert(name.clone(), why);
            continue;
        }
        let remove = Step::Remove { name: name.clone(), value: there.clone() };
        if there.serves() {
            let step = match there.drained() {
                Some(to) => Step::Change { name: name.clone(), from: there.clone(), to },
                None => remove,
            };
            outs.insert(name.clone(), step);
            continue;
        }
        let over = *draining.since.entry(name.clone()).or_insert(now.instant) + terms.drain;
        if found.busy.contains(name) && now.instant < over {
            planning.kept.insert(name.clone(), Kept::Busy);
            until = Some(until.map_or(over, |other: Instant| other.min(over)));
        } else {
            removals.push(remove);
        }
    }

    planning.hold_uncertain(&mut outs, &origins, record);
    for (name, _) in found.own.iter().filter(|(_, there)| there.serves()) {
        flow(&mut flows, origins.get(name).or_else(|| record.origin(name))).serving += 1;
    }
    for (name, step) in &outs {
        let origin = record.origin(name).or_else(|| origins.get(name)).cloned();
        let is_gone = origin
            .as_deref()
            .is_some_and(|origin| wanted.exists.as_ref().and_then(|exists| exists.ask(origin)) == Some(false));
        let flow = flow(&mut flows, origins.get(name).or(origin.as_ref()));
        let texts = if is_gone { &mut flow.gone } else { &mut flow.outs };
        texts.insert(name.clone(), format!("{step:?}"));
    }
    let held = planning.kept.iter().filter(|(_, why)| **why == Kept::Doubt).map(|(name, _)| name.clone()).collect();
    let verdict = replace_in_place(record.guard.judge(terms.rules, &flows, &held, now.unix), &more, found);
    planning.kept.extend(verdict.asked.keys().map(|name| (name.clone(), Kept::Asked)));
    planning.kept.extend(verdict.replaced.iter().map(|name| (name.clone(), Kept::Replaced)));
    let granted = outs.into_iter().filter(|(name, _)| verdict.granted.contains(name)).map(|(_, step)| step);
    let less = granted.chain(removals).collect();

    let Planning { kept, uncertain, .. } = planning;
    for (name, value) in &values {
        // What others have put there is not the mirror's to hold.
        if kept.get(name) != Some(&Kept::Others) {
            let origin = origins.get(name).cloned().unwrap_or_default();
            let mut places = value.places(name);
            places.retain(|place| place != name);
            record.hold(name, Held { origin, places, state: format!("{value:?}") });
        }
    }
    record.retain(|name, held| {
        values.contains_key(name)
            || found.own.contains_key(name)
            || wanted.doubt.is_some()
            || wanted.doubts.about(Some(&held.origin)).is_some()
    });
    Plan { more, less, kept, asks: record.guard.asks().cloned().collect(), contested, uncertain, until }
}

/// Grants the removal of entries that a new entry of their own place replaces. Two entries of one place may exclude each other, such
/// as a CNAME and an address of one name, so that the new one cannot come first.
fn replace_in_place<V: Value>(mut verdict: Verdict, more: &[Step<V>], found: &Found<V>) -> Verdict {
    let added: BTreeSet<&str> = more
        .iter()
        .filter_map(|step| match step {
            Step::Add { name, value } => Some(value.place(name)),
            _ => None,
        })
        .collect();
    let is_in_place = |name: &String| found.own.get(name).is_some_and(|there| added.contains(there.place(name)));
    let (in_place, others) = std::mem::take(&mut verdict.replaced).into_iter().partition(is_in_place);
    verdict.replaced = others;
    verdict.granted.extend::<BTreeSet<_>>(in_place);
    verdict
}

/// The flow of the group of `origin`.
fn flow<'a>(flows: &'a mut BTreeMap<String, Flow>, origin: Option<&Arc<Origin>>) -> &'a mut Flow {
    flows.entry(origin.map(|origin| origin.group.clone()).unwrap_or_default()).or_default()
}

/// What a plan is made of.
struct Planning<'a, V> {
    wanted: &'a Wanted<V>,
    found: &'a Found<V>,
    terms: &'a Terms,
    kept: BTreeMap<String, Kept>,
    uncertain: Option<Arc<str>>,
}

impl<V: Value> Planning<'_, V> {
    /// Returns why an entry that nothing wants must stay, if it must.
    fn holds(&mut self, name: &str, record: &Record) -> Option<Kept> {
        let origin = record.origin(name);
        if let Some(why) = self.doubt(origin) {
            self.uncertain.get_or_insert(why);
            return Some(Kept::Doubt);
        }
        if self.terms.upsert_only {
            return Some(Kept::UpsertOnly);
        }
        let is_of_other = match &self.terms.shared {
            Shared::No => false,
            Shared::ByOwner => true,
            Shared::Perhaps(adopted) => {
                origin.is_none()
                    && !adopted.contains(name)
                    && !self.found.own.get(name).is_some_and(|there| record.has_place(there.place(name)))
            }
        };
        if is_of_other {
            return Some(Kept::OtherProcess);
        }
        None
    }

    /// Keeps entries in service that an uncertain view wants out of service: it may be wrong about readiness, too.
    fn hold_uncertain(
        &mut self,
        outs: &mut BTreeMap<String, Step<V>>,
        origins: &BTreeMap<String, Arc<Origin>>,
        record: &Record,
    ) {
        outs.retain(|name, _| {
            let doubt = self.doubt(origins.get(name).or_else(|| record.origin(name)));
            if let Some(why) = &doubt {
                self.uncertain.get_or_insert_with(|| why.clone());
                self.kept.insert(name.clone(), Kept::Doubt);
            }
            doubt.is_none()
        });
    }

    fn doubt(&self, origin: Option<&Arc<Origin>>) -> Option<Arc<str>> {
        self.wanted.doubt.clone().or_else(|| self.wanted.doubts.about(origin.map(|origin| &**origin)).cloned())
    }
}

#[cfg(test)]
mod tests;
