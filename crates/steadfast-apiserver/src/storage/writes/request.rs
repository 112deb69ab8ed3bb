//! What a write asks for: where, of what, by whom, how strictly; and what came of it.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::super::{ObjectKey, Patch};
use super::verdicts::Verdicts;
use crate::resources::{Definition, GroupResource, ServedResource};

/// What a write is aimed at.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    pub(crate) resource: Arc<ServedResource>,
    /// Empty for what is cluster-scoped.
    pub(crate) namespace: String,
    /// Empty where the object names itself, or is to be named by the server.
    pub(crate) name: String,
    pub(crate) part: Part,
    /// Everything is checked and answered, nothing is kept.
    pub(crate) dry_run: bool,
    /// The version and the strictness of the request.
    pub(crate) asked: Asked,
}

impl WriteTarget {
    pub(crate) fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }

    pub(super) fn group_resource(&self) -> &GroupResource {
        &self.resource.name
    }

    /// Where the object is.
    pub(super) fn store(&self) -> &GroupResource {
        self.resource.store()
    }

    /// The version that the write is in.
    pub(crate) fn version(&self) -> &str {
        if self.asked.version.is_empty() { self.resource.storage_version() } else { &self.asked.version }
    }

    /// The definition of a custom resource.
    pub(super) fn definition(&self) -> Option<&Definition> {
        self.resource.definition.as_deref()
    }
}

/// Which part of an object a write may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it: writes made past the API.
    Whole,
    /// All but the status, where that is a subresource.
    Main,
    /// Only the status.
    Status,
}

/// How a write was requested; by default it is one past the API, which is not checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// The version of the path; empty for that in which objects are stored.
    pub(crate) version: String,
    pub(crate) strictness: Strictness,
    /// What is wrong with the text that was sent and not seen in what was read: fields that are there twice.
    pub(crate) flaws: Vec<String>,
    /// What whoever asked is to be warned of.
    pub(crate) warnings: Warnings,
    /// Verdict of the rules in CEL about the write.
    pub(crate) verdicts: Verdicts,
    /// Who is to manage what is written; `None` for writes made past the API, which nobody manages.
    pub(crate) manager: Option<FieldManager>,
}

/// Warnings, as they come up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    pub(crate) fn add(&self, warnings: impl IntoIterator<Item = String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What becomes of fields that nobody knows, or that are there twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// They are dropped.
    #[default]
    Ignore,
    /// They are dropped, and whoever wrote them is warned.
    Warn,
    /// They are refused.
    Strict,
}

/// Who writes.
#[derive(Clone, Debug)]
pub(crate) struct FieldManager {
    pub(crate) name: String,
    /// The subresource that is written through, where the part of the object does not tell.
    pub(crate) subresource: &'static str,
    /// Takes fields from others instead of being refused.
    pub(crate) force: bool,
}

/// How an object is to be changed.
#[derive(Clone, Debug)]
pub(crate) enum Update {
    /// By another one.
    Replace(Value),
    /// By a patch of what is there.
    Patch(Patch),
    /// By what an apply has made of it, its managers included.
    Applied(Value),
}

/// What came of a write.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The object as it is now.
    Stored(Arc<Value>),
    /// The object is gone; this is how it was.
    Deleted(Arc<Value>),
}

impl Outcome {
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
