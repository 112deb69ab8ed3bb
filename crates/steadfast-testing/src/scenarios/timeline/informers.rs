//! Freshness and events of informers, from a trace.

use std::collections::BTreeMap;

use steadfast_contract::{Freshness, HandlerEvent, Record, Trace};

use super::parts::{FreshnessChange, HandlerEventKind, InformerTimeline, TimedEvent};

/// Returns the informers of a trace, in the order of their starts.
pub(super) fn of_trace(trace: &Trace) -> Vec<InformerTimeline> {
    let mut collected = Collected::default();
    for entry in trace.entries() {
        let at = entry.at;
        match &entry.record {
            Record::Informer { informer, .. } => collected.declare(informer),
            Record::Registered { handler, informer, .. } => {
                collected.informer_of.insert(handler.clone(), informer.clone());
            }
            Record::Freshness { informer, state, .. } => {
                let Some(timeline) = collected.informer(informer) else { continue };
                if timeline.freshness.last().is_none_or(|last| !is_same_state(&last.state, state)) {
                    timeline.freshness.push(FreshnessChange { at, state: state.clone() });
                }
            }
            Record::Relisted { informer, .. } => {
                if let Some(timeline) = collected.informer(informer) {
                    timeline.lists.push(at);
                }
            }
            Record::Entered { handler, event, retry: 0, .. } => {
                let event = TimedEvent { at, kind: kind_of(event), object: event.key().to_string() };
                let informer = collected.informer_of.get(handler).cloned().unwrap_or_default();
                if let Some(timeline) = collected.informer(&informer) {
                    timeline.events.push(event);
                }
            }
            _ => {}
        }
    }
    collected.informers
}

#[derive(Default)]
struct Collected {
    informers: Vec<InformerTimeline>,
    /// Informers by the names of their handlers.
    informer_of: BTreeMap<String, String>,
}

impl Collected {
    fn declare(&mut self, name: &str) {
        if self.informer(name).is_none() {
            self.informers.push(InformerTimeline { name: name.to_owned(), ..InformerTimeline::default() });
        }
    }

    fn informer(&mut self, name: &str) -> Option<&mut InformerTimeline> {
        self.informers.iter_mut().find(|timeline| timeline.name == name)
    }
}

/// Returns whether two samples have the same state. Version and age of a fresh cache differ in each sample.
fn is_same_state(one: &Freshness, other: &Freshness) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn kind_of(event: &HandlerEvent) -> HandlerEventKind {
    match event {
        HandlerEvent::Added { .. } => HandlerEventKind::Added,
        HandlerEvent::Updated { .. } => HandlerEventKind::Updated,
        HandlerEvent::Deleted { .. } => HandlerEventKind::Deleted,
        HandlerEvent::Resynced { .. } => HandlerEventKind::Resynced,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use steadfast_contract::{Scope, StoreContent};

    use super::*;

    #[test]
    fn equal_states_are_one_change() {
        let (mut trace, at) = (Trace::new(), Duration::from_secs);
        let freshness = |state| Record::Freshness { informer: "pods".to_owned(), state, tainted: Vec::new() };
        let fresh = |version: &str| Freshness::Fresh { version: version.to_owned(), age: Duration::ZERO };
        let object = steadfast_contract::ObjectVersionRef::new(None, "a", "u", "5");
        trace.record(at(0), Record::informer("pods", Scope::all()));
        trace.record(at(0), Record::registered("pods#0", "pods"));
        trace.record(at(1), freshness(fresh("5")));
        let event = HandlerEvent::Added { object, initial: true };
        trace.record(at(1), Record::entered("pods#0", 0, event, StoreContent::Absent));
        trace.record(at(2), freshness(fresh("6")));
        trace.record(at(3), freshness(Freshness::Suspect));
        trace.record(at(4), Record::Relisted { informer: "pods".to_owned(), from: None, to: None });
        let informers = of_trace(&trace);
        assert_eq!(informers.len(), 1);
        let times: Vec<_> = informers[0].freshness.iter().map(|change| change.at).collect();
        assert_eq!((times, &informers[0].lists), (vec![at(1), at(3)], &vec![at(4)]));
        let event = TimedEvent { at: at(1), kind: HandlerEventKind::Added, object: "a".to_owned() };
        assert_eq!(informers[0].events, [event]);
    }
}
