//! Parameters and results of writes.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use super::super::{ObjectKey, Patch};
use super::rule_results::RuleResults;
use crate::apply::FieldManagement;
use crate::resources::{Definition, GroupResource, ServedResource};
use crate::write_scope::{FieldManager, WriteScope};

/// Target of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    pub(crate) resource: Arc<ServedResource>,
    /// Namespace; empty for cluster-scoped resources.
    pub(crate) namespace: String,
    /// Name; empty if the object contains its name, or if the server generates it.
    pub(crate) name: String,
    pub(crate) write_scope: WriteScope,
    /// True if the write is checked but not stored.
    pub(crate) is_dry_run: bool,
    /// Version, strictness and other properties of the request.
    pub(crate) request: RequestProperties,
}

impl WriteTarget {
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    pub(super) fn group_resource(&self) -> &GroupResource {
        &self.resource.name
    }

    /// Returns the collection of the object.
    pub(super) fn storage_resource(&self) -> &GroupResource {
        self.resource.storage_resource()
    }

    /// Returns the version of the write.
    pub(crate) fn version(&self) -> &str {
        if self.request.version.is_empty() { self.resource.storage_version() } else { &self.request.version }
    }

    /// Returns the field management of the write at the timestamp `now`. Returns `None` for writes that bypass the API,
    /// which have no manager.
    pub(super) fn field_management<'a>(&'a self, now: &'a str) -> Option<FieldManagement<'a>> {
        let manager = self.request.manager.as_ref()?;
        Some(FieldManagement::new(&self.resource, self.write_scope, self.version(), manager, now))
    }

    /// Returns the definition of a custom resource.
    pub(super) fn definition(&self) -> Option<&Definition> {
        self.resource.definition.as_deref()
    }
}

/// Properties of a request. The default is a write that bypasses the API and is not checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestProperties {
    /// Version in the path; empty for the stored version.
    pub(crate) version: String,
    pub(crate) field_validation: FieldValidation,
    /// Errors about duplicate fields in the body, which the decoded object no longer contains.
    pub(crate) body_violations: Vec<String>,
    /// Warnings for the client.
    pub(crate) warnings: Warnings,
    /// Result of the CEL validation rules for the write.
    pub(crate) rule_results: RuleResults,
    /// Manager of the written fields; `None` for writes that bypass the API, which have no manager.
    pub(crate) manager: Option<FieldManager>,
}

/// Collected warnings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn add(&self, warnings: impl IntoIterator<Item = String>) {
        self.0.lock().extend(warnings);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Treatment of unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// The fields are dropped.
    #[default]
    Ignore,
    /// The fields are dropped with a warning.
    Warn,
    /// The write is rejected.
    Strict,
}

/// Change of an object.
#[derive(Clone, Debug)]
pub(crate) enum Modification {
    /// Replacement.
    Replace(Value),
    /// Patch of the existing object.
    Patch(Patch),
    /// Result of an apply, with its managers.
    Applied(Value),
}

/// Result of a write.
#[derive(Clone, Debug)]
pub(crate) enum WriteOutcome {
    /// The stored object.
    Stored(Arc<Value>),
    /// Last state of the deleted object.
    Deleted(Arc<Value>),
}

impl WriteOutcome {
    pub(crate) fn object(&self) -> &Arc<Value> {
        match self {
            Self::Stored(object) | Self::Deleted(object) => object,
        }
    }

    pub(crate) fn into_object(self) -> Arc<Value> {
        match self {
            Self::Stored(object) | Self::Deleted(object) => object,
        }
    }
}
