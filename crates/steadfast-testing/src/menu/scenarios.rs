//! All scenarios: those of the documents that the project comes from, and those of the menu.

mod cache_loss;
mod clients;
mod failures;
mod hanging;
mod lists;
mod losses;
mod objects;
mod pitfalls;
mod refusals;
mod silence;
mod versions;

use super::fault::Fault;
use super::scenario::Scenario;

/// The families of scenarios, in the order in which they are given.
const FAMILIES: &[&[Scenario]] = &[
    failures::SCENARIOS,
    pitfalls::SCENARIOS,
    cache_loss::SCENARIOS,
    silence::SCENARIOS,
    versions::SCENARIOS,
    lists::SCENARIOS,
    refusals::SCENARIOS,
    hanging::SCENARIOS,
    clients::SCENARIOS,
    losses::SCENARIOS,
    objects::SCENARIOS,
];

/// All scenarios, in the order in which they are given.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    FAMILIES.iter().copied().flatten()
}

/// The scenarios that tell of `fault`.
pub fn of(fault: Fault) -> impl Iterator<Item = &'static Scenario> {
    all().filter(move |scenario| scenario.faults.contains(&fault))
}

/// The scenario of this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_short_and_unique_and_scenarios_have_two_sentences() {
        let names: BTreeSet<&str> = all().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().count());
        for scenario in all() {
            let kebab = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(scenario.name.len() <= 24 && scenario.name.chars().all(kebab), "{}", scenario.name);
            assert!(scenario.name != "all", "that name means all of them");
            let summary = format!("{} ", scenario.summary);
            assert_eq!(summary.matches(". ").count(), 2, "{}: {summary}", scenario.name);
        }
    }
}
