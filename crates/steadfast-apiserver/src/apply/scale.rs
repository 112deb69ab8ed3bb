//! Field management of writes to `scale`, which contains only the number of replicas.

use serde_json::Value;

use super::FieldManagement;
use super::field_set::FieldSet;
use super::managed::{ManagedFields, Manager, Managers, Operation};
use super::path::PathElement;

impl FieldManagement<'_> {
    /// Transfers the ownership of `replicas` to the manager that scaled. As on a real server, `replicas` without an
    /// owner stays without one, and the new entry has no time.
    pub(super) fn rescale(&self, live: &Value, object: &Value, managers: &mut Managers) {
        let replicas_field = |api_version: &str| {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            self.resource.scale(version).map(|paths| path_field_set(&paths.spec_replicas))
        };
        let Some(paths) = self.resource.scale(self.version) else { return };
        let (before, after) = (replica_count(live, &paths.spec_replicas), replica_count(object, &paths.spec_replicas));
        let owns_replicas = |managed: &ManagedFields| {
            replicas_field(&managed.api_version).is_some_and(|path| !managed.fields.intersection(&path).is_empty())
        };
        // Without a change, or without an owner of `replicas`, all managers stay.
        if before == after || !managers.0.values().any(owns_replicas) {
            return;
        }
        // A write of the scale takes `replicas` from every manager. The path of `replicas` depends on the manager's API
        // version.
        for managed in managers.0.values_mut() {
            if let Some(path) = replicas_field(&managed.api_version) {
                managed.fields = managed.fields.difference(&path);
            }
        }
        let api_version = self.api_version();
        let manager = Manager::new(&self.manager.name, Operation::Update, &api_version, self.manager.subresource);
        if after.is_some() {
            let fields = path_field_set(&paths.spec_replicas);
            let time = managers.0.get(&manager).and_then(|managed| managed.time.clone());
            managers.0.insert(manager, ManagedFields { fields, api_version, time });
        }
        managers.0.retain(|_, managed| !managed.fields.is_empty());
    }
}

/// Returns the number of replicas; `None` if the number is absent, or zero, which a scale omits.
fn replica_count<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    object.pointer(&path.replace('.', "/")).filter(|value| !value.is_null() && value.as_i64() != Some(0))
}

fn path_field_set(path: &str) -> FieldSet {
    let elements: Vec<PathElement> = path.trim_start_matches('.').split('.').map(PathElement::field).collect();
    let mut set = FieldSet::default();
    set.insert(&elements);
    set
}
