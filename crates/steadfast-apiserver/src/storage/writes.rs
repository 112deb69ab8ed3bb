//! Creations and updates: the rules by which a write becomes a change.

use std::sync::Arc;

use serde_json::Value;

use super::{ObjectKey, Patch, State};
use crate::metadata;
use crate::resources::{DEFINITIONS, NAMESPACES};
use crate::status::Status;
use crate::write_scope::WriteScope;

mod defaults;
#[cfg(feature = "crd")]
mod definitions;
mod deletion;
mod dependents;
mod disruption;
mod fields;
mod kinds;
#[cfg(not(feature = "crd"))]
mod no_definitions;
#[cfg(not(feature = "crd"))]
mod no_rule_results;
#[cfg(not(feature = "crd"))]
mod no_schemas;
mod request;
#[cfg(feature = "crd")]
mod rule_results;
mod rules;
mod scale;
mod scale_fields;
#[cfg(feature = "crd")]
mod schemas;
mod services;
mod typed;
mod unknown;
mod validation;
mod without_effect;

#[cfg(not(feature = "crd"))]
use no_definitions as definitions;
#[cfg(not(feature = "crd"))]
use no_rule_results as rule_results;
#[cfg(not(feature = "crd"))]
use no_schemas as schemas;

pub(crate) use deletion::Deletion;
pub(crate) use dependents::Dependents;
pub(crate) use request::{FieldValidation, Modification, RequestProperties, Warnings, WriteOutcome, WriteTarget};
pub(crate) use rule_results::RuleResults;
pub(crate) use scale::scale_of;

use kinds::{holds_contents, is_created_by_updates, is_definition};

/// Maximum length of the prefix of a generated name in bytes.
const MAX_GENERATED_PREFIX_BYTES: usize = 58;

impl State {
    /// Creates an object.
    pub(crate) fn create(&mut self, target: &WriteTarget, object: Value) -> Result<Arc<Value>, Status> {
        self.create_as(target, object, false)
    }

