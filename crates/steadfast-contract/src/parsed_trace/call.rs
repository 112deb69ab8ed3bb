//! Handler calls, and the handler's knowledge before each call.

use std::time::Duration;

use super::position::TracePosition;
use crate::objects::{Certainty, HandlerEvent, Key, ObjectVersionRef, StoreContent};
use crate::view::{Timeline, TimelinePosition};

/// A call of a handler.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) start: TracePosition,
    pub(crate) event: &'a HandlerEvent,
    pub(crate) retry: u32,
    pub(crate) store: &'a StoreContent,
    pub(crate) end: Option<CallEnd>,
    /// Last delivered state of this name before the call. `None` after a delivered deletion, or without a delivery.
    pub(crate) last_delivered: Option<DeliveredState<'a>>,
    /// Index of the handler's previous call for this name. `next_for_name` is the index of the following call.
    pub(crate) previous_for_name: Option<usize>,
    pub(crate) next_for_name: Option<usize>,
    /// Time at which the event was skipped, if this call was its last attempt.
    pub(crate) skipped_at: Option<TracePosition>,
    /// True if this call repeats the previous event and is marked as a retry.
    pub(crate) is_retry: bool,
    /// Position of the delivered state on the timeline, relative to the states delivered before.
    pub(crate) timeline_position: TimelinePosition,
    /// For a deletion: the state of the history that ended the stay.
    pub(crate) exit_state: Option<usize>,
}

impl<'a> Call<'a> {
    pub(crate) fn key(&self) -> &'a Key {
        self.event.key()
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.end.is_some_and(|end| end.has_panicked)
    }

    /// Returns whether the delivered state exists in the history and is in scope.
    pub(crate) fn is_in_scope(&self) -> bool {
        matches!(self.timeline_position, TimelinePosition::At(_) | TimelinePosition::Before(_))
    }

    /// Returns the earliest state that the cache may have at the start of this call.
    pub(crate) fn oldest_store_state(&self) -> Option<usize> {
        match (self.event, self.timeline_position) {
            (HandlerEvent::Deleted { .. }, _) => self.exit_state,
            // A state before the reached index, or outside of the scope, gives no lower bound for the cache.
            (_, TimelinePosition::At(index)) => Some(index),
            _ => None,
        }
    }
}

/// End of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEnd {
    pub(crate) position: TracePosition,
    pub(crate) has_panicked: bool,
}

/// Last state of an object that a handler received.
#[derive(Clone, Debug)]
pub(crate) struct DeliveredState<'a> {
    pub(crate) uid: &'a str,
    pub(crate) version: &'a str,
    pub(crate) digest: Option<u64>,
    /// Index of the state on the name's timeline, if it exists there.
    pub(crate) index: Option<usize>,
    pub(crate) at: Duration,
}

/// Returns whether `object` is the last delivered state.
fn is_last_delivered(last_delivered: Option<&DeliveredState<'_>>, object: &ObjectVersionRef) -> bool {
    // A state that the history lacks has no index, and never counts as repeated: each delivery of the state is a
    // violation.
    last_delivered.is_some_and(|last_delivered| {
        last_delivered.uid == object.uid && last_delivered.version == object.version && last_delivered.index.is_some()
    })
}

/// A handler's knowledge of one name while its calls are parsed.
#[derive(Debug, Default)]
pub(crate) struct DeliveryHistory<'a> {
    pub(crate) last_delivered: Option<DeliveredState<'a>>,
    /// First state of the timeline that may be delivered next.
    next_state: usize,
    pub(crate) last_call: Option<usize>,
}

impl<'a> DeliveryHistory<'a> {
    /// Processes an event: determines its position, and the end of the stay for a deletion.
    pub(crate) fn process(
        &mut self,
        timeline: &Timeline<'_>,
        event: &'a HandlerEvent,
        has_ordered_versions: bool,
        at: Duration,
        latest: Duration,
    ) -> (TimelinePosition, Option<usize>) {
        let object = event.object();
        // Only the last delivery of the same UID is a valid reference.
        let delivered_index = self
            .last_delivered
            .as_ref()
            .filter(|last_delivered| last_delivered.uid == object.uid)
            .and_then(|last_delivered| last_delivered.index);
        let from = match event {
            HandlerEvent::Added { .. } | HandlerEvent::Updated { .. } => self.next_state,
            // A deletion or a resync repeats the last delivered state.
            HandlerEvent::Deleted { .. } | HandlerEvent::Resynced { .. } => delivered_index.unwrap_or(self.next_state),
        };
        let timeline_position = match timeline.find(object, from, latest) {
            // Without an order of versions, a step back cannot be distinguished from a step forward.
            TimelinePosition::Before(index) if !has_ordered_versions => TimelinePosition::At(index),
            // A repeated delivery, valid or not, keeps its position.
            TimelinePosition::Before(_) if is_last_delivered(self.last_delivered.as_ref(), object) => {
                delivered_index.map_or(TimelinePosition::Missing, TimelinePosition::At)
            }
            timeline_position => timeline_position,
        };
        let exit_state = match event {
            HandlerEvent::Deleted { last, certainty, version, .. } => {
                exit_state(timeline, last, timeline_position, delivered_index, *certainty, version.as_deref())
            }
            _ => None,
        };
        match event {
            HandlerEvent::Added { object, .. } | HandlerEvent::Updated { new: object, .. } => {
                let index = if let TimelinePosition::At(index) = timeline_position { Some(index) } else { None };
                // The next delivery must be later. A state that the history lacks does not move the position.
                self.next_state = index.map_or(self.next_state, |index| index + 1);
                let (uid, version) = (object.uid.as_str(), object.version.as_str());
                self.last_delivered = Some(DeliveredState { uid, version, digest: object.digest, index, at });
            }
            HandlerEvent::Deleted { .. } => {
                self.last_delivered = None;
                // A restore can replace one object by another, so the exit can also be the entry of another object.
                self.next_state = self.next_state.max(exit_state.unwrap_or_default());
            }
            HandlerEvent::Resynced { .. } => {}
        }
        (timeline_position, exit_state)
    }
}

/// Returns the index of the state that ended the stay, for a deletion.
///
/// Uses the handler's knowledge if the history lacks `last`, so that one error does not cause others.
fn exit_state(
    timeline: &Timeline<'_>,
    last: &ObjectVersionRef,
    timeline_position: TimelinePosition,
    delivered_index: Option<usize>,
    certainty: Certainty,
    version: Option<&str>,
) -> Option<usize> {
    // `Before` and `OutOfScope` also contain an index, but the handler's stay cannot end after that state.
    let index = match timeline_position {
        TimelinePosition::At(index) => index,
        _ => delivered_index?,
    };
    let stay = timeline.states[index].stay?;
    let stay_ends = timeline.stays[stay..].iter().map_while(|stay| stay.end);
    let has_reported_version =
        |end: &usize| certainty == Certainty::Observed && version == Some(&*timeline.states[*end].wire_version);
    // Two epochs can contain the same version. Of several candidates, the end that directly follows the delivered state
    // is correct.
    let follows_last_object = |end: &usize| timeline.states[*end - 1].matches(last);
    let mut matching_ends = stay_ends.clone().filter(has_reported_version);
    // An inferred deletion names no version, so the first end from this stay on counts.
    matching_ends
        .clone()
        .find(follows_last_object)
        .or_else(|| matching_ends.next())
        .or_else(|| stay_ends.clone().next())
}
