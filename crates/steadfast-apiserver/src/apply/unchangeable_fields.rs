//! Fields that a write cannot change: the status in writes of the object, and the other fields in writes of the status.

use super::field_set::FieldSet;
use crate::resources::ServedResource;
use crate::write_scope::WriteScope;

/// Returns the fields that a write to this part of an object keeps unchanged.
pub(super) fn unchangeable_fields(resource: &ServedResource, version: &str, write_scope: WriteScope) -> FieldSet {
    let name = (resource.name.group(), resource.name.resource());
    match write_scope {
        WriteScope::Main if name == ("certificates.k8s.io", "certificatesigningrequests") => {
            FieldSet::from_names(&[&["spec"], &["status"]])
        }
        WriteScope::Main if resource.has_status(version) => FieldSet::from_names(&[&["status"]]),
        WriteScope::Main | WriteScope::Whole => FieldSet::default(),
        WriteScope::Status => match name {
            ("", "pods") => {
                FieldSet::from_names(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("apps", "deployments") => FieldSet::from_names(&[&["spec"], &["metadata", "labels"]]),
            ("certificates.k8s.io", _) => FieldSet::from_names(&[&["spec"], &["status", "conditions"]]),
            (
                "admissionregistration.k8s.io"
                | "apiregistration.k8s.io"
                | "flowcontrol.apiserver.k8s.io"
                | "storage.k8s.io",
                _,
            ) => FieldSet::from_names(&[&["spec"], &["metadata"]]),
            _ if resource.is_custom => FieldSet::from_names(&[&["spec"], &["metadata"]]),
            _ => FieldSet::from_names(&[&["spec"]]),
        },
    }
}