    /// Creates an object. An applied object already has its managers.
    fn create_as(&mut self, target: &WriteTarget, mut object: Value, is_applied: bool) -> Result<Arc<Value>, Status> {
        validation::complete_identity(&mut object, target)?;
        if is_applied {
            fields::prepare_applied(target, &mut object);
        } else {
            prepare(target, &mut object)?;
        }
        // A dry run ignores the version.
        // The error has no reason, as on a real server: the registry's generic error becomes a 500.
        if !metadata::text(&object, "resourceVersion").is_empty() && !target.is_dry_run {
            return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        // The name is not generated yet, so errors about the definition and the namespace contain the name in the
        // request.
        let sent_name = ["name", "generateName"].map(|field| metadata::text(&object, field));
        let sent_name = sent_name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        self.check_definition(target, sent_name)?;
        self.check_namespace(target, sent_name)?;
        let name = self.name_of(&object, target)?;
        metadata::set(&mut object, "name", Some(name.as_str().into()));
        // A client cannot create an object that is already being deleted.
        metadata::set(&mut object, "deletionTimestamp", None);
        metadata::set(&mut object, "deletionGracePeriodSeconds", None);
        // Field tracking needs the given status, although the creation drops the status below.
        let status = object.get("status").filter(|_| target.resource.is_custom).cloned();
        if target.write_scope == WriteScope::Main && target.resource.has_status(target.version()) {
            set_status(&mut object, None);
        }
        if is_definition(target.group_resource()) {
            definitions::set_defaults(&mut object);
            let status = definitions::new_status(&object);
            set_status(&mut object, Some(status));
        }
        let mut causes = rules::violations_of_new(target, &object);
        causes.extend(definitions::violations(target, &name, &object));
        causes.extend(fields::violations(target, &object, None));
        validation::reject(target, &name, &causes)?;
        rules::warn_of_finalizers(target, None, &object);
        without_effect::warn(target, &object);
        // Validation comes first: an invalid object whose name exists reports its own errors, as on the real server.
        let key = ObjectKey::new(&target.namespace, &name);
        if let Some(existing) = self.latest(target.storage_resource(), &key) {
            let mut status = Status::already_exists(target.group_resource(), &name);
            if existing.object.as_deref().is_some_and(metadata::is_terminating) {
                status.message = format!("object is being deleted: {}", status.message);
            }
            return Err(status);
        }
        defaults::on_write(target.group_resource(), &name, &mut object);
        if let Some(field_management) = target.field_management(&self.clock.timestamp()).filter(|_| !is_applied) {
            field_management.trim(&mut object);
            field_management.create(status, &mut object);
        }
        if is_definition(target.group_resource()) && object.pointer("/status/conditions").is_none() {
            object["status"]["conditions"] = Value::Null;
        }
        // The UID is generated only after all checks, so that rejected writes do not shift the sequence of UIDs.
        let uid = self.random.uid();
        metadata::set(&mut object, "uid", Some(uid.into()));
        metadata::set(&mut object, "creationTimestamp", Some(self.clock.timestamp().into()));
        if target.resource.counts_generation {
            metadata::set(&mut object, "generation", Some(1.into()));
        }
        defaults::on_create(target.group_resource(), &self.clock.timestamp(), &mut object);
        fields::complete_status(target, &mut object);
        self.assign_addresses(target.group_resource(), &mut object, None)?;
        let object = target.resource.to_store(object, target.version());
        // A dry run passes all checks and ends before the history changes.
        if target.is_dry_run {
            return Ok(Arc::new(object));
        }
        let change = self.append(target.storage_resource(), key, Some(object), None);
        let mut stored = change.object.clone().unwrap_or_default();
        if is_definition(target.group_resource()) {
            let established = self.mark_established(target, &change.name, &stored)?;
            // An API client receives the object as created. The establishment follows as a separate change.
            if target.write_scope == WriteScope::Whole {
                stored = established;
            }
        }
        Ok(stored)
    }

    /// Replaces an object, or creates it if updates of its kind create objects. Returns the object, and whether it was
    /// created.
    pub(crate) fn update_or_create(
        &mut self,
        target: &WriteTarget,
        mut object: Value,
    ) -> Result<(Arc<Value>, bool), Status> {
        let is_missing = self.latest(target.storage_resource(), &target.key()).is_none();
        if !is_missing || target.write_scope != WriteScope::Main || !is_created_by_updates(target.group_resource()) {
            // An existing object, a subresource or another kind takes the ordinary path.
            return Ok((self.update(target, &Modification::Replace(object))?.into_object(), false));
        }
        validation::complete_identity(&mut object, target)?;
        fields::check_types(target, &object, false)?;
        metadata::set(&mut object, "name", Some(target.name.as_str().into()));
        if !metadata::text(&object, "uid").is_empty() {
            validation::check_uid(target, &Value::Null, &object)?;
        }
        Ok((self.create_at_any_version(target, object, false)?, true))
    }

    /// Creates an object and ignores its `resourceVersion`. A dry run returns that version.
    fn create_at_any_version(
        &mut self,
        target: &WriteTarget,
        mut object: Value,
        is_applied: bool,
    ) -> Result<Arc<Value>, Status> {
        // Creation by an update ignores the given version. A dry run still returns this version.
        let version = metadata::text(&object, "resourceVersion").to_owned();
        metadata::set(&mut object, "resourceVersion", None);
        let mut created = self.create_as(target, object, is_applied)?;
        if target.is_dry_run && !version.is_empty() {
            // The created object is not stored in a dry run, so a change of the copy is safe.
            metadata::set(Arc::make_mut(&mut created), "resourceVersion", Some(version.into()));
        }
        Ok(created)
    }

    /// Applies an object, or creates it. Returns the object, and whether it was created.
    pub(crate) fn apply(&mut self, target: &WriteTarget, applied: &Value) -> Result<(Arc<Value>, bool), Status> {
        let resource = target.group_resource();
        let existing = self.latest(target.storage_resource(), &target.key()).and_then(|change| change.object.clone());
        if existing.is_none() && target.write_scope == WriteScope::Status {
            return Err(Status::not_found(resource, &target.name));
        }
        // The stored version may differ from the version of the request.
        let existing = existing.map(|stored| target.resource.view(&stored, target.version()));
        let now = &self.clock.timestamp();
        let Some(field_management) = target.field_management(now) else {
            return Err(Status::bad_request("an apply requires a field manager; set fieldManager"));
        };
        let object = field_management.apply(existing.as_deref(), applied)?;
        unknown::check_applied(target)?;
        fields::check_applied(target, applied, &object)?;
        if existing.is_some() {
            return Ok((self.update(target, &Modification::Applied(object))?.into_object(), false));
        }
        let uid = metadata::text(&object, "uid");
        if !uid.is_empty() {
            let detail =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(resource, &target.name, &detail));
        }
        if metadata::text(&object, "name").is_empty() {
            let url = &target.name;
            return Err(Status::bad_request(format_args!(
                "the name of the object ({url} based on URL) was undeterminable: name must be provided"
            )));
        }
        Ok((self.create_at_any_version(target, object, true)?, true))
    }

