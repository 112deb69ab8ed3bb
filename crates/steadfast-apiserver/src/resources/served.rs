//! Served resources.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

#[cfg(feature = "crd")]
use super::PrinterColumn;
use super::{Definition, GroupResource, ResourceDeclaration, ScalePaths, autoscaling, events};
use crate::merging::TypeRef;

/// A served resource with all its versions.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent traits of a resource")]
pub(crate) struct ServedResource {
    pub(crate) name: GroupResource,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<String>,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) status_subresource: bool,
    pub(crate) counts_generation: bool,
    /// True for custom resources, which have no strategic merge patch and whose lists contain `items` before
    /// `metadata`.
    pub(crate) is_custom: bool,
    pub(crate) selectable_fields: Vec<String>,
    /// Definition of the versions, if the resource has one.
    pub(crate) definition: Option<Arc<Definition>>,
}

impl ServedResource {
    pub(crate) fn api_version(&self, version: &str) -> String {
        let group = self.name.group();
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
    }

    /// Returns the version in which objects are stored.
    pub(crate) fn storage_version(&self) -> &str {
        match &self.definition {
            Some(definition) => definition.storage(),
            // The first version of a built-in kind is the stored one.
            None => self.versions.first().map_or("", String::as_str),
        }
    }

    /// Returns whether `status` is a subresource in a version.
    pub(crate) fn has_status(&self, version: &str) -> bool {
        match &self.definition {
            Some(definition) => definition.has_status(version),
            None => self.status_subresource,
        }
    }

    /// Returns the deprecation warning of a version.
    pub(crate) fn deprecation(&self, version: &str) -> Option<String> {
        self.definition.as_ref()?.deprecation(version)
    }

    /// Returns the columns that a definition declares for a version.
    #[cfg(feature = "crd")]
    pub(crate) fn columns(&self, version: &str) -> Option<&[PrinterColumn]> {
        self.definition.as_ref()?.version(version)?.columns.as_deref()
    }

    /// Returns the paths of `scale`, if it is a subresource in a version.
    pub(crate) fn scale(&self, version: &str) -> Option<ScalePaths> {
        if let Some(definition) = &self.definition {
            return definition.scale(version);
        }
        let scales = match self.name.group() {
            "" => self.name.resource() == "replicationcontrollers",
            "apps" => matches!(self.name.resource(), "deployments" | "replicasets" | "statefulsets"),
            _ => false,
        };
        (scales && !self.is_custom).then(|| ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            selector: ".spec.selector".to_owned(),
        })
    }

    /// Returns the collection of the objects, which two groups may share.
    pub(crate) fn storage_resource(&self) -> &GroupResource {
        let is_new_event = !self.is_custom && self.name.group() == "events.k8s.io" && self.name.resource() == "events";
        if is_new_event { &events::RESOURCE } else { &self.name }
    }

    /// Returns whether the built-in kind has two versions with different fields.
    fn is_autoscaler(&self) -> bool {
        !self.is_custom && self.name.group() == "autoscaling" && self.name.resource() == "horizontalpodautoscalers"
    }

    /// Returns whether objects are stored in the form of another group with other field names.
    pub(crate) fn is_stored_as_another(&self) -> bool {
        *self.storage_resource() != self.name
    }

    /// Returns the path of a selectable field in a stored object.
    pub(crate) fn stored_path(&self, path: &str) -> String {
        if self.is_stored_as_another() { events::core_path(path) } else { path.to_owned() }
    }

    /// Returns whether a version of a built-in kind has other fields than the stored form.
    pub(crate) fn is_converted(&self, version: &str) -> bool {
        self.is_stored_as_another() || self.is_autoscaler() && version != self.storage_version()
    }

    /// Converts an object of a version to its stored form.
    pub(crate) fn to_store(&self, mut object: Value, version: &str) -> Value {
        if self.is_stored_as_another() {
            return events::to_core_v1(&object);
        }
        if self.is_converted(version) {
            return autoscaling::to_v2(object);
        }
        if let Some(definition) = &self.definition {
            definition.to_store(&mut object);
        }
        object
    }

    /// Converts a stored object to a version. Shares the object if no conversion is needed.
    pub(crate) fn view(&self, stored: &Arc<Value>, version: &str) -> Arc<Value> {
        if self.is_stored_as_another() {
            return Arc::new(events::to_events_v1(stored));
        }
        if self.is_converted(version) {
            return Arc::new(autoscaling::to_v1(stored));
        }
        let Some(definition) = &self.definition else { return Arc::clone(stored) };
        let mut object = Value::clone(stored);
        definition.read(&mut object, version);
        // An unchanged view shares the stored object, so the cached encoding can be reused.
        if object == **stored { Arc::clone(stored) } else { Arc::new(object) }
    }

    /// Returns the form of a built-in object that the columns of its table read.
    pub(crate) fn table_form<'a>(&self, object: &'a Value, version: &str) -> Cow<'a, Value> {
        // Both versions of an autoscaler have the same table.
        let is_older = self.is_autoscaler() && self.is_converted(version);
        if is_older { Cow::Owned(autoscaling::to_v2(object.clone())) } else { Cow::Borrowed(object) }
    }

    /// Returns the type for comparing and merging objects of a version.
    pub(crate) fn merge_type(&self, version: &str) -> TypeRef {
        match &self.definition {
            Some(definition) => definition.merge_type(version),
            None if self.is_custom => TypeRef::Deduced,
            None => TypeRef::for_builtin(&self.api_version(version), &self.kind),
        }
    }

    pub(crate) fn serves(&self, version: &str) -> bool {
        self.versions.iter().any(|served| served == version)
    }
}

impl From<&ResourceDeclaration> for ServedResource {
    fn from(declared: &ResourceDeclaration) -> Self {
        Self {
            name: GroupResource::new(&declared.group, &declared.plural),
            versions: vec![declared.version.clone()],
            kind: declared.kind.clone(),
            list_kind: format!("{}List", declared.kind),
            singular: declared.singular.clone(),
            short_names: declared.short_names.clone(),
            categories: Vec::new(),
            namespaced: declared.namespaced,
            status_subresource: declared.status_subresource,
            counts_generation: true,
            is_custom: true,
            selectable_fields: Vec::new(),
            definition: None,
        }
    }
}
