//! Deletions: immediate, delayed by finalizers, or with contents.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{ObjectKey, State};
use super::definitions;
use super::dependents::Dependents;
use super::kinds::{has_user_finalizers, holds_contents, is_definition, is_namespace, is_undeletable};
use super::request::{WriteOutcome, WriteTarget};
use crate::metadata;
use crate::resources::{DEFINITIONS, GroupResource, NAMESPACES, defined_name};
use crate::status::Status;

/// Options and preconditions of a deletion. Empty strings set no precondition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletion {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) dependents: Dependents,
}

impl State {
    /// Deletes an object, or marks it as terminating if it has finalizers or contents.
    pub(crate) fn delete(&mut self, target: &WriteTarget, deletion: &Deletion) -> Result<WriteOutcome, Status> {
        let resource = target.storage_resource().clone();
        let key = target.key();
        if is_undeletable(&resource, &target.name) {
            return Err(Status::forbidden(&resource, &target.name, "this namespace may not be deleted"));
        }
        let Some(existing) = self.latest(&resource, &key).and_then(|change| change.object.clone()) else {
            return Err(Status::not_found(target.group_resource(), &target.name));
        };
        // Preconditions are checked before finalizers change, so that a failed deletion leaves no trace.
        check_preconditions(target, &existing, deletion)?;
        let updated = with_final_finalizers(&resource, &existing, deletion.dependents);
        // With finalizers or contents, the object is only marked. A later write removes the object.
        if !metadata::has_finalizers(&updated) && !holds_contents(&resource) {
            // A pod has a grace period even if no kubelet runs it. The period ends immediately.
            let is_graceful = is_pod(&resource) && !metadata::is_terminating(&existing);
            // A dry run of a graceful deletion returns the terminating object.
            if target.is_dry_run {
                let deleted = if is_graceful { Arc::new(self.terminating_form(&resource, &updated)) } else { existing };
                return Ok(WriteOutcome::Deleted(deleted));
            }
            let existing =
                if is_graceful { self.mark_terminating(&resource, &key, existing, &updated) } else { existing };
            let mut deleted = Value::clone(&existing);
            let revision = self.remove(&resource, &key, existing);
            // The response contains the revision of the deletion, like the event.
            metadata::set(&mut deleted, "resourceVersion", Some(revision.to_string().into()));
            return Ok(WriteOutcome::Deleted(Arc::new(deleted)));
        }
        if target.is_dry_run {
            return Ok(WriteOutcome::Stored(Arc::new(self.terminating_form(&resource, &updated))));
        }
        let terminating = self.mark_terminating(&resource, &key, existing, &updated);
        if is_namespace(&resource) {
            // This call only schedules the deletion of the contents. The delay may be zero, so all due
            // namespaces are processed next.
            self.terminating.start(&key.name, self.clock.elapsed());
            self.end_namespaces();
        } else if is_definition(&resource) {
            self.delete_instances(&terminating);
            self.remove_empty_containers();
        }
        Ok(WriteOutcome::Stored(terminating))
    }

    /// Deletes the contents of namespaces whose termination delay has ended, and the namespaces without contents.
    pub(crate) fn end_namespaces(&mut self) {
        for namespace in self.terminating.take_due(self.clock.elapsed()) {
            self.delete_contents_of_namespace(&namespace);
        }
        self.remove_empty_containers();
    }

    /// Writes the tombstone of an object. Removes the namespace or definition if this was its last object. Returns the
    /// tombstone's revision.
    pub(super) fn remove(&mut self, resource: &GroupResource, key: &ObjectKey, existing: Arc<Value>) -> u64 {
        let revision = self.append(resource, key.clone(), None, Some(existing)).revision;
        self.remove_empty_containers();
        revision
    }

    /// Marks the stored object `existing` as terminating, with the finalizers of `updated`.
    fn mark_terminating(
        &mut self,
        resource: &GroupResource,
        key: &ObjectKey,
        existing: Arc<Value>,
        updated: &Value,
    ) -> Arc<Value> {
        let object = self.terminating_form(resource, updated);
        // A repeated deletion changes nothing and creates no event.
        // The comparison includes the deletion timestamp, which a second deletion keeps.
        if object == *existing {
            return existing;
        }
        self.append(resource, key.clone(), Some(object), Some(existing)).object.clone().unwrap_or_default()
    }

    /// Returns the object marked as terminating.
    fn terminating_form(&self, resource: &GroupResource, existing: &Value) -> Value {
        let mut object = existing.clone();
        if metadata::is_terminating(existing) {
            return object;
        }
        metadata::set(&mut object, "deletionTimestamp", Some(self.clock.timestamp().into()));
        // Namespaces and definitions have no grace period in their metadata.
        if !is_namespace(resource) && !is_definition(resource) {
            metadata::set(&mut object, "deletionGracePeriodSeconds", Some(0.into()));
        }
        // Except for definitions, a deletion increments the generation, as a change of the specification does.
        if is_definition(resource) {
            definitions::mark_terminating(&mut object, &self.clock.timestamp());
        } else if metadata::generation(existing) > 0 {
            metadata::set(&mut object, "generation", Some((metadata::generation(existing) + 1).into()));
        }
        if is_namespace(resource) {
            if !object["status"].is_object() {
                object["status"] = json!({});
            }
            object["status"]["phase"] = "Terminating".into();
        }
        object
    }

