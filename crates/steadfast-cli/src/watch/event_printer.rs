//! Handler that prints the events of one informer.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use steadfast::{Call, Event, Handler};

use super::goal::Goal;
use super::line::Style;
use super::owners::Owners;
use super::printer::Printer;
use super::recreated::Deletions;
use super::tally::Tally;
use super::watched::{CachedObject, Subject};
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
    /// Conditions of `--until`, each with the number that the condition has assigned to this resource.
    pub(super) goals: Vec<(Goal, usize)>,
    pub(super) deletions: Mutex<Deletions>,
}

impl EventPrinter {
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
        if let Some(missed) = self.style.missed(&self.subject, call) {
            console::report(missed);
        }
        let replacement = self.replacement(&event);
        let mut decoded = self.subject.event(&event, call);
        if let Some(owners) = &self.owners {
            owners.record(&decoded.object);
            decoded.owners = owners.chain(&decoded.object);
        }
        let line = self.style.event(&self.subject, &decoded, replacement.as_deref());
        // The initial objects do not count as changes.
        if !matches!(event, Event::Added { initial: true, .. }) {
            self.tally.count(line.counted);
        }
        if let Some(text) = line.text {
            self.printer.print(text);
        }
        let key = event.object().key();
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
