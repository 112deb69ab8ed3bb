use std::ops::Bound;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;

/// Returns the names and revisions of the objects at a revision.
fn objects(state: &State, resource: &GroupResource, revision: u64) -> Vec<(String, u64)> {
    let objects = state.objects_at(resource, None, Bound::Unbounded, revision);
    objects.map(|(key, change)| (key.name.clone(), change.revision)).collect()
}

/// As [`objects`], from all versions instead of the live objects.
fn objects_by_search(state: &State, resource: &GroupResource, revision: u64) -> Vec<(String, u64)> {
    let Some(history) = state.resources.get(resource) else { return Vec::new() };
    let versions = history.versions.iter();
    let found =
        versions.filter_map(|(key, versions)| Some((key.name.clone(), version_at(versions, revision)?.revision)));
    found.collect()
}

#[test]
fn current_objects_equal_search_of_versions() {
    for seed in 0..200 {
        let mut random = Random::seeded(seed);
        let terminating = TerminatingNamespaces::with_delay(Duration::ZERO);
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let mut state = State::new(clock, Random::seeded(seed), Registry::with_declared(&[]), terminating);
        for _ in 0..60 {
            let name = format!("object-{}", random.next() % 5);
            let key = ObjectKey::new("", &name);
            match random.next() % 20 {
                0 => state.forget(random.next() as usize % 20),
                1 => {
                    let revision = state.compacted().max(state.revision().saturating_sub(random.next() % 10));
                    state.restore(revision);
                }
                2..8 => drop(state.append(&NAMESPACES, key, None, None)),
                _ => drop(state.append(&NAMESPACES, key, Some(json!({"metadata": {"name": name}})), None)),
            }
            for revision in state.compacted().max(1)..=state.revision() {
                assert_eq!(
                    objects(&state, &NAMESPACES, revision),
                    objects_by_search(&state, &NAMESPACES, revision),
                    "seed {seed}, revision {revision} of {}",
                    state.revision()
                );
            }
        }
    }
}
