//! Random worlds: whatever is wanted and found, no rule of the plan is broken, and where nothing is held back the plan leads there.

use std::sync::Arc;

use proptest::collection::btree_map;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backend {
    place: u8,
    weight: u8,
}

impl Value for Backend {
    fn serves(&self) -> bool {
        self.weight > 0
    }

    fn drained(&self) -> Option<Self> {
        Some(Self { weight: 0, ..*self })
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

fn entries() -> impl Strategy<Value = BTreeMap<String, Backend>> {
    let backend = (0..3_u8, 0..3_u8).prop_map(|(place, weight)| Backend { place, weight });
    btree_map("[a-h]", backend, 0..8)
}

fn names() -> impl Strategy<Value = BTreeSet<String>> {
    proptest::collection::btree_set("[a-h]", 0..4)
}

fn found() -> impl Strategy<Value = Found<Backend>> {
    (entries(), names(), names()).prop_map(|(own, others, busy)| {
        let others = others.into_iter().filter(|name| !own.contains_key(name)).collect();
        Found { own, others, busy }
    })
}

/// The world after all of `steps`, as a target would have it that does what it is told.
fn after(found: &Found<Backend>, steps: &[Step<Backend>]) -> Found<Backend> {
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

fn serving(found: &Found<Backend>) -> usize {
    found.own.values().filter(|value| value.serves()).count()
}

proptest! {
    #[test]
    fn nothing_of_others_is_touched_and_nothing_that_serves_is_removed(
        entries in entries(), found in found(), share in 0.0..=1.0_f64, doubt in any::<bool>(),
    ) {
        let doubt = doubt.then(|| Arc::from("stale"));
        let limits = Limits { share, ..Limits::default() };
        let (mut record, mut draining) = (Record::default(), Draining::default());
        let now = Now { unix: 1000, instant: Instant::now() };
        let wanted = Wanted { entries, doubt };
        let plan = plan(&wanted, &found, (&mut record, &limits), (&mut draining, PATIENCE), now);

        let mut fewer = 0;
        for step in &plan.steps {
            prop_assert!(!found.others.contains(step.name()), "{step:?} is about another's");
            let there = found.own.get(step.name());
            match step {
                Step::Add { value, name } => prop_assert!(there.is_none() && wanted.entries.get(name) == Some(value)),
                Step::Change { from, to, .. } => {
                    prop_assert_eq!(there, Some(from));
                    let is_out = from.serves() && !to.serves();
                    prop_assert!(!is_out || wanted.doubt.is_none(), "{:?} is taken out in doubt", step);
                    fewer += usize::from(is_out);
                }
                Step::Remove { name, value } => {
                    prop_assert!(wanted.doubt.is_none() && !wanted.entries.contains_key(name));
                    prop_assert!(!value.serves() && !found.busy.contains(name), "{:?} serves, or is in use", step);
                }
            }
        }
        prop_assert!(fewer <= 1 || fewer as f64 <= serving(&found) as f64 * share, "{fewer} of {} go", serving(&found));
        // What is not as it is wanted and is not about to be is told, each with why.
        let then = after(&found, &plan.steps);
        for name in wanted.entries.keys().chain(found.own.keys()) {
            let is_right = then.own.get(name) == wanted.entries.get(name);
            let is_leaving = !wanted.entries.contains_key(name) && then.own.get(name).is_some_and(|left| !left.serves());
            prop_assert!(is_right || is_leaving || plan.kept.contains_key(name), "nothing is said of {name}");
        }
    }

    #[test]
    fn at_no_step_serves_less_than_before_and_after(entries in entries(), found in found()) {
        let limits = Limits { share: 1.0, ..Limits::default() };
        let (mut record, mut draining) = (Record::default(), Draining::default());
        let now = Now { unix: 1000, instant: Instant::now() };
        let wanted = Wanted::certain(entries);
        let plan = plan(&wanted, &found, (&mut record, &limits), (&mut draining, PATIENCE), now);
        let least = serving(&found).min(serving(&after(&found, &plan.steps)));
        for done in 0..=plan.steps.len() {
            let there = serving(&after(&found, &plan.steps[..done]));
            prop_assert!(there >= least, "{there} serve after {done} of {:?}", plan.steps);
        }
    }

    #[test]
    fn where_everything_is_granted_it_comes_to_what_is_wanted(entries in entries(), mut found in found()) {
        let limits = Limits { share: 1.0, ..Limits::default() };
        let (mut record, mut draining) = (Record::default(), Draining::default());
        let wanted = Wanted::certain(entries);
        let begun = Instant::now();
        // Drained, waited for, removed.
        for look in 0..3 {
            let now = Now { unix: 1000, instant: begun + PATIENCE * look };
            let plan = plan(&wanted, &found, (&mut record, &limits), (&mut draining, PATIENCE), now);
            found = after(&found, &plan.steps);
        }
        let expected: BTreeMap<_, _> =
            wanted.entries.iter().filter(|(name, _)| !found.others.contains(*name)).collect();
        prop_assert_eq!(found.own.iter().collect::<BTreeMap<_, _>>(), expected);
    }
}

/// An entry of a place that others may have taken under another name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placed(&'static str);

impl Value for Placed {
    fn place<'a>(&'a self, _name: &'a str) -> &'a str {
        self.0
    }
}

#[test]
fn what_others_have_is_a_place_and_not_the_name_of_an_entry() {
    let entries = [("a 1", "a"), ("a 2", "a"), ("b 1", "b")].map(|(name, place)| (name.to_owned(), Placed(place)));
    let found = Found { own: BTreeMap::new(), others: BTreeSet::from(["a".to_owned()]), busy: BTreeSet::new() };
    let (mut record, mut draining) = (Record::default(), Draining::default());
    let now = Now { unix: 0, instant: Instant::now() };
    let judged = (&mut record, &Limits::default());
    let plan = plan(&Wanted::certain(entries.into()), &found, judged, (&mut draining, PATIENCE), now);
    assert_eq!(plan.steps.iter().map(Step::name).collect::<Vec<_>>(), ["b 1"]);
    assert_eq!(plan.kept, BTreeMap::from(["a 1", "a 2"].map(|name| (name.to_owned(), Kept::Others))));
}
