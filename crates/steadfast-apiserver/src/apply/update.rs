//! Ownership of fields: how managers gain and lose fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::compare::Difference;
use super::field_set::FieldSet;
use super::fields::{field_set, remove_fields, with_parents};
use super::managed::{ManagedFields, Manager, Managers, Operation};
use super::merge::merged;
use super::validate;
use crate::merging::types::TypeRef;

/// Fields that no manager owns: the identity of an object, and the metadata that the server sets.
static UNOWNED_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::from_names(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// Fields of other managers that an apply would change, by manager.
pub(super) type Conflicts = BTreeMap<Manager, FieldSet>;

/// Error for an object that does not fit the types of another version, although a manager owns fields in that version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unconvertible;

/// A write and its manager.
pub(super) struct FieldUpdate<'a> {
    pub(super) type_ref: &'a TypeRef,
    /// Fields that this write cannot change.
    pub(super) ignored: &'a FieldSet,
    /// Fields to ignore in comparisons for managers that own fields in other versions.
    pub(super) ignored_in_other_versions: &'a FieldSet,
    pub(super) manager: Manager,
    pub(super) api_version: &'a str,
    pub(super) now: &'a str,
}

impl FieldUpdate<'_> {
    /// Transfers the changed fields to this manager. `type_of_version` returns the types of other versions, if they
    /// differ.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        type_of_version: &dyn Fn(&str) -> Option<TypeRef>,
    ) -> Result<(), Unconvertible> {
        let difference = Difference::between(self.type_ref, live, new).ignoring(self.ignored);
        // Other managers own fields in other API versions, with other names and defaults.
        let mut by_version: BTreeMap<&str, Difference> = BTreeMap::new();
        for version in managers.0.values().map(|managed| managed.api_version.as_str()) {
            let Some(type_ref) = type_of_version(version).filter(|_| version != self.api_version) else { continue };
            // An object that does not fit the type of another version cannot be compared in that version.
            if validate::violations(&type_ref, live).is_some() || validate::violations(&type_ref, new).is_some() {
                return Err(Unconvertible);
            }
            let difference = Difference::between(&type_ref, live, new).ignoring(self.ignored_in_other_versions);
            by_version.insert(version, difference);
        }
        let lost: Vec<FieldSet> = managers
            .0
            .values()
            .map(|managed| {
                let difference = by_version.get(managed.api_version.as_str()).unwrap_or(&difference);
                difference.lost_fields(&managed.fields)
            })
            .collect();
        for (managed, lost) in managers.0.values_mut().zip(lost) {
            managed.fields = managed.fields.difference(&lost);
        }
        managers.0.retain(|_, managed| !managed.fields.is_empty());
        // No manager owns the identity of an object, or the metadata that the server sets.
        let fields = difference.modified.union(&difference.added).difference(&UNOWNED_FIELDS);
        if fields.is_empty() {
            return Ok(());
        }
        let time = Some(self.now.to_owned());
        if let Some(managed) = managers.0.get_mut(&self.manager) {
            managed.fields.extend(&fields);
            managed.time = time;
        } else {
            let managed = ManagedFields { fields, api_version: self.api_version.to_owned(), time };
            managers.0.insert(self.manager.clone(), managed);
        }
        Ok(())
    }

    /// Returns the object with the applied fields. Fields of the last apply that this apply omits are removed, unless
    /// another manager owns them.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managers: &mut Managers,
        force: bool,
    ) -> Result<Value, Conflicts> {
        let mut new = merged(self.type_ref, Some(live), Some(applied)).unwrap_or_default();
        let last_applied = managers.0.get(&self.manager).cloned();
        let fields = field_set(self.type_ref, applied).recursive_difference(self.ignored);
        let time = last_applied.as_ref().and_then(|last_applied| last_applied.time.clone());
        let managed = ManagedFields { fields, api_version: self.api_version.to_owned(), time };
        managers.0.insert(self.manager.clone(), managed);
        // Fields of the last apply that are absent now are removed, unless another manager owns
        // these fields.
        if let Some(last_applied) = last_applied.filter(|last_applied| !last_applied.fields.is_empty()) {
            new = self.without_released_fields(&new, managers, &last_applied.fields);
        }
        let difference = Difference::between(self.type_ref, live, &new).ignoring(self.ignored);
        let changed = difference.modified.union(&difference.added);
        let other_managers = managers.0.iter().filter(|(manager, _)| **manager != self.manager);
        let conflicts: Conflicts = other_managers
            .map(|(manager, managed)| (manager.clone(), managed.fields.intersection(&changed)))
            .filter(|(_, fields)| !fields.is_empty())
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(conflicts);
        }
        // A forced apply takes the fields from the other managers.
        remove_from_others(managers, &difference, &conflicts, &self.manager);
        if let Some(managed) = managers.0.get_mut(&self.manager) {
            managed.fields = managed.fields.difference(&UNOWNED_FIELDS);
            // The time only changes with the object, so a repeated apply creates no new version.
            if *live != new {
                managed.time = Some(self.now.to_owned());
            }
        }
        managers.0.retain(|_, managed| !managed.fields.is_empty());
        Ok(new)
    }

    /// Removes the last applied fields that no manager owns any more.
    fn without_released_fields(&self, merged: &Value, managers: &Managers, last: &FieldSet) -> Value {
        let parents = |set: &FieldSet| with_parents(self.type_ref, set);
        let fields_of = |object: &Value| parents(&field_set(self.type_ref, object));
        let without_removed = |removed: &FieldSet| remove_fields(self.type_ref, merged, removed).unwrap_or_default();
        let last = parents(last);
        let pruned = without_removed(&last);
        let mut managed = FieldSet::default();
        for managed_fields in managers.0.values() {
            managed.extend(&managed_fields.fields);
        }
        // Only fields of the last apply may disappear. A container stays while another manager owns a field in it.
        let all = fields_of(merged);
        let mut kept = fields_of(&pruned);
        kept.extend(&parents(&managed));
        let with_owned = without_removed(&all.difference(&kept));
        without_removed(&all.difference(&fields_of(&with_owned)).intersection(&last))
    }
}

/// Removes the deleted fields and the fields in conflict from all managers except `applier`.
fn remove_from_others(managers: &mut Managers, difference: &Difference, conflicts: &Conflicts, applier: &Manager) {
    for (manager, managed) in managers.0.iter_mut().filter(|(manager, _)| *manager != applier) {
        let lost = conflicts.get(manager).cloned().unwrap_or_default();
        managed.fields = managed.fields.difference(&lost).difference(&difference.removed);
    }
    managers.0.retain(|manager, managed| manager == applier || !managed.fields.is_empty());
}

impl Manager {
    /// Returns the manager of the fields that existed before the first apply.
    pub(super) fn before_first_apply(api_version: &str, subresource: &str) -> Self {
        Self::new("before-first-apply", Operation::Update, api_version, subresource)
    }
}
