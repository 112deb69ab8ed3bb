//! All scenarios: those of three collections of known failures (`ScenarioSource`), and those of the catalog of
//! faults.

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

use super::catalog_fault::CatalogFault;
use super::scenario::Scenario;

/// Families of scenarios, in the order of the documentation.
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

/// Returns all scenarios, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Scenario> {
    FAMILIES.iter().copied().flatten()
}

/// Returns the scenarios that cover `fault`.
pub fn of(fault: CatalogFault) -> impl Iterator<Item = &'static Scenario> {
    all().filter(move |scenario| scenario.faults.contains(&fault))
}

/// Returns the scenario with this name.
pub fn named(name: &str) -> Option<&'static Scenario> {
    all().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scenario_names_and_summaries_follow_rules() {
        let names: BTreeSet<&str> = all().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), all().count());
        for scenario in all() {
            let kebab = |character: char| character.is_ascii_lowercase() || character == '-';
            assert!(scenario.name.len() <= 24 && scenario.name.chars().all(kebab), "{}", scenario.name);
            assert!(scenario.name != "all", "the name all is reserved");
            // The summary states the situation and the expected result, in sentences of at most 25 words.
            let summary = scenario.summary.strip_suffix('.').expect("a summary ends with a period");
            let sentences: Vec<_> = summary.split(". ").collect();
            assert!((2..=6).contains(&sentences.len()), "{}: {summary}", scenario.name);
            let is_long = |sentence: &&&str| sentence.split_whitespace().count() > 25;
            assert_eq!(sentences.iter().find(is_long), None, "{}", scenario.name);
        }
    }
}
