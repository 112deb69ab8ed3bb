//! Collection of the entries of all rules of a mirror.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_targets::{Doubts, ExistenceCheck, ObjectId};

use super::claim::{Claim, ObjectClaims};
use super::view::Presence;

/// Maximum number of entries of one group in a mirror. Further objects of the group are skipped and reported.
const MAX_GROUP_ENTRIES: usize = 20_000;

/// Entries of all rules of a mirror.
#[derive(Clone, Debug, Default)]
pub(crate) struct CollectedEntries {
    /// Entries in the order of rules and object names.
    pub(crate) claims: Vec<Claim>,
    pub(crate) doubts: Doubts,
    /// Reason why all entries may be wrong.
    pub(crate) doubt: Option<Arc<str>>,
    pub(crate) exists: Option<ExistenceCheck>,
}

/// Collects the entries in `sent`, in this order.
///
/// `clusters` are all clusters of the mirror, each with an optional reason why objects may be stale. Only entries of
/// such a cluster, and entries of an object with unknown entries, are uncertain.
pub(super) fn collect<'a>(
    sent: impl Iterator<Item = &'a ObjectClaims>,
    clusters: &BTreeMap<String, Option<Arc<str>>>,
    presences: Vec<Presence>,
) -> CollectedEntries {
    let mut gathered = CollectedEntries::default();
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for ObjectClaims { object, entries } in sent {
        match entries {
            Ok(claims) => {
                let size = claims.first().map(|claim| sizes.entry(&claim.origin.group).or_default());
                if let Some(size) = size {
                    *size += claims.len();
                    // All entries of the object become unknown instead of being truncated. With a partial set, the
                    // mirror would remove the missing entries.
                    if *size > MAX_GROUP_ENTRIES {
                        let reason = format!("its group has more than {MAX_GROUP_ENTRIES} entries");
                        gathered.doubts.objects.insert(object.clone(), reason.into());
                        continue;
                    }
                }
                gathered.claims.extend(claims.iter().cloned());
            }
            Err(reason) => _ = gathered.doubts.objects.insert(object.clone(), reason.as_str().into()),
        }
    }
    gathered.doubts.sources = clusters.keys().cloned().collect();
    let uncertain = |(cluster, reason): (&String, &Option<Arc<str>>)| Some((cluster.clone(), reason.clone()?));
    gathered.doubts.clusters = clusters.iter().filter_map(uncertain).collect();
    if clusters.is_empty() {
        // Without rules the wanted state is unknown, not empty: nothing may be removed.
        gathered.doubt = Some("no rule feeds the mirror".into());
    }
    gathered.exists =
        Some(ExistenceCheck::new(move |origin| presences.iter().find_map(|presence| presence.of(origin))));
    gathered
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
    use crate::mirror::entry::entries;
    use crate::shape::SERVER;

    fn object(name: &str) -> ObjectId {
        ObjectId { cluster: "c".into(), name: name.into(), ..ObjectId::default() }
    }

    fn sent(name: &str, group: &str, port: u16) -> ObjectClaims {
        let value = json!({"key": name, "address": "10.0.0.1", "port": port});
        let origin = Arc::new(Origin { group: group.into(), object: object(name), uid: String::new() });
        let read = entries(&value, SERVER, &Value::Null, name).expect("an entry");
        let claims = read.into_iter().map(|entry| Claim { entry, origin: origin.clone() }).collect();
        ObjectClaims { object: object(name), entries: Ok(claims) }
    }

    fn certain() -> BTreeMap<String, Option<Arc<str>>> {
        [("c".to_owned(), None)].into()
    }

    #[test]
    fn failing_object_affects_only_itself() {
        let failing = ObjectClaims { object: object("b"), entries: Err("x".to_owned()) };
        let all = [sent("a", "g", 1), failing, sent("c", "g", 2)];
        let gathered = collect(all.iter(), &certain(), Vec::new());
        assert_eq!(gathered.claims.iter().map(|claim| &*claim.entry.key).collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(gathered.doubts.objects.keys().collect::<Vec<_>>(), [&object("b")]);
        assert!(gathered.doubts.clusters.is_empty() && gathered.doubt.is_none());
    }

    #[test]
    fn stale_cluster_affects_only_itself() {
        let clusters = [("c".to_owned(), None), ("d".to_owned(), Some("stale".into()))].into();
        let gathered = collect([sent("a", "g", 1)].iter(), &clusters, Vec::new());
        assert_eq!(gathered.doubts.clusters, [("d".to_owned(), "stale".into())].into());
        assert_eq!(gathered.doubts.sources.len(), 2);
        assert!(collect([].iter(), &BTreeMap::new(), Vec::new()).doubt.is_some());
    }

    #[test]
    fn oversized_group_skips_only_own_objects() {
        let mut all: Vec<ObjectClaims> =
            (0..=MAX_GROUP_ENTRIES).map(|number| sent(&format!("{number:06}"), "large", 1)).collect();
        all.push(sent("z", "small", 1));
        let gathered = collect(all.iter(), &certain(), Vec::new());
        assert_eq!(gathered.claims.len(), MAX_GROUP_ENTRIES + 1);
        assert_eq!(gathered.doubts.objects.len(), 1);
        assert_eq!(gathered.claims.last().map(|claim| &*claim.entry.key), Some("z"));
    }
}
