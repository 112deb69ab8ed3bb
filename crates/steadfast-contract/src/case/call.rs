//! One call of a handler, and what the handler knew before it.

use std::time::Duration;

use super::moment::Moment;
use crate::seen::{Certainty, Key, Ref, Seen, StoreHeld};
use crate::view::{Place, Timeline};

/// One call of a handler.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) entered: Moment,
    pub(crate) seen: &'a Seen,
    pub(crate) retry: u32,
    pub(crate) store: &'a StoreHeld,
    pub(crate) end: Option<End>,
    /// The object under this name that the handler had been given and not seen deleted.
    pub(crate) open: Option<Prior<'a>>,
    /// The handler's last call for this name, and its next.
    pub(crate) previous: Option<usize>,
    pub(crate) next: Option<usize>,
    /// When the event was given up, with this call as its last try.
    pub(crate) skipped: Option<Moment>,
    /// Whether this is the same event again, as the retry it is marked as.
    pub(crate) again: bool,
    /// Where the state delivered is found, seen from what the handler had been given.
    pub(crate) place: Place,
    /// The state that ended the stay, for a deletion: as the history has it.
    pub(crate) exit: Option<usize>,
}

impl<'a> Call<'a> {
    pub(crate) fn key(&self) -> &'a Key {
        self.seen.key()
    }

    pub(crate) fn panicked(&self) -> bool {
        self.end.is_some_and(|end| end.panicked)
    }

    /// Whether the state delivered is one of the history that the object was in scope in.
    pub(crate) fn place_known(&self) -> bool {
        matches!(self.place, Place::At(_) | Place::Behind(_))
    }

    /// The place from which on the store must stand while this call runs.
    pub(crate) fn store_from(&self) -> Option<usize> {
        match (self.seen, self.place) {
            (Seen::Deleted { .. }, _) => self.exit,
            (_, Place::At(index)) => Some(index),
            _ => None,
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) moment: Moment,
    pub(crate) panicked: bool,
}

/// What a handler was last given of an object.
#[derive(Clone, Debug)]
pub(crate) struct Prior<'a> {
    pub(crate) uid: &'a str,
    pub(crate) version: &'a str,
    pub(crate) digest: Option<u64>,
    /// The state on the name's timeline, if it is found there.
    pub(crate) index: Option<usize>,
    pub(crate) at: Duration,
}

/// Whether `object` is the very state that was delivered last.
fn again(open: Option<&Prior<'_>>, object: &Ref) -> bool {
    open.is_some_and(|open| open.uid == object.uid && open.version == object.version && open.index.is_some())
}

/// What a handler knows of one name, while its calls are read.
#[derive(Debug, Default)]
pub(crate) struct Knowledge<'a> {
    pub(crate) open: Option<Prior<'a>>,
    /// The first state of the timeline that it may be given next.
    next: usize,
    pub(crate) last_call: Option<usize>,
}

impl<'a> Knowledge<'a> {
    /// Takes in an event: where it is placed, and for a deletion what ended the stay.
    pub(crate) fn learn(
        &mut self,
        line: &Timeline<'_>,
        seen: &'a Seen,
        ordered: bool,
        at: Duration,
        known_by: Duration,
    ) -> (Place, Option<usize>) {
        let object = seen.object();
        let here = self.open.as_ref().filter(|open| open.uid == object.uid).and_then(|open| open.index);
        let from = match seen {
            Seen::Added { .. } | Seen::Updated { .. } => self.next,
            // A deletion or a resync shows the state again that was told last.
            Seen::Deleted { .. } | Seen::Resynced { .. } => here.unwrap_or(self.next),
        };
        let place = match line.find(object, from, known_by) {
            Place::Behind(index) if !ordered => Place::At(index),
            // Told once more, rightly or not: it is where it was.
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
                self.next = index.map_or(self.next, |index| index + 1);
                let (uid, version) = (object.uid.as_str(), object.version.as_str());
                self.open = Some(Prior { uid, version, digest: object.digest, index, at });
            }
            Seen::Deleted { .. } => {
                self.open = None;
                // The exit itself may be the entry of another object, where a restore put it there.
                self.next = self.next.max(exit.unwrap_or_default());
            }
            Seen::Resynced { .. } => {}
        }
        (place, exit)
    }
}

/// The state that ended the stay of which a deletion tells.
///
/// Taken from what the handler knew where `last` itself cannot be found, so that one error does not breed others.
fn exit(
    line: &Timeline<'_>,
    last: &Ref,
    place: Place,
    here: Option<usize>,
    certainty: Certainty,
    version: Option<&str>,
) -> Option<usize> {
    let index = match place {
        Place::At(index) => index,
        _ => here?,
    };
    let stay = line.states[index].stay?;
    let ends = line.stays[stay..].iter().map_while(|stay| stay.end);
    let named = |end: &usize| certainty == Certainty::Observed && version == Some(&*line.states[*end].text);
    // Two epochs can give a version twice; then it is the one that ended the state told.
    let of_last = |end: &usize| line.states[*end - 1].shows(last);
    let mut observed = ends.clone().filter(named);
    observed.clone().find(of_last).or_else(|| observed.next()).or_else(|| ends.clone().next())
}