    /// Changes an object.
    pub(crate) fn update(&mut self, target: &WriteTarget, update: &Modification) -> Result<WriteOutcome, Status> {
        let resource = target.group_resource().clone();
        let key = target.key();
        // An object with a wrong kind, namespace or name is rejected before the lookup of the existing object.
        let sent_object = prepare_sent_object(target, update)?;
        let Some(stored) = self.latest(target.storage_resource(), &key).and_then(|change| change.object.clone()) else {
            return Err(Status::not_found(&resource, &target.name));
        };
        let existing = target.resource.view(&stored, target.version());
        let (mut desired, managed) = match (sent_object, update) {
            (None, Modification::Patch(patch)) => apply_patch(target, patch, &existing)?,
            (sent_object, _) => sent_object.unwrap_or_default(),
        };
        // The preconditions are checked against the state that this write replaces. The lock of the store makes the
        // check and the write one step.
        check_preconditions(target, update, &existing, &desired)?;
        let mut causes = validation::uid_violations(target, &existing, &desired);
        let tracked_object = (target.resource.is_custom && target.request.manager.is_some()).then(|| desired.clone());
        let mut object = match target.write_scope {
            // A write of the status keeps all other fields.
            WriteScope::Status => {
                let mut object = Value::clone(&existing);
                set_status(&mut object, desired.get("status").cloned());
                object
            }
            // If the status is a subresource, a write of the object keeps the status.
            WriteScope::Main if target.resource.has_status(target.version()) => {
                set_status(&mut desired, existing.get("status").cloned());
                desired
            }
            WriteScope::Main | WriteScope::Whole => desired,
        };
        // This step precedes the comparison of managed fields, so that an omitted zero is not a change.
        fields::complete_status(target, &mut object);
        // An update cannot change these fields. Differences were rejected above, or are ignored as on the real server.
        for field in ["name", "namespace", "uid", "creationTimestamp", "generation", "resourceVersion"] {
            metadata::copy(&mut object, &existing, field);
        }
        if is_definition(&resource) && target.write_scope == WriteScope::Main {
            definitions::set_defaults(&mut object);
            definitions::update_status(&mut object);
        }
        causes.extend(validation::finalizer_violations(target, &existing, &object));
        causes.extend(validation::deletion_violations(target, &existing, &object));
        causes.extend(rules::violations_of_prefix(&object));
        causes.extend(definitions::violations(target, &target.name, &object));
        let metadata = rules::violations_of_changed(target, &object);
        if target.resource.is_custom {
            // The real server validates the metadata of custom resources twice.
            causes.extend(metadata.clone());
        }
        causes.extend(metadata);
        causes.extend(fields::violations(target, &object, Some(&existing)));
        validation::reject(target, &target.name, &causes)?;
        rules::warn_of_finalizers(target, Some(&existing), &object);
        defaults::on_write(&resource, &target.name, &mut object);
        if let Modification::Applied(_) = update {
            metadata::set(&mut object, "managedFields", managed);
        } else if let Some(field_management) = target.field_management(&self.clock.timestamp()) {
            // Field management compares the object as sent, with the metadata after normalization.
            let tracked_object = tracked_object.map(|mut tracked_object| {
                tracked_object["metadata"] = object["metadata"].clone();
                tracked_object
            });
            field_management.update(&existing, managed.as_ref(), tracked_object.as_ref(), &mut object);
        }
        // An update that omits these fields keeps them, but they lose their manager.
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata::copy(&mut object, &existing, field);
        }
        self.assign_addresses(&resource, &mut object, Some(&existing))?;
        if fields::counts_generation(target, &existing, &object) {
            metadata::set(&mut object, "generation", Some((metadata::generation(&existing) + 1).into()));
        }
        let object = target.resource.to_store(object, target.version());
        // As on the real server, an update without a difference keeps the version and causes no event.
        if object == *stored {
            return Ok(WriteOutcome::Stored(stored));
        }
        if target.is_dry_run {
            return Ok(WriteOutcome::Stored(Arc::new(object)));
        }
        // The update removed the last finalizer, which completes the pending deletion.
        if metadata::is_terminating(&existing) && !metadata::has_finalizers(&object) && !holds_contents(&resource) {
            self.remove(target.storage_resource(), &key, stored);
            return Ok(WriteOutcome::Deleted(Arc::new(object)));
        }
        let change = self.append(target.storage_resource(), key, Some(object), Some(stored));
        // Without finalizers, the object still remains until its contents are deleted.
        if metadata::is_terminating(&existing) && holds_contents(&resource) {
            // The update may have removed the last finalizer of a namespace without contents.
            self.remove_empty_containers();
        }
        Ok(WriteOutcome::Stored(change.object.clone().unwrap_or_default()))
    }

    /// Rejects new objects of a definition that is being deleted.
    fn check_definition(&self, target: &WriteTarget, name: &str) -> Result<(), Status> {
        let resource = target.group_resource();
        if target.resource.definition.is_none() {
            return Ok(());
        }
        let definition = self.latest(&DEFINITIONS, &ObjectKey::new("", &resource.to_string()));
        if definition.and_then(|change| change.object.as_deref()).is_some_and(metadata::is_terminating) {
            let detail = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(resource, name, detail));
        }
        Ok(())
    }

    fn check_namespace(&self, target: &WriteTarget, name: &str) -> Result<(), Status> {
        if !target.resource.namespaced {
            return Ok(());
        }
        let Some(namespace) = self.latest(&NAMESPACES, &ObjectKey::new("", &target.namespace)) else {
            return Err(Status::not_found(&NAMESPACES, &target.namespace));
        };
        if namespace.object.as_deref().is_some_and(metadata::is_terminating) {
            let detail = format!(
                "unable to create new content in namespace {} because it is being terminated",
                target.namespace
            );
            return Err({
                let mut status = Status::forbidden(target.group_resource(), name, &detail);
                status.details["causes"] = serde_json::json!([{
                    "reason": "NamespaceTerminating", "field": "metadata.namespace",
                    "message": format!("namespace {} is being terminated", target.namespace),
                }]);
                status
            });
        }
        Ok(())
    }

    fn name_of(&mut self, object: &Value, target: &WriteTarget) -> Result<String, Status> {
        let name = metadata::text(object, "name");
        if !name.is_empty() {
            return Ok(name.to_owned());
        }
        match metadata::text(object, "generateName") {
            "" => Err(Status::invalid(
                target.group_resource().group(),
                &target.resource.kind,
                "",
                &[("metadata.name", "Required value: name or generateName is required".to_owned())],
            )),
            // A generated name is a DNS label, even if the kind allows other names.
            prefix => {
                // The prefix is truncated at a character boundary, so that the random suffix still fits.
                let kept_prefix =
                    (0..=MAX_GENERATED_PREFIX_BYTES).rev().find_map(|end| prefix.get(..end.min(prefix.len())));
                Ok(format!("{}{}", kept_prefix.unwrap_or_default(), self.random.name_suffix()))
            }
        }
    }

    /// Serves the resource of a definition and records this in the status, as a second change.
    fn mark_established(
        &mut self,
        target: &WriteTarget,
        name: &str,
        definition: &Arc<Value>,
    ) -> Result<Arc<Value>, Status> {
        let mut object = Value::clone(definition);
        // The second change uses the status part, so that the specification cannot change.
        set_status(&mut object, Some(definitions::established_status(definition, &self.clock.timestamp())));
        let target = WriteTarget { name: name.to_owned(), write_scope: WriteScope::Status, ..target.clone() };
        self.update(&target, &Modification::Replace(object)).map(WriteOutcome::into_object)
    }
}

