//! State of an informer at a scrape.

#![cfg(feature = "metrics")]

use super::Shared;
use crate::metrics::observed::{InformerReading, ReadInformer};

impl<K: Send + Sync + 'static> ReadInformer for Shared<K> {
    fn read(&self) -> InformerReading {
        let now = self.environment.now();
        let (evidence, snapshot) = (self.evidence(), self.snapshot());
        let version = snapshot.version().filter(|version| version.is_ordered());
        let handlers = self.handlers();
        InformerReading {
            counted: self.counted.clone(),
            freshness: evidence.at(now),
            age: evidence.proven.map(|proven| now.since(proven)),
            attempts: evidence.attempts,
            tainted: evidence.tainted.len(),
            synced: self.is_synced(),
            objects: snapshot.len(),
            memory: self.memory(),
            version: version.and_then(|version| version.as_str().parse().ok()),
            handlers: handlers
                .iter()
                .filter(|handler| handler.represents_handler)
                .map(|handler| handler.read())
                .collect(),
        }
    }
}
