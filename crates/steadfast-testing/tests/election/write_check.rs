//! Checker of accepted writes, by the history of the server.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use steadfast_apiserver::ApiServer;
use steadfast_contract::History;

use crate::program::OBJECT;

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
    let written = history.of("", "configmaps").filter(|change| change.name == OBJECT);
    group_by_writer(written.filter_map(|change| Some((change.at, change.object.as_deref()?))))
}

/// Returns the uninterrupted runs of writes by one holder, in the order of a real server's history.
pub(crate) fn write_runs_in(history: &History) -> Vec<WriteRun> {
    let written = history.changes().iter().filter(|change| change.name == OBJECT);
    group_by_writer(written.filter_map(|change| Some((change.at, change.object.as_ref()?))))
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
    let leases = history.of("coordination.k8s.io", "leases");
    let holder = |lease: Option<&Value>| Some(lease?["spec"]["holderIdentity"].as_str()?.to_owned());
    let given = leases.filter_map(|change| {
        let [before, after] = [&change.previous, &change.object].map(|lease| holder(lease.as_deref()));
        before
            .filter(|before| after.is_some_and(|after| after != *before && !after.is_empty()))
            .map(|before| (change.at, before))
    });
    given
        .filter(|(at, before)| {
            let was_theirs = |run: &&WriteRun| run.holder.split('#').next() == Some(before);
            write_runs.iter().filter(was_theirs).any(|run| run.first <= *at && *at < run.last)
        })
        .count()
}

/// Returns the writes that the server accepted from a holder after the first write of its successor.
pub(crate) fn violations(write_runs: &[WriteRun]) -> Vec<String> {
    let mut earlier = BTreeSet::new();
    let mut found = Vec::new();
    for (index, run) in write_runs.iter().enumerate() {
        if earlier.contains(run.holder.as_str()) {
            let before = &write_runs[index - 1];
            found.push(format!(
                "{} wrote at {:?}, after {} had written from {:?} on",
                run.holder, run.first, before.holder, before.first
            ));
        }
        earlier.insert(run.holder.as_str());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(holders: &[&str]) -> Vec<String> {
        let run = |(at, holder): (usize, &&str)| {
            let at = Duration::from_secs(at as u64);
            WriteRun { holder: (*holder).to_owned(), first: at, last: at, writes: 1 }
        };
        violations(&holders.iter().enumerate().map(run).collect::<Vec<_>>())
    }

    #[test]
    fn write_after_successor_is_detected() {
        assert_eq!(judged(&["a#1", "b#1", "a#2"]), [""; 0], "each term is a holder of its own");
        let found = judged(&["a#1", "b#1", "a#1", "c#1", "b#1"]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a#1 wrote at 2s, after b#1 had written from 1s on"), "{found:?}");
    }
}