/// Returns the object of the update, if the update contains one, and its managers.
fn prepare_sent_object(target: &WriteTarget, update: &Modification) -> Result<Option<(Value, Option<Value>)>, Status> {
    let (Modification::Replace(object) | Modification::Applied(object)) = update else { return Ok(None) };
    let mut object = object.clone();
    validation::complete_identity(&mut object, target)?;
    // An empty list of managers is dropped from the metadata, but resets the existing managers.
    let managed = object.pointer(metadata::MANAGED_FIELDS).cloned();
    if let Modification::Applied(_) = update {
        fields::prepare_applied(target, &mut object);
    } else {
        prepare(target, &mut object)?;
    }
    Ok(Some((object, managed)))
}

/// Prepares the object of a request: drops unknown fields or warns of them, and sets defaults.
fn prepare(target: &WriteTarget, object: &mut Value) -> Result<(), Status> {
    fields::check_types(target, object, false)?;
    let unknown = typed::normalize_metadata(object, target)?;
    let unknown = fields::prepare(target, object, unknown);
    unknown::check(target, &unknown)
}

/// Applies a patch. Returns the object, and its managers.
fn apply_patch(target: &WriteTarget, patch: &Patch, existing: &Value) -> Result<(Value, Option<Value>), Status> {
    let mut patched = patch.apply(existing)?;
    fields::check_types(target, &patched, true)?;
    validation::complete_identity(&mut patched, target)?;
    let managed = patched.pointer(metadata::MANAGED_FIELDS).cloned();
    let unknown = typed::normalize_metadata(&mut patched, target)?;
    let unpruned = patched.clone();
    let unknown = fields::prepare(target, &mut patched, unknown);
    unknown::check_patched(target, &unpruned, unknown)?;
    Ok((patched, managed))
}

/// Checks the version and the UID in the update against the existing object.
fn check_preconditions(
    target: &WriteTarget,
    update: &Modification,
    existing: &Value,
    desired: &Value,
) -> Result<(), Status> {
    if !matches!(update, Modification::Applied(_)) {
        validation::check_version_present(target, desired)?;
    }
    if let Modification::Replace(_) = update {
        validation::check_uid(target, existing, desired)?;
    }
    validation::check_version(target, existing, desired)
}

fn set_status(object: &mut Value, status: Option<Value>) {
    if let Value::Object(fields) = object {
        match status {
            Some(status) => fields.insert("status".to_owned(), status),
            None => fields.remove("status"),
        };
    }
}
