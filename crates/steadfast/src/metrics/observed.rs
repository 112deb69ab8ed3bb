//! The informers of a connection, and their states at a scrape.

use std::fmt::Write;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use steadfast_core::Freshness;
use steadfast_core::hash::Fnv1a;

use super::informer_counters::InformerCounters;
use super::register::Register;
use crate::handler_stats::HandlerReading;
use crate::memory::Memory;
use crate::scope::Scope;

/// The informers of one connection, by weak references. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct InformerRegistry {
    informers: Arc<Mutex<Register<InformerLabels, Weak<dyn ReadInformer>>>>,
}

/// Registration of an informer for scrapes, until it is dropped.
pub(crate) struct Observation {
    observed: InformerRegistry,
    labels: InformerLabels,
}

/// Labels of an informer. They are bounded in number and contain no name or content of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InformerLabels {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Empty for all namespaces.
    pub(crate) namespace: String,
    /// Hash of the selectors, empty without selectors. A selector can name an object, so it is not shown.
    pub(crate) selector: String,
    /// Name from the informer's builder.
    pub(crate) name: Option<Arc<str>>,
    /// Distinguishes informers with equal labels; reused after an informer has ended.
    pub(crate) ordinal: usize,
}

/// State of an informer at a scrape.
pub(crate) struct InformerReading {
    pub(crate) counted: Arc<InformerCounters>,
    pub(crate) freshness: Freshness,
    /// Time since the last proof, independent of the freshness.
    pub(crate) age: Option<Duration>,
    pub(crate) attempts: u32,
    pub(crate) tainted: usize,
    pub(crate) synced: bool,
    pub(crate) objects: usize,
    pub(crate) memory: Memory,
    /// Version of the cache, if it is a number.
    pub(crate) version: Option<f64>,
    pub(crate) handlers: Vec<HandlerReading>,
}

/// Source of readings at a scrape. The scraping thread reads the clock.
pub(crate) trait ReadInformer: Send + Sync {
    /// Returns the current state.
    fn read(&self) -> InformerReading;
}

impl InformerLabels {
    /// Returns the labels of an informer, without an ordinal.
    pub(crate) fn new(group: &str, version: &str, resource: &str, scope: &Scope, name: Option<Arc<str>>) -> Self {
        let mut selector = String::new();
        if scope.label_selector().is_some() || scope.field_selector().is_some() {
            let hash = hash(&[scope.label_selector().unwrap_or_default(), scope.field_selector().unwrap_or_default()]);
            let _ = write!(selector, "{hash:016x}");
        }
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            namespace: scope.in_namespace().unwrap_or_default().to_owned(),
            selector,
            name,
            ordinal: 0,
        }
    }
}

/// Returns the FNV-1a hash of `parts`. It is equal in each run and release, so that a time series continues.
fn hash(parts: &[&str]) -> u64 {
    let mut hash = Fnv1a::new();
    for part in parts {
        hash.write(part.as_bytes());
        hash.write(&[0]);
    }
    hash.finish()
}

impl InformerRegistry {
    /// Registers an informer until the observation is dropped. The cost is independent of the number of informers.
    pub(crate) fn add(&self, labels: InformerLabels, informer: Weak<dyn ReadInformer>) -> Observation {
        let ordinal = self.lock().add(InformerLabels { ordinal: 0, ..labels.clone() }, informer);
        Observation { observed: self.clone(), labels: InformerLabels { ordinal, ..labels } }
    }

    /// Returns the current state of each informer.
    pub(crate) fn read(&self) -> Vec<(InformerLabels, InformerReading)> {
        let living: Vec<_> = {
            let informers = self.lock();
            let living = |(labels, ordinal, informer): (&InformerLabels, usize, &Weak<dyn ReadInformer>)| {
                Some((InformerLabels { ordinal, ..labels.clone() }, informer.upgrade()?))
            };
            informers.iter().filter_map(living).collect()
        };
        // Read outside the lock: the last reference to an informer may drop here, and its `Observation` takes the lock.
        living.into_iter().map(|(labels, informer)| (labels, informer.read())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Register<InformerLabels, Weak<dyn ReadInformer>>> {
        self.informers.lock()
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let InformerLabels { ordinal, .. } = self.labels;
        let alike = InformerLabels { ordinal: 0, ..self.labels.clone() };
        self.observed.lock().remove(&alike, ordinal);
    }
}
