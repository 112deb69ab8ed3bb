//! The informers there are on a connection, and how each is at the moment of a scrape.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use steadfast_core::Freshness;

use super::counted::Counted;
use crate::runner::HandlerCounts;
use crate::scope::Scope;

/// The informers on one connection, which this does not keep alive.
#[derive(Default)]
pub(crate) struct Observed {
    informers: Mutex<Vec<Entry>>,
}

struct Entry {
    labels: Labels,
    informer: Weak<dyn Observe>,
}

/// What tells one informer from another: bounded in number, and no name or content of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The version held, where it is a number.
    pub(crate) version: Option<f64>,
    pub(crate) handlers: Vec<HandlerReading>,
}

/// A handler at the moment of a scrape.
pub(crate) struct HandlerReading {
    /// Tells it from the others of its informer; taken again once it is free.
    pub(crate) ordinal: usize,
    pub(crate) counts: HandlerCounts,
    pub(crate) synced: bool,
    /// How long the oldest change waits from whose call it has not returned.
    pub(crate) lag: Duration,
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
    /// Takes in an informer.
    pub(crate) fn add(&self, mut labels: Labels, informer: Weak<dyn Observe>) {
        let mut informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
        informers.retain(|entry| entry.informer.strong_count() > 0);
        while informers.iter().any(|entry| entry.labels == labels) {
            labels.ordinal += 1;
        }
        informers.push(Entry { labels, informer });
    }

    /// Each informer as it is now.
    pub(crate) fn read(&self) -> Vec<(Labels, Reading)> {
        let living: Vec<_> = {
            let informers = self.informers.lock().unwrap_or_else(PoisonError::into_inner);
            informers.iter().filter_map(|entry| Some((entry.labels.clone(), entry.informer.upgrade()?))).collect()
        };
        living.into_iter().map(|(labels, informer)| (labels, informer.read())).collect()
    }
}
