//! Intervals of faults, from records of their switches.

use std::time::Duration;

use steadfast_apiserver::FaultRecord;

use super::parts::FaultInterval;
use crate::proxy::{FaultChange, FaultTransition};

/// Faults that `heal` of the server ends. Their end is recorded as that of `cut`.
const ENDED_BY_HEAL: [&str; 4] = ["cut", "refuse", "accept_and_close", "black_hole"];

/// Faults that `clear_rules` of the server ends. Their end is recorded as that of `respond`.
const ENDED_BY_CLEAR: [&str; 4] = ["respond", "corrupt", "delay_matching", "respond_after"];

/// Returns the faults of a server with this number of replicas.
pub(super) fn of_server(records: &[FaultRecord], replicas: usize, end: Duration) -> Vec<FaultInterval> {
    let mut intervals = OpenIntervals::default();
    for record in records {
        let replica = record.replica.filter(|_| replicas > 1);
        let suffix = replica.map(|replica| format!(" (replica {replica})")).unwrap_or_default();
        match record.on {
            Some(true) => intervals.start(format!("{}{suffix}", record.fault), record.at),
            None => intervals.add_instant(format!("{}{suffix}", record.fault), record.at),
            Some(false) => {
                let ended: &[&str] = match record.fault {
                    "cut" => &ENDED_BY_HEAL,
                    "respond" => &ENDED_BY_CLEAR,
                    _ => &[record.fault],
                };
                intervals.end_matching(record.at, |name| ended.iter().any(|fault| name == format!("{fault}{suffix}")));
            }
        }
    }
    intervals.finish(end)
}

/// Returns the faults of a network that was created at the time `start` of the server.
pub(super) fn of_network(changes: &[FaultChange], start: Duration, end: Duration) -> Vec<FaultInterval> {
    let mut intervals = OpenIntervals::default();
    for change in changes {
        let (at, name) = (start + change.at, format!("network: {}", change.fault));
        match change.transition {
            FaultTransition::On => intervals.start(name, at),
            FaultTransition::Once => intervals.add_instant(name, at),
            FaultTransition::Off if change.fault == "heal" => intervals.end_matching(at, |_| true),
            // The end of `delay(5s)` is recorded as `delay(0ns)`.
            FaultTransition::Off if intervals.is_open(&name) => intervals.end_matching(at, |open| open == name),
            FaultTransition::Off => intervals.end_matching(at, |open| base_name(open) == base_name(&name)),
        }
    }
    intervals.finish(end)
}

/// Returns the name of a fault without its arguments.
fn base_name(name: &str) -> &str {
    name.split_once('(').map_or(name, |(base, _)| base)
}

/// Intervals, some of which have not ended.
#[derive(Default)]
struct OpenIntervals {
    ended: Vec<FaultInterval>,
    open: Vec<(String, Duration)>,
}

impl OpenIntervals {
    /// Starts an interval, unless the fault is active already.
    fn start(&mut self, name: String, at: Duration) {
        if !self.is_open(&name) {
            self.open.push((name, at));
        }
    }

    fn add_instant(&mut self, name: String, at: Duration) {
        self.ended.push(FaultInterval { name, start: at, end: at });
    }

    fn is_open(&self, name: &str) -> bool {
        self.open.iter().any(|(open, _)| open == name)
    }

    fn end_matching(&mut self, at: Duration, is_ended: impl Fn(&str) -> bool) {
        for (name, start) in self.open.extract_if(.., |(name, _)| is_ended(name)) {
            self.ended.push(FaultInterval { name, start, end: at });
        }
    }

    /// Returns all intervals in the order of their starts. Active faults end at `end`.
    fn finish(mut self, end: Duration) -> Vec<FaultInterval> {
        self.end_matching(end, |_| true);
        self.ended.sort_by_key(|interval| interval.start);
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(found: &[FaultInterval]) -> Vec<(&str, u64, u64)> {
        let seconds = |time: Duration| time.as_secs();
        found.iter().map(|fault| (fault.name.as_str(), seconds(fault.start), seconds(fault.end))).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn heal_ends_faults_of_its_replica() {
        let server = steadfast_apiserver::ApiServer::builder().in_memory().replicas(2).start().await.expect("a server");
        let pause = || tokio::time::sleep(Duration::from_secs(1));
        server.faults().replica(1).cut();
        pause().await;
        server.faults().replica(0).black_hole(true);
        server.faults().replica(1).heal();
        pause().await;
        server.faults().heal();
        server.faults().replace_tokens(&[]);
        server.faults().freeze(true);
        pause().await;
        let found = of_server(&server.fault_log(), 2, server.elapsed());
        assert_eq!(
            intervals(&found),
            [
                ("cut (replica 1)", 0, 1),
                ("black_hole (replica 0)", 1, 2),
                ("replace_tokens", 2, 2),
                ("freeze (replica 0)", 2, 3),
                ("freeze (replica 1)", 2, 3),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn network_faults_start_at_network_time() {
        let network = crate::proxy::NetworkFaults::new();
        let pause = || tokio::time::sleep(Duration::from_secs(1));
        network.delay(Duration::from_secs(5));
        pause().await;
        network.delay(Duration::ZERO);
        network.reset();
        network.black_hole(crate::proxy::Direction::ToClient, true);
        pause().await;
        network.heal();
        let found = of_network(&network.changes(), Duration::from_secs(10), Duration::from_secs(20));
        assert_eq!(
            intervals(&found),
            [("network: delay(5s)", 10, 11), ("network: reset", 11, 11), ("network: black_hole(ToClient)", 11, 12),]
        );
    }
}
