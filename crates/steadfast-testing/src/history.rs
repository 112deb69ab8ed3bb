//! The embedded server's history, in the words of the checker.

use steadfast_apiserver::ApiServer;
use steadfast_contract::{Change, History};

/// What happened to the resource `plural` of `group` on `server`, for the checker. Events are all of the core group.
pub fn history(server: &ApiServer, group: &str, plural: &str) -> History {
    let recorded = server.history();
    let log = server.fault_log();
    // What was undone has no change of its own: only the restore tells of it.
    let mut restores = log.iter().filter(|fault| fault.fault == "restore").zip(recorded.epochs.iter().skip(1));
    let mut history = History::new();
    for change in recorded.of(group, plural) {
        while history.epoch() < change.epoch {
            let Some((restore, to)) = restores.next() else { break };
            history.restore(restore.at, *to);
        }
        let namespace = change.namespace.as_deref();
        let told = match &change.object {
            Some(object) => Change::new(change.revision, &change.uid, namespace, &change.name, object.as_ref().clone()),
            None => Change::gone(change.revision, &change.uid, namespace, &change.name),
        };
        history.push(told.at(change.at).in_epoch(change.epoch));
    }
    for (restore, to) in restores {
        history.restore(restore.at, *to);
    }
    history
}
