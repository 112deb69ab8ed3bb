//! Plan of the steps from the actual to the desired state, and the reasons for skipped entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::entry::{ActualState, DesiredState, EntryValue, Step};
use crate::guard::{ApprovalRequest, Flow, GuardDecision, GuardRules};
use crate::location_claims::{ClaimResolution, LocationConflict};
use crate::mirror_record::{EntryRecord, MirrorRecord};
use crate::origin::Origin;

/// Reason for skipping an entry that differs from its desired value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SkipReason {
    /// Another client has an entry at this location.
    Foreign,
    /// The removal is based on an uncertain view, or the entry is held back.
    Doubt,
    /// The removal needs approval.
    NeedsApproval,
    /// The replacements are not in service yet.
    AwaitsReplacement,
    /// The entry is drained and still in use.
    InUse,
    /// The location of the entry belongs to another group.
    Conflict(LocationConflict),
    /// The entry is not valid at the target.
    Invalid(Arc<str>),
    /// The target rejected the change, which is retried.
    Rejected(Arc<str>),
    /// The entry is not desired any more, but the mirror never removes.
    UpsertOnly,
    /// Another process with the same mark holds the entry.
    OtherProcess,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("another client has an entry at its location"),
            Self::Doubt => f.write_str("its change is based on an uncertain view"),
            Self::NeedsApproval => f.write_str("its removal needs approval"),
            Self::AwaitsReplacement => f.write_str("it is removed when its replacements are in service"),
            Self::InUse => f.write_str("it is drained and still in use"),
            Self::Conflict(LocationConflict { location, holder, claimant }) => {
                let Origin { group, object, .. } = &**claimant;
                let location = location.escape_debug();
                write!(f, "{location} belongs to the group {holder:?}; {object} of the group {group:?} wants it, too")
            }
            Self::Invalid(reason) | Self::Rejected(reason) => f.write_str(reason),
            Self::UpsertOnly => f.write_str("no rule wants it any more, and this mirror never removes entries"),
            Self::OtherProcess => f.write_str("it belongs to another process with the same mark"),
        }
    }
}

/// Steps to apply now, and the skipped entries.
#[derive(Clone, Debug)]
pub(crate) struct Plan<V> {
    /// Additions, and changes that take no entry out of service. Applied first, so that the capacity never falls below
    /// the lower of its current and its desired value.
    pub(crate) additions: Vec<Step<V>>,
    /// Drains and removals, after their record is on disk.
    pub(crate) removals: Vec<Step<V>>,
    pub(crate) skipped: BTreeMap<String, SkipReason>,
    pub(crate) approvals: Vec<ApprovalRequest>,
    /// Names with several different entries from one group.
    pub(crate) conflicting: Vec<String>,
    /// First uncertainty that keeps an entry.
    pub(crate) uncertain: Option<Arc<str>>,
    /// Earliest time at which an entry in use is removed.
    pub(crate) drain_deadline: Option<Instant>,
}

/// State of the drains from one plan to the next.
#[derive(Debug, Default)]
pub(crate) struct DrainState {
    /// Start of the drain, by entry.
    since: BTreeMap<String, Instant>,
}

/// The time, by the wall clock and by a clock that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanTime {
    /// Seconds since 1970.
    pub(crate) unix_seconds: u64,
    pub(crate) instant: Instant,
}

/// Settings of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlanSettings {
    pub(crate) rules: GuardRules,
    /// Maximum time that an entry in use may drain.
    pub(crate) drain: Duration,
    pub(crate) upsert_only: bool,
    pub(crate) ownership: MarkOwnership,
}

/// Knowledge about other processes with the same mark.
#[derive(Clone, Debug)]
pub(crate) enum MarkOwnership {
    /// No other process uses the mark, or the target cannot detect one.
    Exclusive,
    /// Another process owns the mark, so this process removes nothing.
    OtherProcess,
    /// This process owns the mark. The set contains the entries of the first read. An entry that is neither in the set
    /// nor recorded was added by another process. This does not apply at a recorded location: there, another client has
    /// changed an entry of this mirror.
    Adopted(Arc<BTreeSet<String>>),
}

/// Function that makes entries consistent with each other, and returns the reason for each entry that the target cannot
/// hold. See [`Target::validate`](crate::Target::validate).
pub(crate) type Validate<'a, V> = &'a dyn Fn(&mut BTreeMap<String, V>) -> BTreeMap<String, String>;

