//! Gate before the lines of an informer: `--since` prints the history first.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use tokio::sync::watch;

use super::related::PastRelatives;

/// Gate, closed at first. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<GateState>);

#[derive(Debug, Default)]
struct GateState {
    /// `None` while the gate is closed.
    history: Mutex<Option<PrintedHistory>>,
    changed: Condvar,
    /// True while the gate is open, for async tasks.
    is_open: watch::Sender<bool>,
}

/// Changes of a resource that were printed as history. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct PrintedHistory {
    /// Newest version whose changes were printed; `None` if no exact changes were printed.
    pub(super) version: Option<u64>,
    /// With `--related`, the relatives of the history. Changes of other objects were not printed.
    pub(super) relatives: Option<Arc<PastRelatives>>,
}

impl PrintedHistory {
    /// Returns whether the history contains the change of `object` at this version.
    ///
    /// An object is missing in the history if its owner was not known yet. The line of its change is then still needed.
    pub(super) fn contains(&self, version: Option<u64>, resource: &str, object: &Value) -> bool {
        let is_replayed = version.zip(self.version).is_some_and(|(version, replayed)| version <= replayed);
        is_replayed && self.relatives.as_ref().is_none_or(|relatives| relatives.contain(resource, object))
    }
}

impl Gate {
    /// Opens the gate after the history was printed.
    pub(super) fn open(&self, history: PrintedHistory) {
        *self.0.history.lock() = Some(history);
        self.0.changed.notify_all();
        self.0.is_open.send_replace(true);
    }

    /// Blocks until the gate is open. Returns the history.
    ///
    /// Only handlers may call this method, because each handler has a thread of its own. The number of tokio's blocking
    /// threads is limited, and the task that opens the gate needs one of them.
    pub(super) fn wait(&self) -> PrintedHistory {
        let mut history = self.0.history.lock();
        loop {
            match &*history {
                Some(history) => return history.clone(),
                None => self.0.changed.wait(&mut history),
            }
        }
    }

    /// Waits until the gate is open, without a thread.
    pub(super) async fn until_open(&self) {
        // Cannot fail: `self` keeps the sender.
        let _ = self.0.is_open.subscribe().wait_for(|is_open| *is_open).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::related::{Related, Root};
    use super::*;

    #[test]
    fn gate_blocks_until_opened() {
        let gate = Gate::default();
        let (waiting, (sender, receiver)) = (gate.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || sender.send(waiting.wait().version));
        assert!(receiver.try_recv().is_err(), "closed");
        gate.open(PrintedHistory { version: Some(7), relatives: None });
        assert_eq!(receiver.recv(), Ok(Some(7)));
        assert!(thread.join().is_ok());
        assert_eq!(gate.wait().version, Some(7));
    }

    #[test]
    fn object_with_unknown_owner_is_not_in_history() {
        let object = |name: &str, owner: &str| json!({"metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner}]}});
        let related = Related::new(vec![Root { resource: "deployments.apps".to_owned(), name: "web".to_owned() }], 1);
        let _ = related.record("deployments.apps", &object("web", "none"), String::new(), false);
        let (known, unknown) = (object("web-1", "web"), object("web-2-a", "web-2"));
        let relatives = related.with_past([("replicasets.apps", &known), ("pods", &unknown)]);
        let history = PrintedHistory { version: Some(7), relatives: Some(Arc::new(relatives)) };
        assert!(history.contains(Some(7), "replicasets.apps", &known));
        assert!(!history.contains(Some(8), "replicasets.apps", &known));
        assert!(!history.contains(Some(7), "pods", &unknown), "its line waits for the owner");
        assert!(PrintedHistory { version: Some(7), relatives: None }.contains(Some(7), "pods", &unknown));
    }
}
