//! Checker of accepted writes, by the history of the server.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_contract::History;

use crate::program::WRITTEN_OBJECT;

/// Consecutive accepted writes of one holder.
#[derive(Clone, Debug)]
pub(crate) struct WriteRun {
    pub(crate) holder: String,
    pub(crate) first: Duration,
    pub(crate) last: Duration,
    pub(crate) writes: usize,
}

/// Returns the uninterrupted runs of writes by one holder, in the order of the embedded server's history.
pub(crate) fn write_runs(server: &ApiServer) -> Vec<WriteRun> {
    let history = server.history();
    let changes = history.changes_of("", "configmaps").filter(|change| change.name == WRITTEN_OBJECT);
    group_by_writer(changes.filter_map(|change| Some((change.at, change.object.as_deref()?))))
}

/// Returns the uninterrupted runs of writes by one holder, in the order of a real server's history.
pub(crate) fn write_runs_in(history: &History) -> Vec<WriteRun> {
    let changes = history.changes().iter().filter(|change| change.name == WRITTEN_OBJECT);
    group_by_writer(changes.filter_map(|change| Some((change.at, change.object.as_ref()?))))
}

/// Groups consecutive states of the object with the same writer.
fn group_by_writer<'a>(states: impl Iterator<Item = (Duration, &'a Value)>) -> Vec<WriteRun> {
    let mut write_runs: Vec<WriteRun> = Vec::new();
    for (at, object) in states {
        let Some(holder) = object["data"]["holder"].as_str() else { continue };
        match write_runs.last_mut().filter(|run| run.holder == holder) {
            Some(run) => {
                run.last = at;
                run.writes += 1;
            }
            None => write_runs.push(WriteRun { holder: holder.to_owned(), first: at, last: at, writes: 1 }),
        }
    }
    write_runs
}

/// Returns the number of lease transfers while the previous holder still wrote.
pub(crate) fn transfers_from_active_holders(server: &ApiServer, write_runs: &[WriteRun]) -> usize {
    let history = server.history();
    let leases = history.changes_of("coordination.k8s.io", "leases");
    let holder = |lease: Option<&Value>| Some(lease?["spec"]["holderIdentity"].as_str()?.to_owned());
    let transfers = leases.filter_map(|change| {
        let [previous, next] = [&change.previous, &change.object].map(|lease| holder(lease.as_deref()));
        previous
            .filter(|previous| next.is_some_and(|next| next != *previous && !next.is_empty()))
            .map(|previous| (change.at, previous))
    });
    transfers
        .filter(|(at, previous)| {
            let is_of_previous = |run: &&WriteRun| run.holder.split('#').next() == Some(previous);
            write_runs.iter().filter(is_of_previous).any(|run| run.first <= *at && *at < run.last)
        })
        .count()
}

/// Returns the writes that the server accepted from a holder after the first write of its successor.
pub(crate) fn violations(write_runs: &[WriteRun]) -> Vec<String> {
    let mut earlier_holders = BTreeSet::new();
    let mut violations = Vec::new();
    for (index, run) in write_runs.iter().enumerate() {
        if earlier_holders.contains(run.holder.as_str()) {
            let previous = &write_runs[index - 1];
            violations.push(format!(
                "{} wrote at {:?}, after {} had written from {:?} on",
                run.holder, run.first, previous.holder, previous.first
            ));
        }
        earlier_holders.insert(run.holder.as_str());
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_of(holders: &[&str]) -> Vec<String> {
        let run = |(at, holder): (usize, &&str)| {
            let at = Duration::from_secs(at as u64);
            WriteRun { holder: (*holder).to_owned(), first: at, last: at, writes: 1 }
        };
        violations(&holders.iter().enumerate().map(run).collect::<Vec<_>>())
    }

    #[test]
    fn write_after_successor_is_detected() {
        assert_eq!(violations_of(&["a#1", "b#1", "a#2"]), [""; 0], "each term is a holder of its own");
        let violations = violations_of(&["a#1", "b#1", "a#1", "c#1", "b#1"]);
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].starts_with("a#1 wrote at 2s, after b#1 had written from 1s on"), "{violations:?}");
    }
}