/// Plans the steps from `found` to `desired`, and records the resulting entries of the mirror in `record`.
pub(crate) fn plan<V: EntryValue>(
    desired: &DesiredState<V>,
    found: &ActualState<V>,
    validate: Validate<'_, V>,
    plan_settings: &PlanSettings,
    (record, draining): (&mut MirrorRecord, &mut DrainState),
    now: PlanTime,
) -> Plan<V> {
    let ClaimResolution { mut values, origins, conflicts, conflicting } =
        ClaimResolution::resolve(desired, found, record);
    // Entries are validated after the claims: an invalid entry still holds its location, so that no other group takes
    // it over.
    let invalid = validate(&mut values);
    let mut builder = PlanBuilder { desired, found, plan_settings, skipped: BTreeMap::new(), uncertain: None };
    builder.skipped.extend(conflicts.into_iter().map(|(name, conflict)| (name, SkipReason::Conflict(conflict))));
    builder.skip_invalid(&invalid);

    let mut additions = Vec::new();
    let mut flows: BTreeMap<String, Flow> = BTreeMap::new();
    let mut service_ends: BTreeMap<String, Step<V>> = BTreeMap::new();
    for (name, value) in &values {
        let current = found.own.get(name);
        if current == Some(value) {
            continue;
        }
        if let Some(reason) = builder.change_skip_reason(name, value, [origins.get(name), record.origin(name)]) {
            builder.skipped.insert(name.clone(), reason);
            continue;
        }
        let step = match current {
            None => Step::Add { name: name.clone(), value: value.clone() },
            Some(current) => Step::Change { name: name.clone(), from: current.clone(), to: value.clone() },
        };
        // A change that takes an entry out of service needs the consent of the guard, like a removal.
        let was_serving = current.is_some_and(EntryValue::serves);
        if was_serving && !value.serves() {
            service_ends.insert(name.clone(), step);
        } else {
            if !was_serving && value.serves() {
                group_flow(&mut flows, origins.get(name)).starting += 1;
            }
            additions.push(step);
        }
    }

    let is_unwanted = |name: &String| !values.contains_key(name) && !invalid.contains_key(name);
    // An entry that serves again or is desired again starts its next drain from the beginning.
    let is_out_of_service = |name: &String| found.own.get(name).is_some_and(|current| !current.serves());
    draining.since.retain(|name, _| is_unwanted(name) && is_out_of_service(name));
    let (mut removals, mut drain_deadline) = (Vec::new(), None);
    for (name, current) in found.own.iter().filter(|(name, _)| is_unwanted(name)) {
        if let Some(reason) = builder.skip_reason(name, record) {
            builder.skipped.insert(name.clone(), reason);
            continue;
        }
        let remove = Step::Remove { name: name.clone(), value: current.clone() };
        if current.serves() {
            let step = match current.drained() {
                Some(to) => Step::Change { name: name.clone(), from: current.clone(), to },
                None => remove,
            };
            service_ends.insert(name.clone(), step);
            continue;
        }
        let drain_end = *draining.since.entry(name.clone()).or_insert(now.instant) + plan_settings.drain;
        if found.busy.contains(name) && now.instant < drain_end {
            builder.skipped.insert(name.clone(), SkipReason::InUse);
            drain_deadline = Some(drain_deadline.map_or(drain_end, |other: Instant| other.min(drain_end)));
        } else {
            removals.push(remove);
        }
    }

    builder.skip_uncertain(&mut service_ends, &origins, record);
    builder.skip_awaiting(&mut service_ends, &values, &origins, record);
    for (name, _) in found.own.iter().filter(|(_, current)| current.serves()) {
        group_flow(&mut flows, origins.get(name).or_else(|| record.origin(name))).serving += 1;
    }
    for (name, step) in &service_ends {
        // The recorded origin takes precedence: the object that provided the entry decides about its loss, not a new
        // claimant.
        let origin = record.origin(name).or_else(|| origins.get(name)).cloned();
        let is_deleted = origin
            .as_deref()
            .is_some_and(|origin| desired.exists.as_ref().and_then(|exists| exists.check(origin)) == Some(false));
        let flow = group_flow(&mut flows, origins.get(name).or(origin.as_ref()));
        let removals = if is_deleted { &mut flow.deleted } else { &mut flow.other_removals };
        removals.insert(name.clone(), format!("{step:?}"));
    }
    let guard_decision = record.guard.decide(plan_settings.rules, &flows, &builder.uncertain_names(), now.unix_seconds);
    let decision = replace_in_place(guard_decision, &additions, found);
    builder.skipped.extend(decision.pending_approvals.keys().map(|name| (name.clone(), SkipReason::NeedsApproval)));
    builder.skipped.extend(decision.replaced.iter().map(|name| (name.clone(), SkipReason::AwaitsReplacement)));
    let granted = service_ends.into_iter().filter(|(name, _)| decision.granted.contains(name)).map(|(_, step)| step);
    // Removals of entries that already stopped serving need no consent: they cost no capacity.
    let removals = granted.chain(removals).collect();

    let PlanBuilder { skipped, uncertain, .. } = builder;
    record_entries(record, found, &values, &origins, &skipped);
    record.retain(|name, entry_record| {
        values.contains_key(name)
            || found.own.contains_key(name)
            || desired.doubt.is_some()
            || desired.uncertain_origins.about(Some(&entry_record.origin)).is_some()
    });
    Plan {
        additions,
        removals,
        skipped,
        approvals: record.guard.pending_approvals().cloned().collect(),
        conflicting,
        uncertain,
        drain_deadline,
    }
}

