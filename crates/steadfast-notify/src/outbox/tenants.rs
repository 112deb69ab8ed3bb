//! Fair choice of the next ordering key: namespaces take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::message::OrderingKey;

/// The first message of an ordering key: when it may be sent, its number, its key.
pub(super) type Ready = (Duration, u64, OrderingKey);

/// A namespace of a cluster.
pub(super) type Tenant = (String, String);

/// Ordering keys that have messages and none in flight, by namespace.
///
/// The namespace with the fewest batches in flight is next, then the one whose last turn is longest ago. A new namespace
/// joins behind all others, so that no namespace is passed over forever.
#[derive(Default)]
pub(super) struct Tenants {
    by_namespace: BTreeMap<Tenant, Queue>,
    turn: u64,
    /// The first namespace that was seen, and whether there was another one since.
    first: Option<Tenant>,
    is_shared: bool,
}

#[derive(Default)]
struct Queue {
    ready: BTreeSet<Ready>,
    in_flight: usize,
    last_turn: u64,
}

impl Tenants {
    pub(super) fn insert(&mut self, at: Duration, number: u64, key: OrderingKey) {
        let tenant = key.tenant();
        match &self.first {
            None => self.first = Some(tenant.clone()),
            Some(first) if !self.is_shared => self.is_shared = *first != tenant,
            Some(_) => {}
        }
        let last_turn = self.turn;
        let queue = self.by_namespace.entry(tenant).or_insert_with(|| Queue { last_turn, ..Queue::default() });
        queue.ready.insert((at, number, key));
    }

    /// Takes the key that is next at `now`, of a namespace with fewer than `limit` batches in flight.
    pub(super) fn take(&mut self, now: Duration, limit: usize, fits: impl Fn(&OrderingKey) -> bool) -> Option<Ready> {
        let due = |queue: &Queue| queue.ready.first().is_some_and(|(at, _, key)| *at <= now && fits(key));
        let candidates = self.by_namespace.iter().filter(|(_, queue)| queue.in_flight < limit && due(queue));
        let (tenant, _) = candidates.min_by_key(|(_, queue)| (queue.in_flight, queue.last_turn))?;
        let tenant = tenant.clone();
        self.turn += 1;
        let queue = self.by_namespace.get_mut(&tenant)?;
        queue.last_turn = self.turn;
        queue.ready.pop_first()
    }

    /// Takes this key out of turn.
    pub(super) fn remove(&mut self, ready: &Ready) -> bool {
        self.by_namespace.get_mut(&ready.2.tenant()).is_some_and(|queue| queue.ready.remove(ready))
    }

    /// Returns the earliest time at which a namespace with fewer than `limit` batches in flight has a message to send.
    pub(super) fn next(&self, limit: usize) -> Option<Duration> {
        let queues = self.by_namespace.values().filter(|queue| queue.in_flight < limit);
        queues.filter_map(|queue| queue.ready.first().map(|(at, ..)| *at)).min()
    }

    /// Returns how many of `concurrency` batches one namespace may have in flight: three quarters as soon as there are
    /// several namespaces, so that slow messages of one do not take every slot.
    pub(super) fn limit(&self, concurrency: usize) -> usize {
        if !self.is_shared {
            return concurrency;
        }
        concurrency.saturating_sub(concurrency.div_ceil(4)).max(1)
    }

    pub(super) fn sent(&mut self, tenants: &BTreeSet<Tenant>) {
        for tenant in tenants {
            if let Some(queue) = self.by_namespace.get_mut(tenant) {
                queue.in_flight += 1;
            }
        }
    }

    /// Ends the batches that [`sent`](Self::sent) began, and forgets namespaces that have nothing left.
    pub(super) fn ended(&mut self, tenants: &BTreeSet<Tenant>) {
        for tenant in tenants {
            if let Some(queue) = self.by_namespace.get_mut(tenant) {
                queue.in_flight = queue.in_flight.saturating_sub(1);
                if queue.in_flight == 0 && queue.ready.is_empty() {
                    self.by_namespace.remove(tenant);
                }
            }
        }
    }
}
