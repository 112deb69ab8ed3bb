//! What a handler should have been given by the time all is settled, and was not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Case, Handler};
use crate::seen::{Key, Seen};

/// A final state that a handler was never given.
#[derive(Debug)]
pub(crate) struct Loss<'c> {
    pub(crate) key: &'c Key,
    pub(crate) kind: LossKind,
    /// When the server made it so.
    pub(crate) at: Duration,
    /// What the handler was left with, and with what it should have been.
    pub(crate) what: String,
}

/// What of an object was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// The end of a stay, or the whole of one that lasts.
    Stay,
    /// The last state of a stay that lasts.
    State,
}

impl<'a> Case<'a> {
    /// What `handler` was never given; nothing while that cannot be known, or what it lacks was counted at the stop.
    pub(crate) fn losses<'c>(&'c self, handler: &'c Handler<'a>) -> Vec<Loss<'c>> {
        let informer = self.informer_of(handler);
        let Some(settled) = self.settled else { return Vec::new() };
        // While a call runs, what waits behind it is late and not lost.
        let busy = handler.calls.iter().any(|call| call.end.is_none());
        if busy || handler.removed.is_some() || informer.stopped_by(settled) {
            return Vec::new();
        }
        let last: BTreeMap<_, _> = handler.calls.iter().map(|call| (call.key(), call.seen)).collect();
        let mut losses = Vec::new();
        for (key, line) in &self.view(informer).lines {
            let open = last.get(key).filter(|seen| !matches!(seen, Seen::Deleted { .. })).map(|seen| seen.object());
            let state = line.last();
            let (kind, what) = match (open, state.stay) {
                (None, None) => continue,
                (None, Some(_)) if informer.tainted.contains(key) => continue,
                (None, Some(_)) => (LossKind::Stay, format!("uid {} v{} was never delivered", state.uid, state.text)),
                (Some(open), Some(_)) if open.uid == state.uid => {
                    if state.shows(open) || informer.tainted.contains(key) {
                        continue;
                    }
                    let what = format!("v{} was delivered last, v{} is the last there is", open.version, state.text);
                    (LossKind::State, what)
                }
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
        if losses.len() <= handler.undelivered {
            losses.clear();
        }
        losses
    }
}
