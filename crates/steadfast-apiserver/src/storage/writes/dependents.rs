//! Dependents of deleted objects: finalizers for a garbage collector, as a real server sets them.

use serde_json::{Value, json};

use crate::metadata;
use crate::resources::GroupResource;

/// Requested treatment of an object's dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Not specified: determined by the object's finalizers, or by its kind.
    #[default]
    Unspecified,
    /// Dependents are kept.
    Orphaned,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

impl Dependents {
    /// Finalizer of an object whose dependents are kept.
    pub(crate) const ORPHAN_FINALIZER: &str = "orphan";

    /// Finalizer of an object whose dependents are deleted first.
    pub(crate) const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

    /// Returns the object with the matching finalizer; `None` if its finalizers need no change.
    pub(super) fn with_final_finalizers(self, resource: &GroupResource, object: &Value) -> Option<Value> {
        let finalizer_list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let existing_finalizers: Vec<&Value> = finalizer_list.into_iter().flatten().collect();
        let is_own_finalizer =
            |finalizer: &&&Value| **finalizer == Self::ORPHAN_FINALIZER || **finalizer == Self::FOREGROUND_FINALIZER;
        let required_finalizer = match self {
            // Events have no dependents, and keep none of these finalizers.
            _ if resource.group().is_empty() && resource.resource() == "events" => None,
            Self::Orphaned => Some(Self::ORPHAN_FINALIZER),
            Self::Foreground => Some(Self::FOREGROUND_FINALIZER),
            Self::Background => None,
            // Without a policy, an existing finalizer takes precedence over the default of the kind.
            Self::Unspecified => match existing_finalizers.iter().find(is_own_finalizer) {
                Some(finalizer) => finalizer.as_str(),
                None => orphans_by_default(resource).then_some(Self::ORPHAN_FINALIZER),
            },
        };
        let mut own_finalizers = existing_finalizers.iter().filter(is_own_finalizer);
        // Exactly the wanted finalizer exists, so nothing changes.
        if own_finalizers.next().and_then(|finalizer| finalizer.as_str()) == required_finalizer
            && own_finalizers.next().is_none()
        {
            return None;
        }
        let other_finalizers = existing_finalizers
            .iter()
            .filter(|finalizer| !is_own_finalizer(finalizer))
            .map(|finalizer| (*finalizer).clone());
        let finalizers: Vec<Value> = other_finalizers.chain(required_finalizer.map(Value::from)).collect();
        let mut object = object.clone();
        metadata::set(&mut object, "finalizers", (!finalizers.is_empty()).then(|| json!(finalizers)));
        Some(object)
    }
}

/// Returns whether the dependents of a kind are kept by default, as before garbage collection existed.
fn orphans_by_default(resource: &GroupResource) -> bool {
    matches!((resource.group(), resource.resource()), ("batch", "jobs") | ("", "replicationcontrollers"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Dependents::{Background, Foreground, Orphaned, Unspecified};
    use super::{Dependents, GroupResource};

    fn finalizers_after(dependents: Dependents, group: &str, resource: &str, finalizers: &[&str]) -> Option<Value> {
        let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
        let updated = dependents.with_final_finalizers(&GroupResource::new(group, resource), &object)?;
        Some(updated["metadata"].get("finalizers").cloned().unwrap_or_default())
    }

    #[test]
    fn deletion_sets_the_requested_finalizer() {
        let pods = |dependents, finalizers: &[&str]| finalizers_after(dependents, "", "pods", finalizers);
        assert_eq!(pods(Foreground, &["x/y"]), Some(json!(["x/y", "foregroundDeletion"])));
        assert_eq!(pods(Orphaned, &["foregroundDeletion", "x/y"]), Some(json!(["x/y", "orphan"])));
        assert_eq!(pods(Background, &["orphan"]), Some(Value::Null));
        assert_eq!(pods(Foreground, &["foregroundDeletion", "x/y"]), None);
        assert_eq!(pods(Background, &["x/y"]), None);
    }

    #[test]
    fn unspecified_policy_follows_object_or_kind() {
        assert_eq!(finalizers_after(Unspecified, "", "pods", &[]), None);
        assert_eq!(finalizers_after(Unspecified, "", "pods", &["orphan"]), None);
        assert_eq!(finalizers_after(Unspecified, "batch", "jobs", &[]), Some(json!(["orphan"])));
        assert_eq!(finalizers_after(Unspecified, "batch", "jobs", &["foregroundDeletion"]), None);
        assert_eq!(finalizers_after(Foreground, "", "events", &[]), None);
        assert_eq!(finalizers_after(Unspecified, "", "events", &["orphan"]), Some(Value::Null));
    }
}
