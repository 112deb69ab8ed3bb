//! The removal guard: a mistake in a rule or in a cluster must not remove capacity that clients depend on.
//!
//! The guard compares numbers, not names: the number of entries of a group that would remain in service, and the
//! highest number within the window. A replaced entry does not reduce the capacity. Neither does the entry of a deleted
//! object while other entries of the group serve.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Number of levels at which a group stops storing each level. A new level within a 64th of the window after the last
/// one is then dropped. The last level, which is higher, gets the current time instead.
const MAX_LEVELS: usize = 64;

/// Capacity that a group may lose without approval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Fraction of the highest number in service within the window that may be missing: 0.0 to 1.0. Defaults to a
    /// third.
    pub share: f64,
    /// Number of entries that may be missing in any case. Defaults to 1.
    pub always_allowed: usize,
    /// Window within which the highest number in service is determined. Defaults to five minutes.
    pub window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { share: 1.0 / 3.0, always_allowed: 1, window: Duration::from_secs(300) }
    }
}

impl Limits {
    /// Returns how many of `highest` may be missing.
    #[expect(clippy::cast_sign_loss, reason = "a share below zero becomes 0")]
    fn max_missing(&self, highest: usize) -> usize {
        ((highest as f64 * self.share) as usize).max(self.always_allowed)
    }
}

/// Removals that need approval.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ApprovalRequest {
    /// ID of these removals. Other entries, or other values of the entries, give another ID; a restart keeps the ID.
    pub id: String,
    /// The group that owns the entries.
    #[serde(default)]
    pub group: String,
    /// Names of the entries to remove, sorted.
    pub names: Vec<String>,
    /// Number of the group's entries in service.
    #[serde(rename = "of")]
    pub serving: usize,
}

/// An approval that names no pending removals.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("no removal with the ID {id} needs approval: {}", describe_pending(.pending))]
#[non_exhaustive]
pub struct UnknownApproval {
    /// The ID of the approval.
    pub id: String,
    /// Pending IDs.
    pub pending: Vec<String>,
}

debug_as_message!(UnknownApproval);

fn describe_pending(ids: &[String]) -> String {
    if ids.is_empty() { "nothing is pending".to_owned() } else { format!("pending are {}", ids.join(", ")) }
}

/// Changes of the capacity of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Entries in service now.
    pub(crate) serving: usize,
    /// Entries that start to serve.
    pub(crate) starting: usize,
    /// Entries that stop serving because their objects were deleted, each with a text of the step.
    pub(crate) deleted: BTreeMap<String, String>,
    /// Other entries that stop serving, each with a text of the step.
    pub(crate) other_removals: BTreeMap<String, String>,
}

/// State of the guard for one mirror.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Guard {
    /// Numbers in service of each group within the window, in decreasing order. An item is the time at which the number
    /// was last seen, in seconds since 1970, and the number.
    #[serde(default)]
    levels: BTreeMap<String, Vec<(u64, usize)>>,
    /// Highest numbers in service, not lowered by excused or approved removals. They decide whether a group may be
    /// emptied.
    #[serde(default)]
    peaks: BTreeMap<String, Vec<(u64, usize)>>,
    /// Numbers in service after the last decision.
    #[serde(skip)]
    serving_after: BTreeMap<String, usize>,
    /// Replacements in progress, by group. Without them, a new leader would count old and new entries as capacity. The
    /// removal of the old entries would then need approval.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    replaced: BTreeMap<String, PendingReplacement>,
    /// Approved removals, by entry name, with the text of the step.
    #[serde(default)]
    approved: BTreeMap<String, String>,
    /// Pending approvals by group.
    #[serde(default, rename = "asks")]
    pending_approvals: BTreeMap<String, PendingApproval>,
}

/// A pending approval.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct PendingApproval {
    #[serde(rename = "ask")]
    request: ApprovalRequest,
    /// Text of the step of each entry, by name. The approval covers exactly these steps.
    texts: BTreeMap<String, String>,
}

/// Entries whose removal waits until their replacements are in service. Until the removal, old and new entries are in
/// service, and the surplus does not count as capacity.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct PendingReplacement {
    names: BTreeSet<String>,
    /// Number in service before the replacements were added.
    base: usize,
}

