//! Fair selection of the next ordering key across namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::message::{ClusterNamespace, OrderingKey};

/// First message of an ordering key: earliest time, number and key.
pub(super) type ReadyKey = (Duration, u64, OrderingKey);

/// Ready ordering keys by namespace: keys with pending messages and no message in flight.
///
/// The next namespace has the fewest batches in flight, then the longest time since the last turn. A new namespace is
/// appended after all others, so no namespace starves.
#[derive(Default)]
pub(super) struct NamespaceQueues {
    by_namespace: BTreeMap<ClusterNamespace, NamespaceQueue>,
    turn: u64,
    /// First namespace ever inserted. `has_several_namespaces` is set by the insertion of another namespace.
    first_namespace: Option<ClusterNamespace>,
    has_several_namespaces: bool,
}

#[derive(Default)]
struct NamespaceQueue {
    ready: BTreeSet<ReadyKey>,
    in_flight: usize,
    last_turn: u64,
}

impl NamespaceQueues {
    pub(super) fn insert(&mut self, at: Duration, number: u64, key: OrderingKey) {
        let namespace = key.cluster_namespace();
        match &self.first_namespace {
            None => self.first_namespace = Some(namespace.clone()),
            Some(first_namespace) if !self.has_several_namespaces => {
                self.has_several_namespaces = *first_namespace != namespace;
            }
            Some(_) => {}
        }
        // A new or returning namespace counts as served in the current turn, so the waiting namespaces come first.
        let last_turn = self.turn;
        let queue = self
            .by_namespace
            .entry(namespace)
            .or_insert_with(|| NamespaceQueue { last_turn, ..NamespaceQueue::default() });
        queue.ready.insert((at, number, key));
    }

    /// Takes the next ready key at `now`, of a namespace with fewer than `limit` batches in flight.
    pub(super) fn take(
        &mut self,
        now: Duration,
        limit: usize,
        is_allowed: impl Fn(&OrderingKey) -> bool,
    ) -> Option<ReadyKey> {
        let is_due =
            |queue: &NamespaceQueue| queue.ready.first().is_some_and(|(at, _, key)| *at <= now && is_allowed(key));
        let candidates = self.by_namespace.iter().filter(|(_, queue)| queue.in_flight < limit && is_due(queue));
        // Fewest batches in flight first, then the longest wait since the last turn.
        let (namespace, _) = candidates.min_by_key(|(_, queue)| (queue.in_flight, queue.last_turn))?;
        let namespace = namespace.clone();
        self.turn += 1;
        let queue = self.by_namespace.get_mut(&namespace)?;
        queue.last_turn = self.turn;
        queue.ready.pop_first()
    }

    /// Removes a ready key that need not be the next one. Returns whether the key was ready.
    pub(super) fn remove(&mut self, ready: &ReadyKey) -> bool {
        self.by_namespace.get_mut(&ready.2.cluster_namespace()).is_some_and(|queue| queue.ready.remove(ready))
    }

    /// Returns the earliest time of a ready message, of namespaces with fewer than `limit` batches in flight.
    pub(super) fn next_ready_at(&self, limit: usize) -> Option<Duration> {
        let queues = self.by_namespace.values().filter(|queue| queue.in_flight < limit);
        queues.filter_map(|queue| queue.ready.first().map(|(at, ..)| *at)).min()
    }

    /// Returns the maximum number of in-flight batches of one namespace: `concurrency` for a single namespace,
    /// otherwise three quarters. Slow messages of one namespace then do not occupy all slots.
    pub(super) fn limit(&self, concurrency: usize) -> usize {
        if !self.has_several_namespaces {
            return concurrency;
        }
        concurrency.saturating_sub(concurrency.div_ceil(4)).max(1)
    }

    pub(super) fn start_batch(&mut self, namespaces: &BTreeSet<ClusterNamespace>) {
        for namespace in namespaces {
            if let Some(queue) = self.by_namespace.get_mut(namespace) {
                queue.in_flight += 1;
            }
        }
    }

    /// Ends the batches started by [`start_batch`](Self::start_batch). Removes idle namespaces.
    pub(super) fn end_batch(&mut self, namespaces: &BTreeSet<ClusterNamespace>) {
        for namespace in namespaces {
            if let Some(queue) = self.by_namespace.get_mut(namespace) {
                queue.in_flight = queue.in_flight.saturating_sub(1);
                // Idle namespaces are dropped, so memory depends on active namespaces only.
                if queue.in_flight == 0 && queue.ready.is_empty() {
                    self.by_namespace.remove(namespace);
                }
            }
        }
    }
}
