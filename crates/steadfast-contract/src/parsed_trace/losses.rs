//! Final states that a handler should have received by the end of a settled trace, but did not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Handler, ParsedTrace};
use crate::objects::{HandlerEvent, Key};

/// A final state that was never delivered.
#[derive(Debug)]
pub(crate) struct Loss<'c> {
    pub(crate) key: &'c Key,
    pub(crate) kind: LossKind,
    /// Time of the change on the server.
    pub(crate) at: Duration,
    /// The last delivered state and the expected one.
    pub(crate) description: String,
}

/// Kind of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossKind {
    /// The end of a stay, or a lasting stay of which no state was delivered.
    Stay,
    /// The last state of a lasting stay.
    LastState,
}

impl<'a> ParsedTrace<'a> {
    /// Returns the final states that `handler` never received.
    ///
    /// Returns no losses while later deliveries are possible, or if the undelivered events reported at the handler's
    /// stop cover all losses.
    pub(crate) fn losses<'c>(&'c self, handler: &'c Handler<'a>) -> Vec<Loss<'c>> {
        let informer = self.informer_of(handler);
        let Some(settled) = self.settled else { return Vec::new() };
        // While a call runs, the later events of its handler are delayed, not lost.
        let is_busy = handler.calls.iter().any(|call| call.end.is_none());
        if is_busy || handler.removed.is_some() || informer.is_stopped_by(settled) {
            return Vec::new();
        }
        // Later entries replace earlier ones, so that the map has the last event of each name.
        let last_events: BTreeMap<_, _> = handler.calls.iter().map(|call| (call.key(), call.event)).collect();
        let mut losses = Vec::new();
        for (key, timeline) in &self.view(informer).timelines {
            let last_delivered = last_events
                .get(key)
                .filter(|event| !matches!(event, HandlerEvent::Deleted { .. }))
                .map(|event| event.object());
            let state = timeline.last();
            let (kind, description) = match (last_delivered, state.stay) {
                (None, None) => continue,
                // An undecodable object cannot be delivered.
                (None, Some(_)) if informer.tainted.contains(key) => continue,
                (None, Some(_)) => {
                    (LossKind::Stay, format!("uid {} v{} was never delivered", state.uid, state.wire_version))
                }
                // The stay was delivered. Only its last state can still be missing.
                (Some(last_delivered), Some(_)) if last_delivered.uid == state.uid => {
                    if state.matches(last_delivered) || informer.tainted.contains(key) {
                        continue;
                    }
                    let description = format!(
                        "v{} was delivered last, v{} is the final version",
                        last_delivered.version, state.wire_version
                    );
                    (LossKind::LastState, description)
                }
                // The name belongs to another UID, or to no object: the end of the delivered stay is missing.
                (Some(last_delivered), _) => {
                    let description = format!(
                        "the end of uid {} was never delivered, v{} was delivered last",
                        last_delivered.uid, last_delivered.version
                    );
                    (LossKind::Stay, description)
                }
            };
            losses.push(Loss { key, kind, at: state.at, description });
        }
        // At its stop, the handler reported this number of undelivered events. These events count as reported, not as
        // lost.
        if losses.len() <= handler.undelivered {
            losses.clear();
        }
        losses
    }
}