impl PendingReplacement {
    /// Returns the capacity of the group with this `flow`, without the surplus of pending replacements. Forgets
    /// replacements whose removal is no longer planned. The flow lacks the removals of `uncertain` entries, so their
    /// replacements stay.
    fn capacity(&mut self, flow: &Flow, uncertain: &BTreeSet<String>) -> usize {
        self.names.retain(|name| {
            flow.other_removals.contains_key(name) || flow.deleted.contains_key(name) || uncertain.contains(name)
        });
        if self.names.is_empty() {
            self.base = 0;
        }
        flow.serving.saturating_sub(self.names.len()).max(self.base.min(flow.serving))
    }
}

/// Decision about all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GuardDecision {
    pub(crate) granted: BTreeSet<String>,
    /// IDs of the pending approvals, by name of the entry.
    pub(crate) pending_approvals: BTreeMap<String, String>,
    /// Entries that are removed after their replacements are in service.
    pub(crate) replaced: BTreeSet<String>,
}

/// Settings of the guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardRules {
    pub(crate) limits: Limits,
    /// True if the last entry of the mirror may be removed without approval.
    pub(crate) allow_empty: bool,
}

impl Guard {
    /// Decides which entries may stop serving at `now`, in seconds since 1970.
    ///
    /// Entries kept because of an uncertain view are in `uncertain`. Their given and pending approvals and their
    /// replacements stay unchanged.
    pub(crate) fn decide(
        &mut self,
        rules: GuardRules,
        flows: &BTreeMap<String, Flow>,
        uncertain: &BTreeSet<String>,
        now: u64,
    ) -> GuardDecision {
        // An approval ends when its entry is desired again, or when the step of the entry changes.
        self.approved.retain(|name, text| {
            let is_planned =
                |flow: &Flow| flow.other_removals.get(name).or_else(|| flow.deleted.get(name)) == Some(text);
            uncertain.contains(name) || flows.values().any(is_planned)
        });
        let mut decisions: BTreeMap<&String, GroupDecision> = BTreeMap::new();
        for (group, flow) in flows {
            let replaced = self.replaced.entry(group.clone()).or_default();
            let capacity = replaced.capacity(flow, uncertain);
            let levels = self.levels.entry(group.clone()).or_default();
            record_level(levels, capacity, now, rules.limits.window);
            let highest = levels.first().map_or(capacity, |(_, highest)| *highest);
            let peaks = self.peaks.entry(group.clone()).or_default();
            record_level(peaks, capacity, now, rules.limits.window);
            let highest = HighestCounts { counted: highest, all: peaks.first().map_or(capacity, |(_, peak)| *peak) };
            // Entries that are about to be added may fail: they count only after the next read contains them.
            let mut decision = GroupDecision::new(flow, flow.serving, &self.approved, highest, &rules.limits);
            if flow.starting > 0 && !decision.needs_approval.is_empty() {
                let expected_serving = flow.serving + flow.starting;
                if GroupDecision::new(flow, expected_serving, &self.approved, highest, &rules.limits)
                    .needs_approval
                    .is_empty()
                {
                    replaced.base = replaced.base.max(capacity);
                    replaced.names.extend(decision.needs_approval.keys().cloned());
                    decision.needs_approval.clear();
                }
            }
            decisions.insert(group, decision);
        }
        let serving_before: usize = flows.values().map(|flow| flow.serving).sum();
        let serving_after: usize = flows.iter().map(|(group, flow)| decisions[group].serving_after(flow)).sum();
        // This is the last protection: a mirror never becomes empty without approval, even if each group permits its
        // removals.
        if serving_before > 0 && serving_after == 0 && !rules.allow_empty {
            let is_refilled = flows.values().any(|flow| flow.starting > 0);
            for decision in decisions.values_mut() {
                decision.withhold(is_refilled);
            }
        }
        // `durable_state` compares the highest levels of each group with these numbers. Groups without a loss need no
        // record on disk.
        self.serving_after =
            flows.iter().map(|(group, flow)| (group.clone(), decisions[group].serving_after(flow))).collect();
        // A group without a flow has no entries in service, so no replacement of the group is pending.
        self.replaced.retain(|group, replaced| flows.contains_key(group) && !replaced.names.is_empty());
        let mut guard_decision = GuardDecision::default();
        // A pending approval stays while the state of one of its entries is uncertain.
        self.pending_approvals.retain(|_, pending| pending.request.names.iter().any(|name| uncertain.contains(name)));
        for (group, GroupDecision { excused, approved, granted, needs_approval }) in decisions {
            // Excused and approved removals do not count as missing later.
            lower_levels(self.levels.get_mut(group), excused.len() + approved.len());
            guard_decision.granted.extend(excused.keys().chain(approved.keys()).chain(granted.keys()).cloned());
            // The ID depends on the exact removals. An approval never applies to a different set.
            if !needs_approval.is_empty() {
                let id = approval_id(group, &needs_approval);
                guard_decision.pending_approvals.extend(needs_approval.keys().map(|name| (name.clone(), id.clone())));
                let (names, serving) = (needs_approval.keys().cloned().collect(), flows[group].serving);
                let request = ApprovalRequest { id, group: group.clone(), names, serving };
                self.pending_approvals.insert(group.clone(), PendingApproval { request, texts: needs_approval });
            }
        }
        let replaced = self.replaced.values().flat_map(|replaced| &replaced.names);
        // The plan reports uncertain entries with their own reason.
        let is_waiting = |name: &&String| !guard_decision.granted.contains(*name) && !uncertain.contains(*name);
        guard_decision.replaced = replaced.filter(is_waiting).cloned().collect();
        for levels in [&mut self.levels, &mut self.peaks] {
            levels.retain(|_, levels| {
                levels.retain(|(when, _)| now.abs_diff(*when) < rules.limits.window.as_secs());
                levels.first().is_some_and(|(_, highest)| *highest > 0)
            });
        }
        guard_decision
    }

