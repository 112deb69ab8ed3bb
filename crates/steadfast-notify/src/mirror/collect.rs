//! Collection of the entries of all rules of a mirror.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_targets::{ExistenceCheck, ObjectId, UncertainOrigins};

use super::claim::{ClaimedEntry, ObjectEntries};
use super::input::ExistenceSnapshot;

/// Maximum number of entries of one group in a mirror. The entries of further objects count as unknown, and are
/// reported.
const MAX_GROUP_ENTRIES: usize = 20_000;

/// Entries of all rules of a mirror.
#[derive(Clone, Debug, Default)]
pub(crate) struct CollectedEntries {
    /// Entries in the order of rules and object names.
    pub(crate) claims: Vec<ClaimedEntry>,
    pub(crate) uncertain_origins: UncertainOrigins,
    /// Reason why all entries may be wrong.
    pub(crate) doubt: Option<Arc<str>>,
    pub(crate) existence_check: Option<ExistenceCheck>,
    /// Number of the leader's term in which the entries were collected; 0 without replicas and on a standby.
    pub(crate) term: u64,
}

/// Collects the entries in `object_entries`, in this order.
///
/// `clusters` are all clusters of the mirror, each with an optional reason why objects may be stale. Only entries of
/// such a cluster, and entries of an object with unknown entries, are uncertain.
pub(super) fn collect<'a>(
    object_entries: impl Iterator<Item = &'a ObjectEntries>,
    clusters: &BTreeMap<String, Option<Arc<str>>>,
    existence_snapshots: Vec<ExistenceSnapshot>,
) -> CollectedEntries {
    let mut collected_entries = CollectedEntries::default();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for ObjectEntries { object, entries } in object_entries {
        match entries {
            Ok(claims) => {
                // The entries of one object can belong to several groups.
                let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
                for claim in claims {
                    *counts.entry(&claim.origin.group).or_default() += 1;
                }
                let exceeds_limit = |(group, count): &(&&str, &usize)| {
                    sizes.get(**group).copied().unwrap_or_default() + **count > MAX_GROUP_ENTRIES
                };
                // All entries of the object become unknown instead of being truncated. With a partial set, the mirror
                // would remove the missing entries. Unknown entries take no space of their groups.
                if let Some((group, _)) = counts.iter().find(exceeds_limit) {
                    let reason = format!("its group {group:?} has more than {MAX_GROUP_ENTRIES} entries");
                    collected_entries.uncertain_origins.objects.insert(object.clone(), reason.into());
                    continue;
                }
                for (group, count) in counts {
                    *sizes.entry(group).or_default() += count;
                }
                collected_entries.claims.extend(claims.iter().cloned());
            }
            Err(reason) => {
                _ = collected_entries.uncertain_origins.objects.insert(object.clone(), reason.as_str().into());
            }
        }
    }
    collected_entries.uncertain_origins.sources = clusters.keys().cloned().collect();
    let uncertain = |(cluster, reason): (&String, &Option<Arc<str>>)| Some((cluster.clone(), reason.clone()?));
    collected_entries.uncertain_origins.clusters = clusters.iter().filter_map(uncertain).collect();
    if clusters.is_empty() {
        // Without rules the desired state is unknown, not empty: nothing may be removed.
        collected_entries.doubt = Some("no rule feeds the mirror".into());
    }
    collected_entries.existence_check = Some(ExistenceCheck::new(move |origin| {
        existence_snapshots.iter().find_map(|snapshot| snapshot.is_live(origin))
    }));
    collected_entries
}

