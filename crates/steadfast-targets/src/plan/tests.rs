//! Random states: each plan obeys all rules for any desired and actual state. Without held entries, the plan reaches
//! the desired state.

use std::sync::Arc;

use proptest::collection::btree_map;
use proptest::prelude::*;

use super::*;
use crate::guard::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backend {
    location: u8,
    weight: u8,
}

impl EntryValue for Backend {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self { weight: 0, ..*self })
    }
}

const DRAIN: Duration = Duration::from_secs(30);

fn entry_maps() -> impl Strategy<Value = BTreeMap<String, Backend>> {
    let backend = (0..3_u8, 0..3_u8).prop_map(|(location, weight)| Backend { location, weight });
    btree_map("[a-h]", backend, 0..8)
}

fn name_sets() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set("[a-h]", 0..4)
}

fn actual_states() -> impl Strategy<Value = ActualState<Backend>> {
    (entry_maps(), name_sets(), name_sets()).prop_map(|(own, others, busy)| {
        let others = others.into_iter().filter(|name| !own.contains_key(name)).collect();
        ActualState { own, others, busy }
    })
}

/// Returns the state after all `steps`, as applied by a reliable target.
fn apply_steps(found: &ActualState<Backend>, steps: &[Step<Backend>]) -> ActualState<Backend> {
    let mut found = found.clone();
    for step in steps {
        match step {
            Step::Add { name, value } | Step::Change { name, to: value, .. } => {
                found.own.insert(name.clone(), *value);
            }
            Step::Remove { name, .. } => {
                found.own.remove(name);
            }
        }
    }
    found
}

fn plan_settings(share: f64, allow_empty: bool) -> PlanSettings {
    let limits = Limits { share, ..Limits::default() };
    PlanSettings {
        rules: GuardRules { limits, allow_empty },
        drain: DRAIN,
        upsert_only: false,
        ownership: MarkOwnership::Exclusive,
    }
}

fn accept_all<V>(_: &mut BTreeMap<String, V>) -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// Returns the plan of a mirror that starts now.
fn plan_once<V: EntryValue>(
    desired: &DesiredState<V>,
    found: &ActualState<V>,
    plan_settings: &PlanSettings,
) -> Plan<V> {
    let (mut record, mut draining) = (MirrorRecord::default(), DrainState::default());
    let now = PlanTime { unix_seconds: 1000, instant: Instant::now() };
    plan(desired, found, &accept_all, plan_settings, (&mut record, &mut draining), now)
}

fn steps<V: Clone>(plan: &Plan<V>) -> Vec<Step<V>> {
    plan.additions.iter().chain(&plan.removals).cloned().collect()
}

fn serving(found: &ActualState<Backend>) -> usize {
    found.own.values().filter(|value| value.serves()).count()
}

proptest! {
    #[test]
    fn plan_respects_others_and_drains_first(
        entries in entry_maps(), found in actual_states(), share in 0.0..=1.0_f64, doubt in any::<bool>(),
    ) {
        let doubt = doubt.then(|| Arc::from("stale"));
        let desired = DesiredState { entries, doubt, ..DesiredState::default() };
        let plan = plan_once(&desired, &found, &plan_settings(share, true));
        let steps = steps(&plan);

        let mut taken_out = 0;
        for step in &steps {
            prop_assert!(!found.others.contains(step.name()), "{step:?} is about another's");
            let current = found.own.get(step.name());
            match step {
                Step::Add { value, name } => prop_assert!(current.is_none() && desired.entries.get(name) == Some(value)),
                Step::Change { from, to, .. } => {
                    prop_assert_eq!(current, Some(from));
                    let is_out = from.serves() && !to.serves();
                    prop_assert!(!is_out || desired.doubt.is_none(), "{:?} is taken out in doubt", step);
                    taken_out += usize::from(is_out);
                }
                Step::Remove { name, value } => {
                    prop_assert!(desired.doubt.is_none() && !desired.entries.contains_key(name));
                    prop_assert!(!value.serves() && !found.busy.contains(name), "{:?} serves, or is in use", step);
                }
            }
        }
        let left_serving = serving(&apply_steps(&found, &steps));
        let lost = serving(&found).saturating_sub(left_serving);
        prop_assert!(lost <= 1 || lost as f64 <= serving(&found) as f64 * share, "{lost} of {} go", serving(&found));
        prop_assert!(taken_out <= serving(&found));
        // Each difference without a planned step is reported with a reason.
        let reached = apply_steps(&found, &steps);
        for name in desired.entries.keys().chain(found.own.keys()) {
            let is_right = reached.own.get(name) == desired.entries.get(name);
            let is_leaving = !desired.entries.contains_key(name)
                && reached.own.get(name).is_some_and(|left| !left.serves());
            prop_assert!(is_right || is_leaving || plan.skipped.contains_key(name), "no reason for {name}");
        }
    }

    #[test]
    fn capacity_never_dips_between_steps(entries in entry_maps(), found in actual_states()) {
        let desired = DesiredState::new(entries);
        let steps = steps(&plan_once(&desired, &found, &plan_settings(1.0, true)));
        let min_serving = serving(&found).min(serving(&apply_steps(&found, &steps)));
        for done in 0..=steps.len() {
            let serving_now = serving(&apply_steps(&found, &steps[..done]));
            prop_assert!(serving_now >= min_serving, "{serving_now} serve after {done} of {steps:?}");
        }
    }

    #[test]
    fn granted_plan_reaches_desired_entries(entries in entry_maps(), mut found in actual_states()) {
        let plan_settings = plan_settings(1.0, true);
        let (mut record, mut draining) = (MirrorRecord::default(), DrainState::default());
        let desired = DesiredState::new(entries);
        let started = Instant::now();
        // Three passes: the entry is drained, then delayed, then removed.
        for pass in 0..3 {
            let now = PlanTime { unix_seconds: 1000, instant: started + DRAIN * pass };
            let plan = plan(&desired, &found, &accept_all, &plan_settings, (&mut record, &mut draining), now);
            found = apply_steps(&found, &steps(&plan));
        }
        let expected: BTreeMap<_, _> =
            desired.entries.iter().filter(|(name, _)| !found.others.contains(*name)).collect();
        prop_assert_eq!(found.own.iter().collect::<BTreeMap<_, _>>(), expected);
    }
}

/// Entry at a location that another client may hold under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LocatedEntry(&'static str);

impl EntryValue for LocatedEntry {
    fn location<'a>(&'a self, _name: &'a str) -> &'a str {
        self.0
    }
}

#[test]
fn place_of_others_is_not_taken() {
    let entries =
        [("a 1", "a"), ("a 2", "a"), ("b 1", "b")].map(|(name, location)| (name.to_owned(), LocatedEntry(location)));
    let found = ActualState { own: BTreeMap::new(), others: BTreeSet::from(["a".to_owned()]), busy: BTreeSet::new() };
    let plan = plan_once(&DesiredState::new(entries.into()), &found, &plan_settings(0.5, false));
    assert_eq!(plan.additions.iter().map(Step::name).collect::<Vec<_>>(), ["b 1"]);
    assert_eq!(plan.skipped, BTreeMap::from(["a 1", "a 2"].map(|name| (name.to_owned(), SkipReason::Foreign))));
}

mod groups;
