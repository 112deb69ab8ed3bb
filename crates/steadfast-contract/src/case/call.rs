//! Handler calls, and the handler's knowledge before each call.

use std::time::Duration;

use super::moment::Moment;
use crate::seen::{Certainty, Key, Ref, Seen, StoreHeld};
use crate::view::{Place, Timeline};

/// A call of a handler.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) entered: Moment,
    pub(crate) seen: &'a Seen,
    pub(crate) retry: u32,
    pub(crate) store: &'a StoreHeld,
    pub(crate) end: Option<End>,
    /// Last delivered state of this name before the call. `None` after a delivered deletion, or without a delivery.
    pub(crate) open: Option<Prior<'a>>,
    /// Index of the handler's previous call for this name. `next` is the index of the following call.
    pub(crate) previous: Option<usize>,
    pub(crate) next: Option<usize>,
    /// Time at which the event was skipped, if this call was its last attempt.
    pub(crate) skipped: Option<Moment>,
    /// True if this call repeats the previous event and is marked as a retry.
    pub(crate) again: bool,
    /// Position of the delivered state on the timeline, relative to the states delivered before.
    pub(crate) place: Place,
    /// For a deletion: the state of the history that ended the stay.
    pub(crate) exit: Option<usize>,
}

impl<'a> Call<'a> {
    pub(crate) fn key(&self) -> &'a Key {
        self.seen.key()
    }

    pub(crate) fn panicked(&self) -> bool {
        self.end.is_some_and(|end| end.panicked)
    }

    /// Returns whether the delivered state exists in the history and is in scope.
    pub(crate) fn place_known(&self) -> bool {
        matches!(self.place, Place::At(_) | Place::Behind(_))
    }

    /// Returns the earliest state that the store may have while this call runs.
    pub(crate) fn store_from(&self) -> Option<usize> {
        match (self.seen, self.place) {
            (Seen::Deleted { .. }, _) => self.exit,
            // A state behind or outside of the timeline gives no lower bound for the store.
            (_, Place::At(index)) => Some(index),
            _ => None,
        }
    }
}

/// End of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) moment: Moment,
    pub(crate) panicked: bool,
}

/// Last state of an object that a handler received.
#[derive(Clone, Debug)]
pub(crate) struct Prior<'a> {
    pub(crate) uid: &'a str,
    pub(crate) version: &'a str,
    pub(crate) digest: Option<u64>,
    /// Index of the state on the name's timeline, if it exists there.
    pub(crate) index: Option<usize>,
    pub(crate) at: Duration,
}

/// Returns whether `object` is the last delivered state.
fn again(open: Option<&Prior<'_>>, object: &Ref) -> bool {
    // A state that the history lacks has no index, and never counts as repeated: each delivery of the state is a
    // violation.
    open.is_some_and(|open| open.uid == object.uid && open.version == object.version && open.index.is_some())
}

/// A handler's knowledge of one name while its calls are parsed.
#[derive(Debug, Default)]
pub(crate) struct Knowledge<'a> {
    pub(crate) open: Option<Prior<'a>>,
    /// First state of the timeline that may be delivered next.
    next: usize,
    pub(crate) last_call: Option<usize>,
}

impl<'a> Knowledge<'a> {
    /// Processes an event: determines its place, and the end of the stay for a deletion.
    pub(crate) fn learn(
        &mut self,
        line: &Timeline<'_>,
        seen: &'a Seen,
        ordered: bool,
        at: Duration,
        known_by: Duration,
    ) -> (Place, Option<usize>) {
        let object = seen.object();
        // Only the last delivery of the same UID is a valid reference.
        let here = self.open.as_ref().filter(|open| open.uid == object.uid).and_then(|open| open.index);
        let from = match seen {
            Seen::Added { .. } | Seen::Updated { .. } => self.next,
            // A deletion or a resync repeats the last delivered state.
            Seen::Deleted { .. } | Seen::Resynced { .. } => here.unwrap_or(self.next),
        };
        let place = match line.find(object, from, known_by) {
            // Without an order of versions, a step back cannot be distinguished from a step forward.
            Place::Behind(index) if !ordered => Place::At(index),
            // A repeated delivery, valid or not, keeps its place.
            Place::Behind(_) if again(self.open.as_ref(), object) => here.map_or(Place::Never, Place::At),
            place => place,
        };
        let exit = match seen {
            Seen::Deleted { last, certainty, version, .. } => {
                exit(line, last, place, here, *certainty, version.as_deref())
            }
            _ => None,
        };
        match seen {
            Seen::Added { object, .. } | Seen::Updated { new: object, .. } => {
                let index = if let Place::At(index) = place { Some(index) } else { None };
                // The next delivery must be later. A state that the history lacks does not move the position.
                self.next = index.map_or(self.next, |index| index + 1);
                let (uid, version) = (object.uid.as_str(), object.version.as_str());
                self.open = Some(Prior { uid, version, digest: object.digest, index, at });
            }
            Seen::Deleted { .. } => {
                self.open = None;
                // A restore can replace one object by another, so the exit can also be the entry of another object.
                self.next = self.next.max(exit.unwrap_or_default());
            }
            Seen::Resynced { .. } => {}
        }
        (place, exit)
    }
}

/// Returns the state that ended the stay, for a deletion.
///
/// Uses the handler's knowledge if the history lacks `last`, so that one error does not cause others.
fn exit(
    line: &Timeline<'_>,
    last: &Ref,
    place: Place,
    here: Option<usize>,
    certainty: Certainty,
    version: Option<&str>,
) -> Option<usize> {
    // `Behind` and `Outside` also contain an index, but the handler's stay cannot end after that state.
    let index = match place {
        Place::At(index) => index,
        _ => here?,
    };
    let stay = line.states[index].stay?;
    let ends = line.stays[stay..].iter().map_while(|stay| stay.end);
    let named = |end: &usize| certainty == Certainty::Observed && version == Some(&*line.states[*end].text);
    // Two epochs can contain the same version. Of several candidates, the end that directly follows the delivered state
    // is correct.
    let of_last = |end: &usize| line.states[*end - 1].shows(last);
    let mut observed = ends.clone().filter(named);
    // An inferred deletion names no version, so the first end from this stay on counts.
    observed.clone().find(of_last).or_else(|| observed.next()).or_else(|| ends.clone().next())
}
