//! Records and list entries that belong to no object that can be named (R8).
//!
//! Nothing can be marked as unknown for them, so the whole cache is in doubt until a list has no such entry. A list may
//! name what a record did not; one that cannot is made again ever more rarely.

use std::sync::Arc;
use std::time::Duration;

use super::full::Full;
use super::{Failure, Input, Note, Output, Phase, Reflector, RequestId, Verdict};
use crate::record::Identity;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// What came unnamed, and when a list is to tell what it was.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    /// What is wrong with the last of it, since the last list began.
    pub(super) why: Option<Arc<str>>,
    /// When to list.
    pub(super) due: Option<Instant>,
    /// Whether it was about a record whose version contradicts what is held.
    contradicted: bool,
    /// The end of the last list that was made for this.
    listed: Option<Instant>,
    /// The lists in a row that had unnamed entries themselves.
    in_vain: u32,
}

impl Unnamed {
    /// Whether there is nothing that a list is to name.
    pub(super) fn is_at_rest(&self) -> bool {
        self.why.is_none() && self.due.is_none()
    }

    /// A list begins: what it says counts from here on.
    pub(super) fn list_begins(&mut self) {
        self.why = None;
    }

    /// The list is complete.
    pub(super) fn list_complete(&mut self, now: Instant, period: Duration) {
        if self.due.take().is_some() {
            self.listed = Some(now);
        }
        if self.why.is_none() {
            self.in_vain = 0;
            return;
        }
        self.due = Some(now + period * (5 << self.in_vain.min(4)));
        self.in_vain += 1;
    }

    /// A record of a watch was unnamed: a list may name it, once a period at most.
    fn record(&mut self, now: Instant, period: Duration) {
        let due = self.listed.map_or(now, |listed| now.max(listed + period));
        self.due = Some(self.due.map_or(due, |planned| planned.min(due)));
    }
}

impl Reflector {
    /// Takes in [`super::Input::Unidentified`].
    pub(super) fn unidentified(&mut self, now: Instant, id: RequestId, why: Arc<str>, out: &mut Vec<Output>) {
        let (watched, compared) = (self.is_read_from(id), self.is_comparing(id));
        let spared = self.is_sparing(id);
        match &mut self.phase {
            Phase::Listing { id: listing, progress, .. } if *listing == id => *progress = now,
            _ if spared => return self.list_all(now, why, out),
            _ if compared => {
                let failure =
                    Failure::unreadable(format!("a list of versions has an entry that cannot be named: {why}"));
                out.push(Output::Cancel(id));
                self.comparison_failed(now, &failure, out);
                return;
            }
            _ if watched => self.unnamed.record(now, self.settings.period),
            _ => return,
        }
        self.unnamed.why = Some(why.clone());
        self.evidence.unnamed = true;
        out.push(Output::Note(Note::Unidentified { why }));
        if watched {
            self.set_streaming(now);
        }
    }

    /// Takes in an object that has no version where one is needed: to watch on from, or to be compared with what is held.
    pub(super) fn unversioned(&mut self, now: Instant, id: RequestId, identity: &Identity) -> Verdict {
        let why: Arc<str> = format!("{} came without a version to watch from", identity.key).into();
        if !matches!(self.phase, Phase::Listing { id: listing, streamed: true, .. } if listing == id) {
            return Verdict::Do(self.step(now, Input::Unidentified(id, why)));
        }
        let mut out = vec![Output::Cancel(id)];
        self.fall_back(now, why, &mut out);
        Verdict::Do(out)
    }

    /// Takes in [`super::Input::Contradicted`]: a list decides, once a period at most.
    pub(super) fn contradicted(&mut self, now: Instant, id: RequestId, why: Arc<str>, out: &mut Vec<Output>) {
        if !self.is_read_from(id) {
            return;
        }
        self.unnamed.record(now, self.settings.period);
        self.unnamed.why = Some(why.clone());
        self.unnamed.contradicted = true;
        self.evidence.unnamed = true;
        out.push(Output::Note(Note::Contradicted { why }));
        self.set_streaming(now);
    }

    /// Takes in [`super::Input::Disordered`]: from here on the version that is held is only what to watch from.
    pub(super) fn disordered(&mut self, out: &mut Vec<Output>) {
        out.push(Output::Note(Note::Disordered));
        self.version = self.version.as_ref().map(ResourceVersion::unordered);
        self.evidence.version.clone_from(&self.version);
    }

    /// Lists to find out what came unnamed, if that is due.
    pub(super) fn list_unnamed(&mut self, now: Instant, out: &mut Vec<Output>) {
        if self.unnamed.due.is_none_or(|due| now < due) {
            return;
        }
        self.leave_watch(out);
        let why = self.unnamed.why.clone().unwrap_or_else(|| "a record could not be read".into());
        // Where versions are in doubt, none can be asked for.
        let contradicted = std::mem::take(&mut self.unnamed.contradicted);
        let full = if contradicted { Full::first() } else { Full::again(self.version.as_ref()) };
        self.relist(now, full, why, out);
    }
}
