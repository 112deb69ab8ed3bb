//! Scopes of informers.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::selector::{FieldSelector, LabelSelector, SelectorError};

/// Objects of an informer: one resource type, in one namespace or all, narrowed by selectors in the syntax of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// Namespace; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Label selector, such as `app=web,tier in (front, back),!canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<String>,
    /// Field selector, such as `spec.nodeName=node-1,status.phase!=Failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
}

impl Scope {
    /// Creates a scope of all objects of the type.
    pub fn all() -> Self {
        Self::default()
    }

    /// Creates a scope of all objects in `namespace`.
    pub fn namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..Self::default() }
    }

    /// Restricts the scope to objects whose labels match `selector`.
    #[must_use]
    pub fn labels(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// Restricts the scope to objects whose fields match `selector`.
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

/// Ways in which an object can leave a scope without being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitRule {
    /// No change can end a stay: the scope has no selector, or a selector of `metadata.name` only.
    Never,
    /// In practice no change can end a stay, but the contract does not specify whether this selector can end one:
    /// `metadata.namespace`.
    NeverInFact,
    /// A change of the object can end a stay.
    ByChange,
}

/// A scope with parsed selectors.
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

    pub(crate) fn exit_rule(&self) -> ExitRule {
        // Names and namespaces of an object never change, so that a selector on them cannot make the object leave.
        let is_identity = |path: &str| matches!(path, "metadata.name" | "metadata.namespace");
        let mut paths = self.fields.paths();
        if !self.labels.is_empty() || !paths.clone().all(is_identity) {
            return ExitRule::ByChange;
        }
        if paths.any(|path| path == "metadata.namespace") { ExitRule::NeverInFact } else { ExitRule::Never }
    }
}
