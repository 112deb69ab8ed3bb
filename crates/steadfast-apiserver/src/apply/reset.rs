//! Fields that a write cannot change: the status in writes of the object, and the other fields in writes of the status.

use super::field_set::FieldSet;
use crate::resources::ServedResource;
use crate::write_scope::Part;

/// Returns the fields that a write to this part of an object keeps unchanged.
pub(super) fn fields(resource: &ServedResource, version: &str, part: Part) -> FieldSet {
    let name = (resource.name.group(), resource.name.resource());
    match part {
        Part::Main if name == ("certificates.k8s.io", "certificatesigningrequests") => {
            FieldSet::of_fields(&[&["spec"], &["status"]])
        }
        Part::Main if resource.has_status(version) => FieldSet::of_fields(&[&["status"]]),
        Part::Main | Part::Whole => FieldSet::default(),
        Part::Status => match name {
            ("", "pods") => {
                FieldSet::of_fields(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
            }
            ("apps", "deployments") => FieldSet::of_fields(&[&["spec"], &["metadata", "labels"]]),
            ("certificates.k8s.io", _) => FieldSet::of_fields(&[&["spec"], &["status", "conditions"]]),
            (
                "admissionregistration.k8s.io"
                | "apiregistration.k8s.io"
                | "flowcontrol.apiserver.k8s.io"
                | "storage.k8s.io",
                _,
            ) => FieldSet::of_fields(&[&["spec"], &["metadata"]]),
            _ if resource.custom => FieldSet::of_fields(&[&["spec"], &["metadata"]]),
            _ => FieldSet::of_fields(&[&["spec"]]),
        },
    }
}
