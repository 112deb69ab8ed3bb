//! The informers there are on a connection, and how each is at the moment of a scrape.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use steadfast_core::Freshness;

use super::counted::Counted;
use super::register::Register;
use crate::handler_counts::HandlerReading;
use crate::memory::Memory;
use crate::scope::Scope;

/// The informers on one connection, which this does not keep alive. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Observed {
    informers: Arc<Mutex<Register<Labels, Weak<dyn Observe>>>>,
}

/// An informer's place among the observed, until it is dropped.
pub(crate) struct Observation {
    observed: Observed,
    labels: Labels,
}

/// What tells one informer from another: bounded in number, and no name or content of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// Empty for all.
    pub(crate) namespace: String,
    /// A hash of the selectors, empty where there is none: a selector can name an object.
    pub(crate) selector: String,
    /// Tells informers apart that are alike otherwise; taken again once it is free.
    pub(crate) ordinal: usize,
}

/// An informer at the moment of a scrape.
pub(crate) struct Reading {
    pub(crate) counted: Arc<Counted>,
    pub(crate) freshness: Freshness,
    /// The time since the last proof, whatever the freshness.
    pub(crate) age: Option<Duration>,
    pub(crate) attempts: u32,
    pub(crate) tainted: usize,
    pub(crate) synced: bool,
    pub(crate) objects: usize,
    pub(crate) memory: Memory,
    /// The version held, where it is a number.
    pub(crate) version: Option<f64>,
    pub(crate) handlers: Vec<HandlerReading>,
}

/// What can be read at a scrape, by the reader's clock.
pub(crate) trait Observe: Send + Sync {
    /// How it is now.
    fn read(&self) -> Reading;
}

impl Labels {
    /// The labels of an informer, its ordinal aside.
    pub(crate) fn new(group: &str, version: &str, resource: &str, scope: &Scope) -> Self {
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
            ordinal: 0,
        }
    }
}

/// FNV-1a over `parts`: the same in each run and release, so that a series goes on.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Observed {
    /// Takes in an informer, for as long as the observation is held. What that costs does not depend on the others.
    pub(crate) fn add(&self, labels: Labels, informer: Weak<dyn Observe>) -> Observation {
        let ordinal = self.lock().add(Labels { ordinal: 0, ..labels.clone() }, informer);
        Observation { observed: self.clone(), labels: Labels { ordinal, ..labels } }
    }

    /// Each informer as it is now.
    pub(crate) fn read(&self) -> Vec<(Labels, Reading)> {
        let living: Vec<_> = {
            let informers = self.lock();
            let living = |(labels, ordinal, informer): (&Labels, usize, &Weak<dyn Observe>)| {
                Some((Labels { ordinal, ..labels.clone() }, informer.upgrade()?))
            };
            informers.iter().filter_map(living).collect()
        };
        living.into_iter().map(|(labels, informer)| (labels, informer.read())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Register<Labels, Weak<dyn Observe>>> {
        self.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        let Labels { ordinal, .. } = self.labels;
        let alike = Labels { ordinal: 0, ..self.labels.clone() };
        self.observed.lock().remove(&alike, ordinal);
    }
}
