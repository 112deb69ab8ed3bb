//! Final states that a handler should have received by the end of a settled trace, but did not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Case, Handler};
use crate::seen::{Key, Seen};

/// A final state that was never delivered.
#[derive(Debug)]
pub(crate) struct Loss<'c> {
    pub(crate) key: &'c Key,
    pub(crate) kind: LossKind,
    /// Time of the change on the server.
    pub(crate) at: Duration,
    /// The last delivered state and the expected one.
    pub(crate) what: String,
}

/// Kind of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// The end of a stay, or a lasting stay of which no state was delivered.
    Stay,
    /// The last state of a lasting stay.
    State,
}

impl<'a> Case<'a> {
    /// Returns the final states that `handler` never received.
    ///
    /// Returns no losses while later deliveries are possible, or if the undelivered events reported at the handler's
    /// stop cover all losses.
    pub(crate) fn losses<'c>(&'c self, handler: &'c Handler<'a>) -> Vec<Loss<'c>> {
        let informer = self.informer_of(handler);
        let Some(settled) = self.settled else { return Vec::new() };
        // While a call runs, the events behind it are late, not lost.
        let busy = handler.calls.iter().any(|call| call.end.is_none());
        if busy || handler.removed.is_some() || informer.stopped_by(settled) {
            return Vec::new();
        }
        // Later entries replace earlier ones, so that the map has the last event of each name.
        let last: BTreeMap<_, _> = handler.calls.iter().map(|call| (call.key(), call.seen)).collect();
        let mut losses = Vec::new();
        for (key, line) in &self.view(informer).lines {
            let open = last.get(key).filter(|seen| !matches!(seen, Seen::Deleted { .. })).map(|seen| seen.object());
            let state = line.last();
            let (kind, what) = match (open, state.stay) {
                (None, None) => continue,
                // An undecodable object cannot be delivered.
                (None, Some(_)) if informer.tainted.contains(key) => continue,
                (None, Some(_)) => (LossKind::Stay, format!("uid {} v{} was never delivered", state.uid, state.text)),
                // The stay was delivered. Only its last state can still be missing.
                (Some(open), Some(_)) if open.uid == state.uid => {
                    if state.shows(open) || informer.tainted.contains(key) {
                        continue;
                    }
                    let what = format!("v{} was delivered last, v{} is the final version", open.version, state.text);
                    (LossKind::State, what)
                }
                // The name belongs to another UID, or to no object: the end of the delivered stay is missing.
                (Some(open), _) => {
                    let what = format!(
                        "the end of uid {} was never delivered, v{} was delivered last",
                        open.uid, open.version
                    );
                    (LossKind::Stay, what)
                }
            };
            losses.push(Loss { key, kind, at: state.at, what });
        }
        // At its stop, the handler reported this number of undelivered events. They are not lost unnoticed.
        if losses.len() <= handler.undelivered {
            losses.clear();
        }
        losses
    }
}
