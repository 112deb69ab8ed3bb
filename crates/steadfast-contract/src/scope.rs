//! What an informer looks at.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::selector::{FieldSelector, LabelSelector, SelectorError};

/// What an informer looks at: one resource type, in a namespace or all, narrowed by selectors as users write them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The namespace, or all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The text of a label selector: `app=web,tier in (front, back),!canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// The text of a field selector: `spec.nodeName=node-1,status.phase!=Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
}

impl Scope {
    /// Every object of the type.
    pub fn all() -> Self {
        Self::default()
    }

    /// Every object in `namespace`.
    pub fn namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    /// Only objects whose labels match `selector`.
    #[must_use]
    pub fn labels(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// Only objects whose fields match `selector`.
    #[must_use]
    pub fn fields(self, selector: &str) -> Self {
        Self { fields: Some(selector.to_owned()), ..self }
    }

    pub(crate) fn filter(&self) -> Result<Filter, SelectorError> {
        Ok(Filter {
            namespace: self.namespace.clone(),
            labels: LabelSelector::parse(self.labels.as_deref().unwrap_or_default())?,
            fields: FieldSelector::parse(self.fields.as_deref().unwrap_or_default())?,
        })
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.namespace.as_deref().unwrap_or("all namespaces"))?;
        if let Some(labels) = &self.labels {
            write!(f, ", labels {labels}")?;
        }
        if let Some(fields) = &self.fields {
            write!(f, ", fields {fields}")?;
        }
        Ok(())
    }
}

/// What can end a stay in a scope, besides the object's deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Nothing: there is no selector, or one of `metadata.name` only.
    Never,
    /// Nothing, but the contract's wording leaves open whether this selector counts: `metadata.namespace`.
    NeverInFact,
    /// A change of the object.
    ByChange,
}

/// A scope, ready to be asked.
#[derive(Debug)]
pub(crate) struct Filter {
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub(crate) fn matches_namespace(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }

    pub(crate) fn matches(&self, namespace: Option<&str>, name: &str, object: &Value) -> bool {
        self.matches_namespace(namespace) && self.labels.matches(object) && self.fields.matches(namespace, name, object)
    }

    pub(crate) fn leaving(&self) -> Leaving {
        let identity = |path: &str| matches!(path, "metadata.name" | "metadata.namespace");
        let mut paths = self.fields.paths();
        if !self.labels.is_empty() || !paths.clone().all(identity) {
            return Leaving::ByChange;
        }
        if paths.any(|path| path == "metadata.namespace") { Leaving::NeverInFact } else { Leaving::Never }
    }
}
