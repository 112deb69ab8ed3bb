//! Handler that prints the events of one informer.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use steadfast::{Call, Event, Handler};

use super::gate::{Gate, PrintedHistory};
use super::goal::Goal;
use super::line::Style;
use super::logs::PodLogs;
use super::owners::Owners;
use super::printer::Printer;
use super::recreated::Deletions;
use super::related::{Admission, Related};
use super::tally::Tally;
use super::watched::{CachedObject, DecodedEvent, Subject};
use crate::changes::state::state;
use crate::console;

/// Handler that prints the events of one informer.
///
/// A slow or stopped terminal blocks this handler only; events above the limit are merged and marked.
pub(super) struct EventPrinter {
    pub(super) subject: Arc<Subject>,
    pub(super) style: Style,
    pub(super) printer: Printer,
    pub(super) tally: Arc<Tally>,
    /// Owners of the objects, if the format shows them.
    pub(super) owners: Option<Owners>,
    /// Conditions of `--until`, each with the number of this resource within the condition.
    pub(super) goals: Vec<(Goal, usize)>,
    pub(super) deletions: Mutex<Deletions>,
    /// With `--related`, the relatives of the named objects. Events of other objects are not printed.
    pub(super) related: Option<Related>,
    /// With `--logs`, the logs of the watched pods.
    pub(super) logs: Option<PodLogs>,
    /// With `--since`, the gate that opens after the history.
    pub(super) gate: Option<Gate>,
}

impl EventPrinter {
    /// Records the event for `--related`, and decides whether its line is printed.
    fn admission(&self, event: &DecodedEvent<'_>) -> Admission {
        let Some(related) = &self.related else { return Admission::Related(Vec::new()) };
        let state = state(&self.subject.kind, &self.subject.columns, &event.object);
        related.record(&self.subject.name, &event.object, state, event.deletion.is_some())
    }

    /// Waits for the history if the event has a line. Returns the changes that were printed as history.
    ///
    /// Events without a line do not wait. `--related` prints its tree before the history, and the tree needs the events
    /// of all objects.
    fn await_history(&self, admission: &Admission) -> Option<PrintedHistory> {
        self.gate.as_ref().filter(|_| *admission != Admission::Unrelated).map(Gate::wait)
    }

    /// Prints the line of an admitted event.
    fn print(&self, event: &DecodedEvent<'_>, replacement: Option<&str>, admission: Admission, is_initial: bool) {
        if admission == Admission::Unrelated {
            return;
        }
        let line = self.style.event(&self.subject, event, replacement);
        // The initial objects do not count as changes.
        if !is_initial {
            self.tally.count(line.counted);
        }
        let Some(text) = line.text else { return };
        match (admission, &self.related) {
            (Admission::Unknown(uid), Some(related)) => {
                related.keep(uid, text).into_iter().for_each(|line| self.printer.print(line));
            }
            (Admission::Related(released), _) => {
                [text].into_iter().chain(released).for_each(|line| self.printer.print(line));
            }
            _ => self.printer.print(text),
        }
    }

    /// Passes the state of a pod to the reader of its logs.
    fn pass_to_logs(&self, event: &Event<CachedObject>, decoded: &DecodedEvent<'_>, is_initial: bool) {
        let Some(logs) = &self.logs else { return };
        match event {
            // Another object can make a pod related.
            _ if self.subject.name != "pods" => logs.check_related(),
            Event::Deleted { .. } => logs.removed(&decoded.object),
            _ => logs.observe(&decoded.object, is_initial),
        }
    }

    /// Returns whether `--until` considers the object: with `--related`, only the named objects.
    fn has_goal(&self, name: &str) -> bool {
        self.related.as_ref().is_none_or(|related| related.is_root(&self.subject.name, name))
    }

    /// Returns the description of a new object that replaces an object of the same name.
    fn replacement(&self, event: &Event<CachedObject>) -> Option<String> {
        let (key, now) = (event.object().key(), Instant::now());
        match event {
            Event::Deleted { reason, .. } => self.deletions.lock().deleted(key, *reason, now),
            Event::Added { initial: false, .. } => return self.deletions.lock().replacement(key, now),
            _ => {}
        }
        None
    }
}

impl Handler<CachedObject> for EventPrinter {
    fn handle(&self, event: Event<CachedObject>, call: Call) {
        let replacement = self.replacement(&event);
        let mut decoded = self.subject.event(&event, call);
        if let Some(owners) = &self.owners {
            owners.record(&decoded.object);
            decoded.owners = owners.chain(&decoded.object);
        }
        let is_initial = matches!(event, Event::Added { initial: true, .. });
        let admission = self.admission(&decoded);
        let history = self.await_history(&admission);
        let is_in_history =
            history.is_some_and(|history| history.contains(version(&event), &self.subject.name, &decoded.object));
        if let Some(missed) = self.style.missed(&self.subject, call) {
            console::report(missed);
        }
        if is_initial || !is_in_history {
            self.print(&decoded, replacement.as_deref(), admission, is_initial);
        } else if let Admission::Related(released) = admission {
            for line in released {
                self.printer.print(line);
            }
        }
        self.pass_to_logs(&event, &decoded, is_initial);
        let key = event.object().key();
        if !self.has_goal(key.name()) {
            return;
        }
        let is_reached = |(goal, number): &&(Goal, usize)| match event {
            Event::Deleted { .. } => goal.deleted(*number, key),
            _ => goal.updated(*number, key, &decoded.object),
        };
        // `count` instead of `any`: each condition must record the event, even if an earlier one is reached.
        if self.goals.iter().filter(is_reached).count() > 0 {
            self.printer.end();
        }
    }
}

/// Returns the version of the change, if it is a number.
fn version(event: &Event<CachedObject>) -> Option<u64> {
    let version = match event {
        Event::Deleted { version, .. } => version.as_ref(),
        _ => Some(event.object().version()),
    };
    version?.as_str().parse().ok()
}
