//! Replaces `observed` without the feature `metrics`: informers are registered nowhere.

#![expect(clippy::unused_self, clippy::needless_pass_by_value, reason = "the signatures are those of `observed`")]

use std::sync::{Arc, Weak};

use crate::scope::Scope;

/// The informers of one connection.
#[derive(Clone, Default)]
pub(crate) struct InformerRegistry;

/// Registration of an informer.
pub(crate) struct Observation;

/// Labels of an informer.
pub(crate) struct InformerLabels;

/// Source of readings.
pub(crate) trait ReadInformer: Send + Sync {}

impl<T: Send + Sync> ReadInformer for T {}

impl InformerLabels {
    /// Returns no labels.
    pub(crate) fn new(_group: &str, _version: &str, _resource: &str, _scope: &Scope, _name: Option<Arc<str>>) -> Self {
        Self
    }
}

impl InformerRegistry {
    /// Registers nothing.
    pub(crate) fn add(&self, _labels: InformerLabels, _informer: Weak<dyn ReadInformer>) -> Observation {
        Observation
    }
}