    /// Returns the state that must survive a restart. Omits groups at their peak, because the next read restores
    /// them.
    pub(crate) fn durable_state(&self) -> Self {
        let mut durable = Self { serving_after: BTreeMap::new(), ..self.clone() };
        let serving_after = |group: &String| self.serving_after.get(group).copied().unwrap_or_default();
        for levels in [&mut durable.levels, &mut durable.peaks] {
            levels.retain(|group, levels| levels.first().is_some_and(|(_, highest)| *highest > serving_after(group)));
        }
        durable
    }

    /// Approves the removals with this ID.
    pub(crate) fn approve(&mut self, id: &str) -> Result<ApprovalRequest, UnknownApproval> {
        let group =
            self.pending_approvals.iter().find(|(_, pending)| pending.request.id == id).map(|(group, _)| group.clone());
        match group.and_then(|group| self.pending_approvals.remove(&group)) {
            Some(PendingApproval { request, texts }) => {
                self.approved.extend(texts);
                Ok(request)
            }
            None => Err(UnknownApproval {
                id: id.to_owned(),
                pending: self.pending_approvals().map(|request| request.id.clone()).collect(),
            }),
        }
    }

    /// Returns the pending approvals, by group.
    pub(crate) fn pending_approvals(&self) -> impl Iterator<Item = &ApprovalRequest> {
        self.pending_approvals.values().map(|pending| &pending.request)
    }
}

/// Records `serving` entries in service. Levels of at most this number are dropped.
fn record_level(levels: &mut Vec<(u64, usize)>, serving: usize, now: u64, window: Duration) {
    // A time in the future was written before the clock was set back.
    levels.retain(|(when, _)| now.abs_diff(*when) < window.as_secs());
    // An earlier level that is not above the current one can never be the maximum of the window again.
    while levels.last().is_some_and(|(_, count)| *count <= serving) {
        levels.pop();
    }
    let step = window.as_secs() / MAX_LEVELS as u64;
    let is_full = levels.len() >= MAX_LEVELS;
    match levels.last_mut() {
        // The list is full. Instead of the new level, the last and higher level is kept, with the current time.
        Some((when, _)) if is_full && now.abs_diff(*when) <= step => *when = now,
        _ => levels.push((now, serving)),
    }
}

