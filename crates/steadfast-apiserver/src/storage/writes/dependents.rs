//! Dependents of deleted objects: finalizers for a garbage collector, as a real server sets them.

use serde_json::{Value, json};

use crate::metadata;
use crate::resources::GroupResource;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

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
    /// Returns the object with the matching finalizer; `None` if its finalizers need no change.
    pub(super) fn with_final_finalizers(self, resource: &GroupResource, object: &Value) -> Option<Value> {
        let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let had: Vec<&Value> = listed.into_iter().flatten().collect();
        let is_ours = |finalizer: &&&Value| **finalizer == ORPHAN || **finalizer == FOREGROUND;
        let wanted = match self {
            // Events have no dependents, and keep none of these finalizers.
            _ if resource.group().is_empty() && resource.resource() == "events" => None,
            Self::Orphaned => Some(ORPHAN),
            Self::Foreground => Some(FOREGROUND),
            Self::Background => None,
            // Without a policy, an existing finalizer takes precedence over the default of the kind.
            Self::Unspecified => match had.iter().find(is_ours) {
                Some(finalizer) => finalizer.as_str(),
                None => orphans_by_default(resource).then_some(ORPHAN),
            },
        };
        let mut ours = had.iter().filter(is_ours);
        // Exactly the wanted finalizer exists, so nothing changes.
        if ours.next().and_then(|finalizer| finalizer.as_str()) == wanted && ours.next().is_none() {
            return None;
        }
        let others = had.iter().filter(|finalizer| !is_ours(finalizer)).map(|finalizer| (*finalizer).clone());
        let finalizers: Vec<Value> = others.chain(wanted.map(Value::from)).collect();
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

    fn after(how: Dependents, group: &str, resource: &str, finalizers: &[&str]) -> Option<Value> {
        let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
        let updated = how.with_final_finalizers(&GroupResource::new(group, resource), &object)?;
        Some(updated["metadata"].get("finalizers").cloned().unwrap_or_default())
    }

    #[test]
    fn deletion_sets_the_requested_finalizer() {
        let pods = |how, finalizers: &[&str]| after(how, "", "pods", finalizers);
        assert_eq!(pods(Foreground, &["x/y"]), Some(json!(["x/y", "foregroundDeletion"])));
        assert_eq!(pods(Orphaned, &["foregroundDeletion", "x/y"]), Some(json!(["x/y", "orphan"])));
        assert_eq!(pods(Background, &["orphan"]), Some(Value::Null));
        assert_eq!(pods(Foreground, &["foregroundDeletion", "x/y"]), None);
        assert_eq!(pods(Background, &["x/y"]), None);
    }

    #[test]
    fn unspecified_policy_follows_object_or_kind() {
        assert_eq!(after(Unspecified, "", "pods", &[]), None);
        assert_eq!(after(Unspecified, "", "pods", &["orphan"]), None);
        assert_eq!(after(Unspecified, "batch", "jobs", &[]), Some(json!(["orphan"])));
        assert_eq!(after(Unspecified, "batch", "jobs", &["foregroundDeletion"]), None);
        assert_eq!(after(Foreground, "", "events", &[]), None);
        assert_eq!(after(Unspecified, "", "events", &["orphan"]), Some(Value::Null));
    }
}
