//! Field management in builds without the feature `apply`: objects have no managers, and applied objects are rejected.

use serde_json::Value;

use crate::merging;
use crate::metadata;
use crate::resources::ServedResource;
use crate::status::Status;
use crate::write_scope::{FieldManager, WriteScope};

/// Normalization of one write to one object, without its managers.
pub(crate) struct FieldManagement<'a> {
    resource: &'a ServedResource,
    version: &'a str,
}

impl<'a> FieldManagement<'a> {
    /// Creates the normalization of a write.
    pub(crate) fn new(
        resource: &'a ServedResource,
        _: WriteScope,
        version: &'a str,
        _: &FieldManager,
        _: &str,
    ) -> Self {
        Self { resource, version }
    }

    /// Removes the managers of a new object.
    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(crate) fn create(&self, _: Option<Value>, object: &mut Value) {
        metadata::set(object, "managedFields", None);
    }

    /// Keeps the managers of an object that was written directly.
    pub(crate) fn update(&self, live: &Value, _: Option<&Value>, _: Option<&Value>, object: &mut Value) {
        if *object != *live {
            self.trim(object);
        }
        metadata::copy(object, live, "managedFields");
    }

    /// Rejects an applied object.
    #[expect(clippy::unused_self, reason = "the same interface as with the feature")]
    pub(crate) fn apply(&self, _: Option<&Value>, _: &Value) -> Result<Value, Status> {
        Err(unsupported())
    }

    /// Removes fields that a real server would not store.
    pub(crate) fn trim(&self, object: &mut Value) {
        merging::trim(&self.resource.merge_type(self.version), self.resource.is_custom, object);
    }
}

/// Rejects an applied document.
pub(crate) fn parse(_: &[u8]) -> Result<Value, Status> {
    Err(unsupported())
}

/// Returns no error, since the document is rejected.
pub(crate) fn duplicate_field(_: &[u8]) -> Option<String> {
    None
}

fn unsupported() -> Status {
    Status::without_feature(415, "UnsupportedMediaType", "server-side apply", "apply")
}
