//! Faults of the server, and of the network.

use std::time::Duration;

use steadfast_core::Instant;
use steadfast_core::reflector::RequestId;

use super::{Arrival, Arrivals, Cache, MAX_FREEZE, ScheduledAction, Server};

/// Fault that affects every request.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ServerFault {
    Down,
    /// No request receives a response.
    NoResponse,
    /// The server rejects requests temporarily, with or without `Retry-After`.
    Busy(Option<u64>),
    /// The server accepts connections and closes them at once.
    Closing,
    /// The store behind the caches does not respond.
    Etcd,
    Gone,
}

impl Server {
    /// Ends all faults. From here on, writes outside the scope of the client continue.
    pub(crate) fn end_faults(&mut self, now: Instant) {
        self.injects_faults = false;
        self.fault = None;
        self.access.end_faults();
        self.recovered = true;
        for cache in 0..self.caches.len() {
            self.thaw(now, cache);
        }
    }

    pub(super) fn start_fault(&mut self, now: Instant, held: Option<u64>, epoch: u32, out: &mut Arrivals) {
        if !self.injects_faults {
            return;
        }
        let pause = self.random.between(Duration::from_millis(100), Duration::from_secs(45));
        self.schedule(now + pause, ScheduledAction::StartFault);
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        let first = all.first().copied();
        let cache = usize::from(self.random.fraction() < 0.5);
        match self.random.draw() % 22 {
            0 => self.cut(&all, out),
            1..=3 => self.cut(first.as_slice(), out),
            4 => {
                if let Some(id) = first.filter(|id| self.requests[id].open) {
                    self.schedule_soon(now, ScheduledAction::End(id));
                }
            }
            5 => first.into_iter().for_each(|id| self.requests.get_mut(&id).unwrap().stalled = true),
            6 => {
                self.compacted = self.version;
                self.caches.iter_mut().for_each(|cache| cache.window = cache.seen);
            }
            7..=9 => {
                self.caches[cache].window = self.caches[cache].seen;
                let affected = all.into_iter().filter(|id| self.requests[id].cache == cache).collect::<Vec<_>>();
                self.cut(&affected, out);
            }
            10..=12 => {
                self.caches[cache].frozen = true;
                let dead = self.random.fraction() < 0.3;
                self.caches[cache].dead |= dead;
                let max_freeze = if dead { MAX_FREEZE * 8 } else { MAX_FREEZE };
                let until = now + self.random.between(Duration::ZERO, max_freeze);
                self.schedule(until, ScheduledAction::Thaw(cache));
            }
            13 => self.restore(now, held, out),
            14 | 15 => self.fail_over(now, cache, held, epoch, out),
            kind => {
                let after = (self.random.fraction() < 0.7).then(|| (self.random.draw() % 9).saturating_sub(2));
                let kinds = [
                    ServerFault::Down,
                    ServerFault::NoResponse,
                    ServerFault::Busy(after),
                    ServerFault::Closing,
                    ServerFault::Etcd,
                    ServerFault::Gone,
                ];
                self.fault = kinds.get(kind as usize - 16).copied();
                if kind == 16 {
                    self.cut(&all, out);
                }
                let until = now + self.random.between(Duration::ZERO, Duration::from_secs(60));
                self.schedule(until, ScheduledAction::Recover);
            }
        }
    }

    /// One replica lags, and the other restarts: the cached version is too high for the first and expired for the
    /// second.
    fn fail_over(&mut self, now: Instant, lagging: usize, held: Option<u64>, epoch: u32, out: &mut Arrivals) {
        self.caches[lagging].frozen = true;
        let until = now + self.random.between(Duration::ZERO, MAX_FREEZE);
        self.schedule(until, ScheduledAction::Thaw(lagging));
        for _ in 0..3 {
            self.write(now, held, epoch);
        }
        let restarted = &mut self.caches[1 - lagging];
        restarted.window = restarted.seen;
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        self.cut(&all, out);
    }

    pub(super) fn cut(&mut self, ids: &[RequestId], out: &mut Arrivals) {
        for id in ids {
            self.requests.remove(id);
            out.push((*id, Arrival::Broke));
        }
    }

    /// Restores an older version and ends all connections.
    fn restore(&mut self, now: Instant, held: Option<u64>, out: &mut Arrivals) {
        let older = self.version - (self.version - 10).min(self.random.draw() % 60);
        let all: Vec<RequestId> = self.requests.keys().copied().collect();
        self.cut(&all, out);
        // Versions after the restore repeat those of the old history, as after a restore of etcd.
        self.log.retain(|change| change.version <= older);
        self.version = older;
        self.compacted = older;
        self.caches = [Cache { seen: older, window: older, ..Cache::default() }; 2];
        // A cache below the restored version has lost no change, and stays in the same epoch.
        if held.is_some_and(|held| held > older) {
            self.epoch += 1;
            self.restored = Some(now);
        }
    }
}
