//! The embedded server's history, in the words of the checker.

use steadfast_apiserver::ApiServer;
use steadfast_contract::{Change, History};

/// What happened to the resource `plural` of `group` on `server`, for the checker.
pub fn history(server: &ApiServer, group: &str, plural: &str) -> History {
    let recorded = server.history();
    let mut history = History::new();
    for change in recorded.of(group, plural) {
        while history.epoch() < change.epoch {
            let begun = recorded.epochs.get(history.epoch() as usize + 1).copied().unwrap_or_default();
            history.restore(change.at, begun);
        }
        let namespace = change.namespace.as_deref();
        let told = match &change.object {
            Some(object) => Change::new(change.revision, &change.uid, namespace, &change.name, object.as_ref().clone()),
            None => Change::gone(change.revision, &change.uid, namespace, &change.name),
        };
        history.push(told.at(change.at).in_epoch(change.epoch));
    }
    history
}