    fn delete_or_mark(&mut self, to_delete: Vec<(GroupResource, ObjectKey, Arc<Value>)>, dependents: Dependents) {
        for (resource, key, object) in to_delete {
            // Finalizers delay the deletion of contents too, and with them the end of the namespace.
            let updated = with_final_finalizers(&resource, &object, dependents);
            if metadata::has_finalizers(&updated) {
                self.mark_terminating(&resource, &key, object, &updated);
            } else {
                self.append(&resource, key, None, Some(object));
            }
        }
    }

    fn delete_contents_of_namespace(&mut self, namespace: &str) {
        // All objects are collected first, since each deletion appends to the tables.
        let mut to_delete = Vec::new();
        for resource in self.resources() {
            for (key, change) in self.live(resource, Some(namespace)) {
                to_delete.extend(change.object.clone().map(|object| (resource.clone(), key.clone(), object)));
            }
        }
        self.delete_or_mark(to_delete, Dependents::Background);
    }

    fn delete_instances(&mut self, definition: &Value) {
        let Some(defined) = defined_name(definition) else { return };
        let to_delete = self
            .live(&defined, None)
            .filter_map(|(key, change)| Some((defined.clone(), key.clone(), change.object.clone()?)))
            .collect();
        self.delete_or_mark(to_delete, Dependents::Unspecified);
    }

    /// Removes terminating namespaces and definitions without contents.
    pub(super) fn remove_empty_containers(&mut self) {
        let (mut empty, mut finalized) = (Vec::new(), Vec::new());
        for resource in [&*NAMESPACES, &*DEFINITIONS] {
            for (key, change) in self.live(resource, None) {
                let Some(object) = change.object.as_ref().filter(|object| metadata::is_terminating(object)) else {
                    continue;
                };
                let has_contents = if is_namespace(resource) {
                    !self.terminating.is_emptied(&key.name)
                        || self
                            .resources()
                            .any(|content_resource| self.live(content_resource, Some(&key.name)).next().is_some())
                } else {
                    defined_name(object).is_some_and(|defined| self.live(&defined, None).next().is_some())
                };
                // Finalizers of users hold the object even without contents.
                if !has_contents && !has_user_finalizers(object) {
                    empty.push((resource.clone(), key.clone(), Arc::clone(object)));
                } else if !has_contents && object.pointer("/spec/finalizers").is_some() {
                    finalized.push((key.clone(), Arc::clone(object)));
                }
            }
        }
        for (key, object) in finalized {
            // The namespace has no contents left, but its own finalizers remain.
            let mut without_finalizers = Value::clone(&object);
            without_finalizers["spec"] = json!({});
            self.append(&NAMESPACES, key, Some(without_finalizers), Some(object));
        }
        for (resource, key, object) in empty {
            if is_namespace(&resource) {
                self.terminating.forget(&key.name);
            }
            self.append(&resource, key, None, Some(object));
        }
    }
}

/// Returns the object with its finalizers after the deletion. The finalizers of namespaces and definitions are
/// unchanged.
fn with_final_finalizers(resource: &GroupResource, existing: &Arc<Value>, dependents: Dependents) -> Arc<Value> {
    let updated = if holds_contents(resource) { None } else { dependents.with_final_finalizers(resource, existing) };
    updated.map_or_else(|| Arc::clone(existing), Arc::new)
}

fn is_pod(resource: &GroupResource) -> bool {
    resource.group().is_empty() && resource.resource() == "pods"
}

fn check_preconditions(target: &WriteTarget, existing: &Value, deletion: &Deletion) -> Result<(), Status> {
    // Namespaces and definitions have their own stores with their own messages.
    let precondition_text = match &target.resource.name {
        namespaces if is_namespace(namespaces) => Some("Precondition failed"),
        definitions if is_definition(definitions) => Some("precondition failed"),
        _ => None,
    };
    let places = [("uid", "UID", &deletion.uid), ("resourceVersion", "ResourceVersion", &deletion.resource_version)];
    for (field, display_name, required) in places {
        let found = metadata::text(existing, field);
        if required.is_empty() || required == found {
            continue;
        }
        if let Some(precondition_text) = precondition_text {
            let detail = format!(
                "{precondition_text}: {display_name} in precondition: {required}, {display_name} in object \
                 meta: {found}"
            );
            return Err(Status::conflict(&target.resource.name, &target.name, &detail));
        }
        let likely_event = if field == "uid" { "deleted and then recreated" } else { "modified" };
        let detail = format!(
            "the {display_name} in the precondition ({required}) does not match the {display_name} in record \
             ({found}). The object might have been {likely_event}"
        );
        // In this message, the real server uses the kind instead of the resource.
        let kind = GroupResource::new(target.resource.name.group(), &target.resource.kind);
        return Err(Status::conflict(&kind, &target.name, &detail));
    }
    Ok(())
}
