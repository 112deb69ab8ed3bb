//! Origin of an entry: object, rule and owning group, and their uncertainty.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Object for which a rule desires entries.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ObjectId {
    /// Name of the rule.
    pub rule: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Resource and selection of the object, as one text.
    pub selection: String,
    /// Namespace of the object. Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, cluster, namespace, name, .. } = self;
        let separator = if namespace.is_empty() { "" } else { "/" };
        // The names need no escaping: Kubernetes restricts the names of objects, and the configuration defines those of
        // clusters and rules.
        write!(f, "{namespace}{separator}{name} of {cluster} (rule {rule})")
    }
}

/// Origin of an entry.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Origin {
    /// Group that owns the entry: removals are counted per group, and a location belongs to one group.
    pub group: String,
    /// Object for which the entry is desired.
    pub object: ObjectId,
    /// UID of the object.
    pub uid: String,
}

/// Uncertainty about the desired entries. Only the affected entries are protected from removal, and from changes if they
/// are held back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncertainOrigins {
    /// All clusters that provide entries of the mirror, including clusters with an uncertain view.
    pub sources: BTreeSet<String>,
    /// Rules with their clusters and selections that provide entries of the mirror, as objects without namespace and
    /// name. Empty if unknown.
    pub selections: BTreeSet<ObjectId>,
    /// Clusters with uncertain objects, and the reason.
    pub clusters: BTreeMap<String, Arc<str>>,
    /// Objects with unknown entries, and the reason.
    pub objects: BTreeMap<ObjectId, Arc<str>>,
    /// Clusters whose entries are neither added nor changed, because an earlier leader may have had a newer view.
    pub held_back: BTreeSet<String>,
}

impl UncertainOrigins {
    /// Returns true if nothing is uncertain.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.objects.is_empty() && self.held_back.is_empty()
    }

    /// Returns the reason not to remove an entry of `origin` now. `None` if the entry is certain.
    ///
    /// An entry can have an unknown origin, or a cluster that no longer feeds the mirror, for example after a rename.
    /// Such an entry could belong to any uncertain object, so any uncertainty keeps the entry.
    pub fn about(&self, origin: Option<&Origin>) -> Option<&Arc<str>> {
        match origin {
            Some(origin) if self.sources.contains(&origin.object.cluster) => {
                let object = &origin.object;
                let reason = self.clusters.get(&object.cluster).or_else(|| self.objects.get(object));
                reason.or_else(|| self.about_former(object))
            }
            _ => self.clusters.values().chain(self.objects.values()).next(),
        }
    }

    /// Returns the reason not to remove an entry of an `object` whose rule or selection no longer feeds the mirror, for
    /// example after a rename. An uncertain object of the same namespace, or one without a namespace, may provide this
    /// entry now. Objects of other namespaces have no effect: they can belong to other tenants.
    fn about_former(&self, object: &ObjectId) -> Option<&Arc<str>> {
        if self.selections.is_empty() || self.objects.is_empty() {
            return None;
        }
        let selection = ObjectId { namespace: String::new(), name: String::new(), ..object.clone() };
        if self.selections.contains(&selection) {
            return None;
        }
        self.selections.iter().filter(|current| current.cluster == object.cluster).find_map(|current| {
            // The objects of a selection are in order of their namespaces, so two lookups find the first related one.
            [String::new(), object.namespace.clone()].into_iter().find_map(|namespace| {
                let start = ObjectId { namespace, ..current.clone() };
                let (uncertain, reason) = self.objects.range(start..).next()?;
                let has_selection = uncertain.rule == current.rule
                    && uncertain.cluster == current.cluster
                    && uncertain.selection == current.selection;
                let is_unlimited = uncertain.namespace.is_empty() || object.namespace.is_empty();
                let is_related = has_selection && (is_unlimited || uncertain.namespace == object.namespace);
                is_related.then_some(reason)
            })
        })
    }
}

/// Function that returns whether the object of an origin still exists. Returns `None` if unknown.
#[derive(Clone)]
pub struct ExistenceCheck(Arc<Lookup>);