/// Returns the first object with unknown entries, with the reason, and the number of such objects.
pub(super) fn first_unknown(objects: &BTreeMap<ObjectId, Arc<str>>) -> Option<(Arc<str>, usize)> {
    let (object, reason) = objects.iter().next()?;
    Some((format!("{object}: {reason}").into(), objects.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steadfast_targets::Origin;

    use super::*;
    use crate::entry_fields::SERVER;
    use crate::mirror::entry::entries;

    fn object(name: &str) -> ObjectId {
        ObjectId { cluster: "c".into(), name: name.into(), ..ObjectId::default() }
    }

    fn entries_of_object(name: &str, group: &str, port: u16) -> ObjectEntries {
        let value = json!({"key": name, "address": "10.0.0.1", "port": port});
        let origin = Arc::new(Origin { group: group.into(), object: object(name), uid: String::new() });
        let read = entries(&value, SERVER, &Value::Null, name).expect("an entry");
        let claims = read.into_iter().map(|entry| ClaimedEntry { entry, origin: origin.clone() }).collect();
        ObjectEntries { object: object(name), entries: Ok(claims) }
    }

    fn certain_clusters() -> BTreeMap<String, Option<Arc<str>>> {
        [("c".to_owned(), None)].into()
    }

    #[test]
    fn failing_object_affects_only_itself() {
        let failing = ObjectEntries { object: object("b"), entries: Err("x".to_owned()) };
        let all = [entries_of_object("a", "g", 1), failing, entries_of_object("c", "g", 2)];
        let collected_entries = collect(all.iter(), &certain_clusters(), Vec::new());
        assert_eq!(collected_entries.claims.iter().map(|claim| &*claim.entry.key).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(collected_entries.uncertain_origins.objects.keys().collect::<Vec<_>>(), [&object("b")]);
        assert!(collected_entries.uncertain_origins.clusters.is_empty() && collected_entries.doubt.is_none());
    }

    #[test]
    fn stale_cluster_affects_only_itself() {
        let clusters = [("c".to_owned(), None), ("d".to_owned(), Some("stale".into()))].into();
        let collected_entries = collect([entries_of_object("a", "g", 1)].iter(), &clusters, Vec::new());
        assert_eq!(collected_entries.uncertain_origins.clusters, [("d".to_owned(), "stale".into())].into());
        assert_eq!(collected_entries.uncertain_origins.sources.len(), 2);
        assert!(collect([].iter(), &BTreeMap::new(), Vec::new()).doubt.is_some());
    }

    /// An object with this number of entries in each group.
    fn object_in_groups(name: &str, groups: &[(&str, usize)]) -> ObjectEntries {
        let claims = groups.iter().flat_map(|(group, count)| {
            let claim = entries_of_object(name, group, 1).entries.expect("an entry").remove(0);
            vec![claim; *count]
        });
        ObjectEntries { object: object(name), entries: Ok(claims.collect()) }
    }

    #[test]
    fn group_limit_counts_entries_of_each_group() {
        // The first entry of the object is of the other group.
        let mixed = object_in_groups("a", &[("small", 1), ("large", MAX_GROUP_ENTRIES)]);
        let all = [mixed, entries_of_object("b", "large", 1), entries_of_object("c", "small", 1)];
        let collected_entries = collect(all.iter(), &certain_clusters(), Vec::new());
        assert_eq!(collected_entries.uncertain_origins.objects.keys().collect::<Vec<_>>(), [&object("b")]);
        assert_eq!(collected_entries.claims.len(), MAX_GROUP_ENTRIES + 2);
    }

    #[test]
    fn oversized_object_takes_no_space_of_groups() {
        let oversized = object_in_groups("a", &[("small", MAX_GROUP_ENTRIES), ("large", MAX_GROUP_ENTRIES + 1)]);
        let all = [oversized, entries_of_object("b", "large", 1), entries_of_object("c", "small", 1)];
        let collected_entries = collect(all.iter(), &certain_clusters(), Vec::new());
        assert_eq!(collected_entries.uncertain_origins.objects.keys().collect::<Vec<_>>(), [&object("a")]);
        assert_eq!(collected_entries.claims.iter().map(|claim| &*claim.entry.key).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn oversized_group_skips_only_own_objects() {
        let mut all: Vec<ObjectEntries> =
            (0..=MAX_GROUP_ENTRIES).map(|number| entries_of_object(&format!("{number:06}"), "large", 1)).collect();
        all.push(entries_of_object("z", "small", 1));
        let collected_entries = collect(all.iter(), &certain_clusters(), Vec::new());
        assert_eq!(collected_entries.claims.len(), MAX_GROUP_ENTRIES + 1);
        assert_eq!(collected_entries.uncertain_origins.objects.len(), 1);
        assert_eq!(collected_entries.claims.last().map(|claim| &*claim.entry.key), Some("z"));
    }
}
