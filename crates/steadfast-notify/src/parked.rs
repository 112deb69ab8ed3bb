//! Events that wait outside of a sink's queue, by object, for handlers without acknowledgements.
//!
//! Each object has a queue of its own, so that a waiting object does not delay other objects. Up to a limit, all
//! parked events stay. Beyond the limit, the events of an object are merged, as an informer merges the events of a
//! slow handler. Merging loses only intermediate states, and the number of objects bounds the memory.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Mutex, MutexGuard};
use steadfast::{Event, ObjectKey};

/// Parked events of all objects of a handler.
pub(crate) struct ParkedEvents<K> {
    events: Mutex<Events<K>>,
    /// Number of parked events above which the events of an object are merged.
    limit: usize,
}

struct Events<K> {
    /// Parked events by object. The first event of each queue is being passed to the engine.
    queues: HashMap<ObjectKey, VecDeque<Event<K>>>,
    /// Number of events in all queues.
    count: usize,
}

impl<K> ParkedEvents<K> {
    /// Creates an empty set. Merges events while at least `limit` events are parked.
    pub(crate) fn new(limit: usize) -> Self {
        Self { events: Mutex::new(Events { queues: HashMap::new(), count: 0 }), limit }
    }

    /// Appends the event to the parked events of the object. Returns the event if the object has no parked events.
    pub(crate) fn park_if_waiting(&self, event: Event<K>) -> Option<Event<K>> {
        let mut events = self.events();
        let is_full = events.count >= self.limit;
        let Events { queues, count } = &mut *events;
        let Some(queue) = queues.get_mut(event.object().key()) else { return Some(event) };
        let previous_len = queue.len();
        if is_full {
            merge(queue, event);
        } else {
            queue.push_back(event);
        }
        *count = (*count + queue.len()).saturating_sub(previous_len);
        None
    }

    /// Parks the first event of an object without parked events.
    pub(crate) fn park(&self, event: Event<K>) {
        let mut events = self.events();
        events.count += 1;
        let key = event.object().key().clone();
        events.queues.entry(key).or_default().push_back(event);
    }

    /// Returns the first event of an object. The event stays in the queue of the object. Removes the queue if it is
    /// empty.
    pub(crate) fn front(&self, key: &ObjectKey) -> Option<Event<K>> {
        let mut events = self.events();
        let front = events.queues.get(key).and_then(|queue| queue.front().cloned());
        if front.is_none() {
            events.queues.remove(key);
        }
        front
    }

    /// Removes the first event of an object after the event was passed.
    pub(crate) fn remove_front(&self, key: &ObjectKey) {
        let mut events = self.events();
        if events.queues.get_mut(key).and_then(VecDeque::pop_front).is_some() {
            events.count -= 1;
        }
    }

    fn events(&self) -> MutexGuard<'_, Events<K>> {
        self.events.lock()
    }
}

