//! Condition of `--until` over all watched objects.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use steadfast::ObjectKey;

use crate::until::ObjectCondition;

/// The condition, and the known objects with the result for each. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    condition: ObjectCondition,
    state: Arc<Mutex<GoalState>>,
}

#[derive(Debug, Default)]
struct GoalState {
    /// True for each existing object that satisfies the condition. The map key is the number of the resource and the
    /// object's key.
    objects: HashMap<(usize, ObjectKey), bool>,
    unsatisfied: usize,
    /// Number of added resources.
    resources: usize,
    /// Number of resources whose existing objects are not all known, plus one until all resources are added.
    pending: usize,
}

impl Goal {
    /// Creates the goal without resources. The caller then adds all resources, and calls [`synced`](Self::synced) once
    /// to confirm that none follows.
    pub(super) fn new(condition: ObjectCondition) -> Self {
        let state = GoalState { pending: 1, ..GoalState::default() };
        Self { condition, state: Arc::new(Mutex::new(state)) }
    }

    /// Adds a resource without known objects. Returns the number of the resource.
    pub(super) fn add_resource(&self) -> usize {
        let mut state = self.state.lock();
        state.pending += 1;
        state.resources += 1;
        state.resources
    }

    /// Records the current state of an object; returns whether the goal is reached.
    pub(super) fn updated(&self, resource: usize, key: &ObjectKey, object: &Value) -> bool {
        let holds = self.condition.holds(object);
        let mut state = self.state.lock();
        let previously_held = state.objects.insert((resource, key.clone()), holds);
        state.unsatisfied += usize::from(!holds);
        state.unsatisfied -= usize::from(previously_held == Some(false));
        self.is_reached(&state)
    }

    /// Records the deletion of an object; returns whether the goal is reached.
    pub(super) fn deleted(&self, resource: usize, key: &ObjectKey) -> bool {
        let mut state = self.state.lock();
        let previously_held = state.objects.remove(&(resource, key.clone()));
        state.unsatisfied -= usize::from(previously_held == Some(false));
        self.is_reached(&state)
    }

    /// Records that all existing objects of a resource are known; returns whether the goal is reached.
    pub(super) fn synced(&self) -> bool {
        let mut state = self.state.lock();
        state.pending = state.pending.saturating_sub(1);
        self.is_reached(&state)
    }

    fn is_reached(&self, state: &GoalState) -> bool {
        // Without any object, the condition is not met, because the objects may not exist yet.
        let has_objects = matches!(self.condition, ObjectCondition::Deleted) || !state.objects.is_empty();
        state.pending == 0 && state.unsatisfied == 0 && has_objects
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn goal(condition: &str, resource_count: usize) -> Goal {
        let Ok(crate::until::Until::Met(condition)) = condition.parse() else { panic!("{condition}") };
        let goal = Goal::new(condition);
        for _ in 0..resource_count {
            goal.add_resource();
        }
        assert!(!goal.synced(), "the resources are pending");
        goal
    }

    #[test]
    fn condition_must_hold_for_all_objects() {
        let goal = goal("object.ready", 2);
        let (a, b) = (ObjectKey::namespaced("shop", "a"), ObjectKey::namespaced("shop", "b"));
        let (ready, waiting) = (json!({"ready": true}), json!({"ready": false}));
        assert!(!goal.updated(0, &a, &ready), "not synced");
        assert!(!goal.synced() && goal.synced());
        assert!(!goal.updated(1, &a, &waiting) && !goal.updated(1, &b, &waiting));
        assert!(!goal.deleted(1, &b) && !goal.updated(1, &a, &waiting));
        assert!(goal.updated(1, &a, &ready));
    }

    #[test]
    fn deletion_needs_no_remaining_object() {
        let goal = goal("delete", 1);
        let key = ObjectKey::cluster("n");
        assert!(!goal.updated(0, &key, &json!({})));
        assert!(!goal.synced() && goal.deleted(0, &key));
        assert!(Goal::new(ObjectCondition::Deleted).synced(), "none exists");
    }
}