/// Lowers all numbers of a group by `count`.
fn lower_levels(levels: Option<&mut Vec<(u64, usize)>>, count: usize) {
    for (_, level) in levels.into_iter().flatten() {
        *level = level.saturating_sub(count);
    }
}

/// The highest numbers in service of a group within the window.
#[derive(Clone, Copy, Debug)]
struct HighestCounts {
    /// Number without the entries whose removal was excused or approved.
    counted: usize,
    /// Number including these entries.
    all: usize,
}

/// The decision about one group: what happens to each entry, by name.
struct GroupDecision {
    /// Entries of deleted objects while others serve.
    excused: BTreeMap<String, String>,
    approved: BTreeMap<String, String>,
    granted: BTreeMap<String, String>,
    needs_approval: BTreeMap<String, String>,
}

impl GroupDecision {
    /// Decides about `flow`, given the entries in service now and the `highest` numbers within the window.
    fn new(
        flow: &Flow,
        serving: usize,
        approved: &BTreeMap<String, String>,
        highest: HighestCounts,
        limits: &Limits,
    ) -> Self {
        let is_approved = |(name, text): &(&String, &String)| approved.get(*name) == Some(*text);
        let select = |removals: &BTreeMap<String, String>, approved: bool| -> BTreeMap<String, String> {
            let selected = removals.iter().filter(|removal| is_approved(removal) == approved);
            selected.map(|(name, text)| (name.clone(), text.clone())).collect()
        };
        let mut approved = select(&flow.other_removals, true);
        approved.extend(select(&flow.deleted, true));
        let (mut unapproved, mut excused) = (select(&flow.other_removals, false), select(&flow.deleted, false));
        let remaining = serving.saturating_sub(approved.len());
        if excused.len() >= remaining {
            // No other entry serves, so the group would be empty.
            unapproved.append(&mut excused);
        }
        let remaining = remaining - excused.len().min(remaining);
        // The share is measured against the peak of the window. Many small steps cannot add up to a large loss.
        let serving_after = remaining.saturating_sub(unapproved.len());
        let highest_expected = highest.counted.saturating_sub(excused.len() + approved.len());
        let missing = highest_expected.saturating_sub(serving_after);
        let is_last = serving_after == 0 && highest.all.saturating_sub(approved.len()) > limits.always_allowed;
        // A share of 1 permits all removals; the operator has disabled the guard.
        let is_permitted = missing <= limits.max_missing(highest_expected) && !(is_last && limits.share < 1.0);
        let (granted, needs_approval) =
            if is_permitted { (unapproved, BTreeMap::new()) } else { (BTreeMap::new(), unapproved) };
        Self { excused, approved, granted, needs_approval }
    }

    /// Returns the number of serving entries after the decision, without planned additions.
    fn serving_after(&self, flow: &Flow) -> usize {
        let Self { excused, approved, granted, .. } = self;
        flow.serving.saturating_sub(excused.len() + approved.len() + granted.len())
    }

    /// Withdraws all removals that were not approved. They wait for replacements if `is_refilled`, otherwise for
    /// approval.
    fn withhold(&mut self, is_refilled: bool) {
        self.needs_approval.append(&mut self.excused);
        self.needs_approval.append(&mut self.granted);
        if is_refilled {
            self.needs_approval.clear();
        }
    }
}

/// Returns the ID of the removals: 128 bits of SHA-256.
///
/// The texts are the debug texts of the steps. If a release changes them, the ID changes too, and an operator must
/// approve again.
fn approval_id(group: &str, texts: &BTreeMap<String, String>) -> String {
    use std::fmt::Write;
    let mut hash = Sha256::new();
    let parts = std::iter::once(group).chain(texts.iter().flat_map(|(name, text)| [name.as_str(), text.as_str()]));
    for part in parts {
        // The length separates adjacent texts.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut id = String::new();
    for byte in &hash.finalize()[..16] {
        let _ = write!(id, "{byte:02x}");
    }
    id
}

#[cfg(test)]
mod tests;