/// Records the desired entries `values`, except those whose location has an entry of another client: the mirror does not
/// own them. An existing entry that stays unchanged because of doubt keeps its recorded origin.
fn record_entries<V: EntryValue>(
    record: &mut MirrorRecord,
    found: &ActualState<V>,
    values: &BTreeMap<String, V>,
    origins: &BTreeMap<String, Arc<Origin>>,
    skipped: &BTreeMap<String, SkipReason>,
) {
    for (name, value) in values {
        match skipped.get(name) {
            Some(SkipReason::Foreign) => continue,
            Some(SkipReason::Doubt) if found.own.contains_key(name) && record.origin(name).is_some() => continue,
            _ => {}
        }
        let origin = origins.get(name).cloned().unwrap_or_default();
        let mut locations = value.locations(name);
        locations.retain(|location| location != name);
        record.insert(name, EntryRecord { origin, locations, state: format!("{value:?}") });
    }
}

/// Grants the removal of entries that a new entry at the same location replaces. Two entries of one location may
/// exclude each other, such as a CNAME and an address of one name. The new entry then cannot be added first.
fn replace_in_place<V: EntryValue>(
    mut decision: GuardDecision,
    additions: &[Step<V>],
    found: &ActualState<V>,
) -> GuardDecision {
    let added: BTreeSet<&str> = additions
        .iter()
        .filter_map(|step| match step {
            Step::Add { name, value } => Some(value.location(name)),
            _ => None,
        })
        .collect();
    let is_in_place = |name: &String| found.own.get(name).is_some_and(|current| added.contains(current.location(name)));
    let (in_place, others) = std::mem::take(&mut decision.replaced).into_iter().partition(is_in_place);
    decision.replaced = others;
    decision.granted.extend::<BTreeSet<_>>(in_place);
    decision
}

/// Returns the flow of the group of `origin`.
fn group_flow<'a>(flows: &'a mut BTreeMap<String, Flow>, origin: Option<&Arc<Origin>>) -> &'a mut Flow {
    flows.entry(group_name(origin).to_owned()).or_default()
}

/// Returns the group of `origin`. An entry without an origin belongs to the group with the empty name.
fn group_name(origin: Option<&Arc<Origin>>) -> &str {
    origin.map_or("", |origin| &origin.group)
}

/// Intermediate state of a plan.
struct PlanBuilder<'a, V> {
    desired: &'a DesiredState<V>,
    found: &'a ActualState<V>,
    plan_settings: &'a PlanSettings,
    skipped: BTreeMap<String, SkipReason>,
    uncertain: Option<Arc<str>>,
}