/// Appends `event` to the events of its object, merged with the last one if possible. The first event is being passed
/// to the engine and stays unchanged. Merging adds at most two events: a deletion, and one event of the next stay.
fn merge<K>(queue: &mut VecDeque<Event<K>>, event: Event<K>) {
    let last = if queue.len() > 1 { queue.pop_back() } else { None };
    let merged = match (last, event) {
        // The current state is parked already.
        (last, Event::Resynced { .. }) => last,
        (None | Some(Event::Resynced { .. }), event) => Some(event),
        (Some(Event::Added { initial, .. }), Event::Added { object, .. } | Event::Updated { new: object, .. }) => {
            Some(Event::Added { object, initial })
        }
        // The receiver has not seen the addition, so the deletion is dropped with it.
        (Some(Event::Added { .. }), Event::Deleted { .. }) => None,
        (Some(Event::Updated { old, .. }), Event::Updated { new, .. } | Event::Added { object: new, .. }) => {
            Some(Event::Updated { old, new })
        }
        (Some(Event::Updated { .. }), deleted @ Event::Deleted { .. }) => Some(deleted),
        (Some(end @ Event::Deleted { .. }), Event::Deleted { .. }) => Some(end),
        (Some(end @ Event::Deleted { .. }), begin) => {
            queue.push_back(end);
            Some(begin)
        }
    };
    queue.extend(merged);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steadfast::{Certainty, DeleteReason, Identity, Object};

    use super::*;

    /// Returns a state of the object `name`.
    fn object(name: &str, version: u64) -> Object<u64> {
        let key = ObjectKey::namespaced("default", name);
        let identity = Identity { key, uid: "u".into(), version: version.to_string().as_str().into() };
        Object::new(identity, Arc::new(version))
    }

    /// Parses an event of the object `a`: `+` and version for an addition, `*` and both versions for an update, `-` for
    /// an end.
    fn event(text: &str) -> Event<u64> {
        let (kind, versions) = text.split_at(1);
        let versions: Vec<u64> = versions.split('>').map(|version| version.parse().expect("a number")).collect();
        let state = |at: usize| object("a", versions[at]);
        match kind {
            "+" => Event::Added { object: state(0), initial: false },
            "*" => Event::Updated { old: state(0), new: state(1) },
            "-" => Event::Deleted {
                last: state(0),
                version: None,
                certainty: Certainty::Observed,
                reason: DeleteReason::Deleted,
            },
            _ => Event::Resynced { object: state(0) },
        }
    }

    fn text(event: &Event<u64>) -> String {
        match event {
            Event::Added { object, .. } => format!("+{}", object.arc()),
            Event::Updated { old, new } => format!("*{}>{}", old.arc(), new.arc()),
            Event::Deleted { last, .. } => format!("-{}", last.arc()),
            Event::Resynced { object } => format!("={}", object.arc()),
        }
    }

    /// Returns the passed events in order. Parked events beyond `limit` are merged.
    fn passed_events(limit: usize, events: &[&str]) -> Vec<String> {
        let parked = ParkedEvents::new(limit);
        for text in events {
            if let Some(event) = parked.park_if_waiting(event(text)) {
                parked.park(event);
            }
        }
        let key = object("a", 0).key().clone();
        let mut passed_events = Vec::new();
        while let Some(front) = parked.front(&key) {
            passed_events.push(text(&front));
            parked.remove_front(&key);
        }
        assert_eq!(parked.events().count, 0);
        passed_events
    }

    #[test]
    fn few_parked_events_stay_separate() {
        let events = ["+1", "*1>2", "*2>3", "-3", "+4", "-4"];
        assert_eq!(passed_events(10, &events), events);
    }

    #[test]
    fn merged_events_keep_ends_and_last_states() {
        for (events, expected) in [
            (&["*1>2", "*2>3", "*3>4", "*4>5"][..], &["*1>2", "*2>5"][..]),
            (&["*1>2", "*2>3", "-3"], &["*1>2", "-3"]),
            (&["*1>2", "-2", "+3", "*3>4"], &["*1>2", "-2", "+4"]),
            (&["*1>2", "-2", "+3", "*3>4", "-4", "+5"], &["*1>2", "-2", "+5"]),
            (&["*1>2", "-2", "+3", "-3"], &["*1>2", "-2"]),
            // The receiver may have seen the first event, but no event of the following stay.
            (&["-1", "+2", "*2>3", "-3"], &["-1"]),
            (&["+1", "=1", "*1>2", "=2"], &["+1", "*1>2"]),
        ] {
            assert_eq!(passed_events(0, events), expected, "{events:?}");
        }
    }

    #[test]
    fn limit_counts_events_of_all_objects() {
        let parked = ParkedEvents::new(3);
        for name in ["a", "b", "c"] {
            parked.park(Event::Added { object: object(name, 1), initial: false });
        }
        for version in 2..9 {
            let (old, new) = (object("a", version - 1), object("a", version));
            assert!(parked.park_if_waiting(Event::Updated { old, new }).is_none());
        }
        assert_eq!(parked.events().count, 4, "the updates of one object are one event");
    }
}
