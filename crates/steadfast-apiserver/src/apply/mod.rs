//! Server-side apply: management of fields, and the objects that result from applying.
//!
//! Objects are compared and merged by their [`TypeRef`]s. The module is independent of the history. A write passes the
//! live and the new object, and receives the new `metadata.managedFields`.

mod compare;
mod conflict;
mod field_set;
mod fields;
mod items;
mod managed;
mod merge;
mod path;
mod scale;
mod unchangeable_fields;
mod update;
mod validate;
mod yaml;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::merging::{self, TypeRef};
use crate::metadata::{self, MANAGED_FIELDS};
use crate::resources::ServedResource;
use crate::status::Status;
use crate::write_scope::{FieldManager, WriteScope};
use compare::Difference;
use field_set::FieldSet;
use managed::{Manager, Managers, Operation};
use unchangeable_fields::unchangeable_fields;
use update::{FieldUpdate, Unconvertible};

pub(crate) use yaml::{duplicate_field, parse};

/// Field manager of `kubectl apply --server-side`.
const KUBECTL_MANAGER: &str = "kubectl";
/// Annotation in which `kubectl apply` stores the applied object.
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Field management of one write to one object.
pub(crate) struct FieldManagement<'a> {
    resource: &'a ServedResource,
    write_scope: WriteScope,
    /// API version of the request, without the group.
    version: &'a str,
    manager: &'a FieldManager,
    /// Current time as a timestamp.
    now: &'a str,
}

impl<'a> FieldManagement<'a> {
    /// Creates the field management of a write.
    pub(crate) fn new(
        resource: &'a ServedResource,
        write_scope: WriteScope,
        version: &'a str,
        manager: &'a FieldManager,
        now: &'a str,
    ) -> Self {
        Self { resource, write_scope, version, manager, now }
    }

    /// Sets the managers of a new object.
    ///
    /// `status` is the `status` field of the sent object, which a creation drops from the stored object.
    pub(crate) fn create(&self, status: Option<Value>, object: &mut Value) {
        let sent_managers = object.pointer(MANAGED_FIELDS);
        let mut managers = Managers::decode(sent_managers).unwrap_or_default();
        let mut sent = object.clone();
        if let (Some(fields), Some(status)) = (sent.as_object_mut(), status) {
            fields.insert("status".to_owned(), status);
        }
        self.track_changes(&json!({}), &sent, &mut managers);
        metadata::set(object, "managedFields", managers.encode());
    }

    /// Sets the managers of a changed object.
    ///
    /// `sent_managers` are the managers in the request. `sent` is the object as the request contains it. `object` has
    /// the live values of fields that the write cannot change. If only times would change, the old managers remain.
    pub(crate) fn update(&self, live: &Value, sent_managers: Option<&Value>, sent: Option<&Value>, object: &mut Value) {
        // An object that was written directly may contain fields that a real server does not store. These fields stay
        // until an update changes the object.
        if *object != *live {
            self.trim(object);
        }
        let before = live.pointer(MANAGED_FIELDS);
        let old = self.managers(before);
        let mut managers = if self.write_scope == WriteScope::Status {
            old
        } else if Managers::are_reset_by(sent_managers, self.resource.is_custom) {
            Managers::default()
        } else {
            Some(self.managers(sent_managers)).filter(|managers| !managers.0.is_empty()).unwrap_or(old)
        };
        // A write to the `scale` subresource owns only `replicas`.
        if self.manager.subresource == "scale" {
            self.rescale(live, object, &mut managers);
        } else if !managers.0.is_empty() {
            self.track_changes(live, sent.unwrap_or(object), &mut managers);
        }
        let managed = managers.encode();
        // An update that only changes times must not create a new version.
        metadata::set(object, "managedFields", before.cloned());
        let only_times_differ = || match (before, managed.as_ref()) {
            (Some(before), Some(after)) => without_times(before) == without_times(after),
            (before, after) => before.is_none() && after.is_none(),
        };
        if object != live || !only_times_differ() {
            metadata::set(object, "managedFields", managed);
        }
    }