type Lookup = dyn Fn(&Origin) -> Option<bool> + Send + Sync;

impl ExistenceCheck {
    /// Wraps a lookup, for example in snapshots of informers.
    pub fn new(lookup: impl Fn(&Origin) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }

    pub(crate) fn check(&self, origin: &Origin) -> Option<bool> {
        (self.0)(origin)
    }
}

impl fmt::Debug for ExistenceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExistenceCheck(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(cluster: &str, name: &str) -> Origin {
        let object = ObjectId { cluster: cluster.into(), name: name.into(), ..ObjectId::default() };
        Origin { object, ..Origin::default() }
    }

    #[test]
    fn doubt_is_limited_to_its_origin() {
        let mut uncertain_origins =
            UncertainOrigins { sources: ["a", "b"].map(str::to_owned).into(), ..UncertainOrigins::default() };
        assert_eq!(uncertain_origins.about(None), None);
        uncertain_origins.clusters.insert("a".into(), "stale".into());
        uncertain_origins.objects.insert(origin("b", "bad").object, "fails".into());
        let about = |origin: Origin| uncertain_origins.about(Some(&origin)).map(ToString::to_string);
        assert_eq!(about(origin("a", "x")).as_deref(), Some("stale"));
        assert_eq!(about(origin("b", "bad")).as_deref(), Some("fails"));
        assert_eq!(about(origin("b", "good")), None);
    }

    #[test]
    fn doubt_holds_entries_of_renamed_rule() {
        let origin_of = |rule: &str, cluster: &str, name: &str| {
            let mut origin = origin(cluster, name);
            origin.object.rule = rule.into();
            origin
        };
        let mut uncertain_origins = UncertainOrigins {
            sources: ["a", "b"].map(str::to_owned).into(),
            selections: ["a", "b"].map(|cluster| origin_of("new", cluster, "").object).into(),
            ..UncertainOrigins::default()
        };
        uncertain_origins.objects.insert(origin_of("new", "a", "bad").object, "fails".into());
        assert!(uncertain_origins.about(Some(&origin_of("old", "a", "bad"))).is_some());
        assert!(uncertain_origins.about(Some(&origin_of("new", "a", "good"))).is_none());
        assert!(uncertain_origins.about(Some(&origin_of("old", "b", "bad"))).is_none(), "another cluster");
        uncertain_origins.objects.clear();
        assert!(uncertain_origins.about(Some(&origin_of("old", "a", "bad"))).is_none());
    }

    #[test]
    fn other_namespace_holds_no_former_entry() {
        let origin_of = |rule: &str, namespace: &str, name: &str| {
            let mut origin = origin("a", name);
            (origin.object.rule, origin.object.namespace) = (rule.into(), namespace.into());
            origin
        };
        let about = |uncertain_namespace: &str, namespace: &str| {
            let uncertain_origins = UncertainOrigins {
                sources: ["a".to_owned()].into(),
                selections: ["new", "other"].map(|rule| origin_of(rule, "", "").object).into(),
                objects: [(origin_of("new", uncertain_namespace, "bad").object, "fails".into())].into(),
                ..UncertainOrigins::default()
            };
            uncertain_origins.about(Some(&origin_of("old", namespace, "x"))).is_some()
        };
        assert!(about("shop", "shop"));
        assert!(!about("shop", "bank") && !about("bank", "shop"));
        // Without a namespace, the object may provide any entry, and any object may provide the entry.
        assert!(about("", "shop") && about("shop", ""));
    }

    #[test]
    fn any_doubt_holds_unknown_origin() {
        let mut uncertain_origins =
            UncertainOrigins { sources: ["a".to_owned()].into(), ..UncertainOrigins::default() };
        uncertain_origins.objects.insert(origin("a", "bad").object, "fails".into());
        assert!(uncertain_origins.about(None).is_some());
        assert!(uncertain_origins.about(Some(&origin("renamed", "x"))).is_some());
        assert!(uncertain_origins.about(Some(&origin("a", "x"))).is_none());
    }
}
