//! What becomes of an object's dependents when it goes: finalizers for a garbage collector, as a real server leaves them.

use serde_json::{Value, json};

use super::super::metadata;
use crate::resources::GroupResource;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What whoever deletes an object wants of its dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Nothing is said: the object's finalizers decide, or its kind.
    #[default]
    Unsaid,
    /// They stay.
    Orphaned,
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
}

impl Dependents {
    /// The object with the finalizer that says so; `None` where its finalizers are right already.
    pub(super) fn settled(self, resource: &GroupResource, object: &Value) -> Option<Value> {
        let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let had: Vec<&Value> = listed.into_iter().flatten().collect();
        let is_ours = |finalizer: &&&Value| **finalizer == ORPHAN || **finalizer == FOREGROUND;
        let wanted = match self {
            // Nothing depends on events, and no finalizer of these is left on one.
            _ if resource.group().is_empty() && resource.resource() == "events" => None,
            Self::Orphaned => Some(ORPHAN),
            Self::Foreground => Some(FOREGROUND),
            Self::Background => None,
            Self::Unsaid => match had.iter().find(is_ours) {
                Some(finalizer) => finalizer.as_str(),
                None => orphans_by_default(resource).then_some(ORPHAN),
            },
        };
        let mut ours = had.iter().filter(is_ours);
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

/// Kinds whose dependents stay where nobody says otherwise, as they did before there was a garbage collector.
fn orphans_by_default(resource: &GroupResource) -> bool {
    matches!((resource.group(), resource.resource()), ("batch", "jobs") | ("", "replicationcontrollers"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Dependents::{Background, Foreground, Orphaned, Unsaid};
    use super::{Dependents, GroupResource};

    fn after(how: Dependents, group: &str, resource: &str, finalizers: &[&str]) -> Option<Value> {
        let object = json!({"metadata": {"name": "a", "finalizers": finalizers}});
        let settled = how.settled(&GroupResource::new(group, resource), &object)?;
        Some(settled["metadata"].get("finalizers").cloned().unwrap_or_default())
    }

    #[test]
    fn who_deletes_an_object_says_what_becomes_of_its_dependents() {
        let pods = |how, finalizers: &[&str]| after(how, "", "pods", finalizers);
        assert_eq!(pods(Foreground, &["x/y"]), Some(json!(["x/y", "foregroundDeletion"])));
        assert_eq!(pods(Orphaned, &["foregroundDeletion", "x/y"]), Some(json!(["x/y", "orphan"])));
        assert_eq!(pods(Background, &["orphan"]), Some(Value::Null));
        assert_eq!(pods(Foreground, &["foregroundDeletion", "x/y"]), None);
        assert_eq!(pods(Background, &["x/y"]), None);
    }

    #[test]
    fn where_nothing_is_said_the_object_or_its_kind_decides() {
        assert_eq!(after(Unsaid, "", "pods", &[]), None);
        assert_eq!(after(Unsaid, "", "pods", &["orphan"]), None);
        assert_eq!(after(Unsaid, "batch", "jobs", &[]), Some(json!(["orphan"])));
        assert_eq!(after(Unsaid, "batch", "jobs", &["foregroundDeletion"]), None);
        assert_eq!(after(Foreground, "", "events", &[]), None);
        assert_eq!(after(Unsaid, "", "events", &["orphan"]), Some(Value::Null));
    }
}