    /// Applies an object. Returns the merged object with its managers.
    pub(crate) fn apply(&self, live: Option<&Value>, applied: &Value) -> Result<Value, Status> {
        self.check_applied(applied)?;
        let type_ref = self.type_ref();
        if let Some(detail) = validate::violations(&type_ref, applied) {
            let object_name = format!("{}; {}", metadata::namespaced_name(applied), metadata::kind_of(applied));
            return Err(Status::new(
                500,
                "",
                format_args!("failed to create typed patch object ({object_name}): {detail}"),
            ));
        }
        let mut managers = self.managers(live.and_then(|live| live.pointer(MANAGED_FIELDS)));
        let empty_object = json!({});
        let mut plain_live = self.comparable(live.unwrap_or(&empty_object));
        if live.is_some() {
            metadata::set(&mut plain_live, "managedFields", None);
        }
        let ignored = unchangeable_fields(self.resource, self.version, self.write_scope);
        let api_version = self.api_version();
        let field_update = |operation| FieldUpdate {
            type_ref: &type_ref,
            ignored: &ignored,
            ignored_in_other_versions: &ignored,
            manager: Manager::new(&self.manager.name, operation, &api_version, self.subresource()),
            api_version: &api_version,
            now: self.now,
        };
        // Existing fields belong to `before-first-apply`, so that the first apply reports conflicts with these fields.
        if managers.0.is_empty() && live.is_some() {
            let manager = Manager::before_first_apply(&api_version, self.subresource());
            // The object has no managers yet, in any version.
            let field_update = FieldUpdate { manager, ..field_update(Operation::Update) };
            let _ = field_update.update(&self.comparable(&empty_object), &plain_live, &mut managers, &|_| None);
        }
        let apply = |managers: &mut Managers, force| {
            field_update(Operation::Apply).apply(&plain_live, applied, managers, force)
        };
        let original_managers = managers.clone();
        let mut object = match apply(&mut managers, self.manager.force) {
            Ok(object) => object,
            Err(conflicts) => {
                // `kubectl` may migrate from client-side apply: fields of the last applied configuration do not
                // conflict.
                let conflicts = self.without_kubectl_conflicts(&type_ref, &plain_live, conflicts);
                if !conflicts.is_empty() {
                    return Err(conflict::status(&conflicts));
                }
                managers = original_managers;
                apply(&mut managers, true).map_err(|conflicts| conflict::status(&conflicts))?
            }
        };
        self.trim(&mut object);
        // Client-side apply still reads the annotation, so the annotation follows each apply.
        if self.manager.name == KUBECTL_MANAGER && !metadata::annotation(&object, LAST_APPLIED_ANNOTATION).is_empty() {
            let mut sent = applied.clone();
            if let Some(annotations) = sent.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.remove(LAST_APPLIED_ANNOTATION);
            }
            object["metadata"]["annotations"][LAST_APPLIED_ANNOTATION] = format!("{sent}\n").into();
        }
        metadata::set(&mut object, "managedFields", managers.encode());
        Ok(object)
    }

    /// Removes the conflicts with fields of `kubectl apply`, which `kubectl apply --server-side` may take over. Returns
    /// the remaining conflicts.
    fn without_kubectl_conflicts(
        &self,
        type_ref: &TypeRef,
        live: &Value,
        mut conflicts: update::Conflicts,
    ) -> update::Conflicts {
        let last_applied = serde_json::from_str::<Value>(metadata::annotation(live, LAST_APPLIED_ANNOTATION)).ok();
        let Some(last_applied) = last_applied.filter(|_| self.manager.name == KUBECTL_MANAGER) else {
            return conflicts;
        };
        let difference = Difference::between(type_ref, &last_applied, live);
        let applied_fields = fields::field_set(type_ref, &last_applied)
            .difference(&difference.modified)
            .difference(&difference.added)
            .difference(&difference.removed);
        conflicts.retain(|_, fields| {
            *fields = fields.difference(&applied_fields);
            !fields.is_empty()
        });
        conflicts
    }

    fn track_changes(&self, live: &Value, object: &Value, managers: &mut Managers) {
        let without_managed_fields = |object: &Value| {
            let mut without_managed_fields = self.comparable(object);
            if without_managed_fields.get("metadata").is_some() {
                metadata::set(&mut without_managed_fields, "managedFields", None);
            }
            without_managed_fields
        };
        let (live, object) = (without_managed_fields(live), without_managed_fields(object));
        let type_ref = self.type_ref();
        // Values that do not match their type are not compared: no manager gains or loses a field.
        if self.resource.is_custom && !(validate::fits(&type_ref, &live) && validate::fits(&type_ref, &object)) {
            return;
        }
        let (ignored, no_fields) =
            (unchangeable_fields(self.resource, self.version, self.write_scope), FieldSet::default());
        let field_update = FieldUpdate {
            type_ref: &type_ref,
            ignored: &ignored,
            // A real server ignores these fields for managers of other versions only in writes of the status.
            ignored_in_other_versions: if self.write_scope == WriteScope::Status { &ignored } else { &no_fields },
            manager: Manager::new(&self.manager.name, Operation::Update, &self.api_version(), self.subresource()),
            api_version: &self.api_version(),
            now: self.now,
        };
        let type_of_version = |api_version: &str| {
            let version = api_version.rsplit('/').next().unwrap_or_default();
            self.resource.is_custom.then(|| self.resource.merge_type(version))
        };
        if field_update.update(&live, &object, managers, &type_of_version) != Err(Unconvertible) {
            managers.merge_oldest();
        }
    }

    /// Parses managers. Drops managers of versions that are no longer served.
    fn managers(&self, entries: Option<&Value>) -> Managers {
        let mut managers = Managers::decode(entries).unwrap_or_default();
        // Fields of a version without a definition cannot be compared.
        managers.0.retain(|_, managed| {
            let has_api_version = |version: &str| self.resource.api_version(version) == managed.api_version;
            match &self.resource.definition {
                Some(definition) => definition.version_names().any(has_api_version),
                None => {
                    !self.resource.is_custom || self.resource.versions.iter().any(|version| has_api_version(version))
                }
            }
        });
        managers
    }

    fn api_version(&self) -> String {
        self.resource.api_version(self.version)
    }

    fn type_ref(&self) -> TypeRef {
        self.resource.merge_type(self.version)
    }

    /// Returns the form of an object for comparisons. Objects of built-in kinds take the form of the real server's
    /// structs.
    fn comparable(&self, object: &Value) -> Value {
        if self.resource.is_custom { object.clone() } else { merging::as_struct(&self.type_ref(), object) }
    }

    /// Removes fields that a real server would not store.
    pub(crate) fn trim(&self, object: &mut Value) {
        merging::trim(&self.type_ref(), self.resource.is_custom, object);
    }

    fn subresource(&self) -> &'static str {
        if self.write_scope == WriteScope::Status { "status" } else { self.manager.subresource }
    }

    fn check_applied(&self, applied: &Value) -> Result<(), Status> {
        let text = |key: &str| applied.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("kind") != self.resource.kind || text("apiVersion") != self.api_version() {
            return Err(Status::bad_request(format_args!("invalid object type: {}", metadata::kind_of(applied))));
        }
        if applied.pointer(MANAGED_FIELDS).is_some_and(|fields| !fields.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        Ok(())
    }
}

fn without_times(managed: &Value) -> Vec<Value> {
    let mut entries = managed.as_array().cloned().unwrap_or_default();
    for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    entries
}