impl<V: EntryValue> PlanBuilder<'_, V> {
    /// Skips the entries that the target cannot hold, with the reasons.
    fn skip_invalid(&mut self, invalid: &BTreeMap<String, String>) {
        let reason = |reason: &String| SkipReason::Invalid(Arc::from(reason.as_str()));
        self.skipped.extend(invalid.iter().map(|(name, text)| (name.clone(), reason(text))));
    }

    /// Returns the entries that are skipped because of doubt, because a replacement is held back, or because the mark is
    /// not claimed yet.
    fn uncertain_names(&self) -> BTreeSet<String> {
        let is_uncertain = |reason: &SkipReason| {
            matches!(reason, SkipReason::Doubt | SkipReason::AwaitsReplacement | SkipReason::OtherProcess)
        };
        let uncertain = self.skipped.iter().filter(|(_, reason)| is_uncertain(reason));
        uncertain.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the reason not to add or change a desired entry, or `None` if the step may be taken.
    fn change_skip_reason(&self, name: &str, value: &V, known: [Option<&Arc<Origin>>; 2]) -> Option<SkipReason> {
        if !self.found.own.contains_key(name) && self.found.others.contains(value.location(name)) {
            return Some(SkipReason::Foreign);
        }
        // The entry stays desired, so that it keeps its locations and no other claim takes its place.
        let held_back = &self.desired.uncertain_origins.held_back;
        let is_held_back = known.into_iter().flatten().any(|origin| held_back.contains(&origin.object.cluster));
        is_held_back.then_some(SkipReason::Doubt)
    }

    /// Returns the reason to keep an unwanted entry, or `None` if the entry may be removed.
    fn skip_reason(&mut self, name: &str, record: &MirrorRecord) -> Option<SkipReason> {
        let origin = record.origin(name);
        if let Some(reason) = self.doubt(origin) {
            self.uncertain.get_or_insert(reason);
            return Some(SkipReason::Doubt);
        }
        if self.plan_settings.upsert_only {
            return Some(SkipReason::UpsertOnly);
        }
        let belongs_to_other = match &self.plan_settings.ownership {
            MarkOwnership::Exclusive => false,
            MarkOwnership::OtherProcess => true,
            MarkOwnership::Adopted(adopted) => {
                // An unrecorded entry that appeared after the first read was added by another process with this mark.
                origin.is_none()
                    && !adopted.contains(name)
                    && !self.found.own.get(name).is_some_and(|current| record.has_location(current.location(name)))
            }
        };
        if belongs_to_other {
            return Some(SkipReason::OtherProcess);
        }
        None
    }

    /// Keeps entries in service that an uncertain view takes out of service, since the view may be wrong about
    /// readiness, too.
    fn skip_uncertain(
        &mut self,
        service_ends: &mut BTreeMap<String, Step<V>>,
        origins: &BTreeMap<String, Arc<Origin>>,
        record: &MirrorRecord,
    ) {
        service_ends.retain(|name, _| {
            // The recorded object provides the entry now, and the other one is to provide it.
            let known = [origins.get(name), record.origin(name)];
            let doubt = match known {
                [None, None] => self.doubt(None),
                known => known.into_iter().flatten().find_map(|origin| self.doubt(Some(origin))),
            };
            if let Some(reason) = &doubt {
                self.uncertain.get_or_insert_with(|| reason.clone());
                self.skipped.insert(name.clone(), SkipReason::Doubt);
            }
            doubt.is_none()
        });
    }

    /// Keeps entries in service whose group has a new entry that is held back. The new entry may be the replacement, for
    /// example after an object moved to another cluster of the group.
    fn skip_awaiting(
        &mut self,
        service_ends: &mut BTreeMap<String, Step<V>>,
        values: &BTreeMap<String, V>,
        origins: &BTreeMap<String, Arc<Origin>>,
        record: &MirrorRecord,
    ) {
        // A desired entry that is out of service and skipped because of doubt is held back.
        let is_held_back = |(name, value): &(&String, &V)| {
            let is_serving = self.found.own.get(*name).is_some_and(EntryValue::serves);
            value.serves() && !is_serving && self.skipped.get(*name) == Some(&SkipReason::Doubt)
        };
        let held_back = values.iter().filter(is_held_back);
        let held_back_groups: BTreeSet<&str> = held_back.map(|(name, _)| group_name(origins.get(name))).collect();
        service_ends.retain(|name, _| {
            let must_wait = held_back_groups.contains(group_name(origins.get(name).or_else(|| record.origin(name))));
            if must_wait {
                self.skipped.insert(name.clone(), SkipReason::AwaitsReplacement);
            }
            !must_wait
        });
    }

    fn doubt(&self, origin: Option<&Arc<Origin>>) -> Option<Arc<str>> {
        self.desired
            .doubt
            .clone()
            .or_else(|| self.desired.uncertain_origins.about(origin.map(|origin| &**origin)).cloned())
    }
}

#[cfg(test)]
mod tests;
