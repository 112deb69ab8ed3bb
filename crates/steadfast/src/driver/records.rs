//! Records and list entries: who they are about, whether they are wanted, and the form in which they are kept.
//!
//! All of this is done before the store is locked, the user's own code included.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use steadfast_core::breach::Breach;
use steadfast_core::decode::{
    self, DecodeError, Kept, PartialIdentity, RawObject, RecordError, RecordProblem, Wanted, WatchRecord,
};
use steadfast_core::frame::{ItemFramer, Line, ListPart, StreamFramer};
use steadfast_core::record::{Identity, ListMeta, RecordKind};
use steadfast_core::reflector::{Failure, Input, Note, Record, RequestId, Verdict};
use steadfast_core::store::{Offer, Tainted};
use steadfast_core::{Instant, ResourceVersion};

use super::Driver;
use super::edits::Edit;

/// So many objects that were read and do not fit are noted at once.
const MOST_TOGETHER: usize = 64;

impl<K: Kept> Driver<K> {
    pub(super) fn read_stream(&mut self, now: Instant, id: RequestId, framer: &mut StreamFramer) {
        let encoding = framer.encoding();
        while let Some(line) = framer.next() {
            let record = match &line {
                Line::Whole(record) => decode::watch_record(encoding, record, Some(&self.asker.wanted)),
                Line::Overlong(record) => Err(decode::overlong(record, Some(&self.asker.wanted))),
            };
            let (verdict, object) = match self.counted(record) {
                Ok(WatchRecord::Object { object, .. }) if self.asker.is_stray(&object.identity.key) => {
                    self.stray(now, id, &object.identity);
                    continue;
                }
                Ok(WatchRecord::Object { kind, object }) => {
                    self.meet(&object.identity);
                    let verdict = self.reflector.record(now, id, Record::Object(kind, &object.identity));
                    (verdict, Some((kind, object)))
                }
                Ok(WatchRecord::Bookmark(bookmark)) => {
                    (self.reflector.record(now, id, Record::Bookmark(&bookmark)), None)
                }
                Ok(WatchRecord::Error(status)) => {
                    self.ledger.failed(id, Failure::from_status(&status, None).kind);
                    self.drop_request(id);
                    (self.reflector.record(now, id, Record::Error(&status)), None)
                }
                Err(error) => {
                    self.unreadable(now, id, &error);
                    continue;
                }
            };
            match (verdict, object) {
                (Verdict::Apply, Some((kind, object))) => {
                    let kept = if kind == RecordKind::Deleted { Err(Tainted) } else { self.kept(&object) };
                    self.edits.push(Edit::Apply(kind, object.identity, kept));
                }
                (Verdict::Older { unbroken }, Some((kind, object))) => {
                    self.older(now, id, kind, &object.identity, unbroken);
                }
                (Verdict::Stage, Some((RecordKind::Deleted, object))) => self.unstage(&object.identity),
                (Verdict::Stage, Some((_, object))) => self.stage(&object),
                (Verdict::Do(outputs), _) => self.perform(outputs),
                _ => {}
            }
        }
        if let Some(bytes) = framer.endless() {
            self.endless(bytes);
        }
    }

    pub(super) fn read_list(
        &mut self,
        now: Instant,
        id: RequestId,
        framer: &mut ItemFramer,
        meta: &mut Option<ListMeta>,
    ) -> Result<(), Failure> {
        let encoding = framer.encoding();
        // To be compared, metadata are asked for, whatever is kept.
        let compared = self.comparison.as_ref().is_some_and(|comparison| comparison.id == Some(id));
        let asked = &self.asker.wanted;
        let wanted = Wanted { metadata: asked.metadata || compared, ..asked.clone() };
        while let Some(part) = framer.next() {
            match part.map_err(|error| Failure::unreadable(error.to_string()))? {
                ListPart::Item(item) => match decode::list_item(encoding, &item, Some(&wanted)) {
                    Ok(object) if self.asker.is_stray(&object.identity.key) => self.stray(now, id, &object.identity),
                    Ok(mut object) => {
                        self.disorder.count(&mut object.identity.version);
                        self.meet(&object.identity);
                        match self.reflector.list_item(now, id, &object.identity) {
                            Verdict::Stage => self.stage(&object),
                            Verdict::Compare => self.compare(&object.identity),
                            Verdict::Do(outputs) => self.perform(outputs),
                            _ => {}
                        }
                    }
                    Err(error) => self.unreadable(now, id, &error),
                },
                ListPart::Overlong(item) => self.unreadable(now, id, &decode::overlong(&item, Some(&wanted))),
                ListPart::Meta(found) => *meta = Some(found),
                ListPart::Status(status) => return Err(Failure::from_status(&status, None)),
                ListPart::End { kind, items } => self.asker.check_list(kind.as_deref(), items, wanted.metadata)?,
            }
        }
        if let Some(bytes) = framer.endless() {
            self.endless(bytes);
        }
        Ok(())
    }

    /// Tells of a record that may have no end: it costs nothing but what comes behind it.
    fn endless(&mut self, bytes: u64) {
        self.notes.push(Note::Endless { bytes, limit: self.keeping.object_limit });
    }

    /// Takes in a record or an item that cannot be read, by what is known of its object (R8).
    fn unreadable(&mut self, now: Instant, id: RequestId, error: &RecordError) {
        match tainted(error) {
            Some((kind, identity)) => self.tainted_record(now, id, kind, identity, error),
            None => self.unidentified(now, id, error),
        }
    }

    /// Takes in a record whose object cannot be read, though it is known which one it is (R8).
    fn tainted_record(
        &mut self,
        now: Instant,
        id: RequestId,
        kind: RecordKind,
        mut identity: Identity,
        error: &RecordError,
    ) {
        self.disorder.count(&mut identity.version);
        self.meet(&identity);
        let verdict = match self.reflector.list_item(now, id, &identity) {
            Verdict::Skip => self.reflector.record(now, id, Record::Object(kind, &identity)),
            staged => staged,
        };
        match (verdict, kind) {
            (Verdict::Apply, _) => {
                if kind != RecordKind::Deleted {
                    self.notes.extend(self.undecodable(&identity, error));
                }
                self.edits.push(Edit::Apply(kind, identity, Err(Tainted)));
            }
            (Verdict::Stage, RecordKind::Deleted) => self.unstage(&identity),
            (Verdict::Stage, _) => self.stage_tainted(identity, error),
            (Verdict::Do(outputs), _) => self.perform(outputs),
            (Verdict::Compare, _) => self.compare(&identity),
            (Verdict::Older { unbroken }, _) => self.older(now, id, kind, &identity, unbroken),
            (Verdict::Skip, _) => {}
        }
    }

    /// Tells once of objects that have no UID (C1).
    fn meet(&mut self, identity: &Identity) {
        if !identity.uid.is_given() && !std::mem::replace(&mut self.meets_by_name, true) {
            self.notes.push(Note::KnownByName { key: identity.key.clone() });
        }
    }

    /// The record with its version as it counts here.
    fn counted(&self, mut record: Result<WatchRecord, RecordError>) -> Result<WatchRecord, RecordError> {
        match &mut record {
            Ok(WatchRecord::Object { object, .. }) => self.disorder.count(&mut object.identity.version),
            Ok(WatchRecord::Bookmark(bookmark)) => self.disorder.count(&mut bookmark.version),
            Ok(WatchRecord::Error(_)) | Err(_) => {}
        }
        record
    }

    /// Takes in a record that is below the version held: it is known, or a list decides.
    fn older(&mut self, now: Instant, id: RequestId, kind: RecordKind, record: &Identity, unbroken: bool) {
        let snapshot = self.shared.snapshot();
        let pending = self.edits.iter().rev().find_map(|edit| match edit {
            Edit::Apply(kind, edited, _) if edited.key == record.key => Some((*kind, edited)),
            _ => None,
        });
        let held = match pending {
            // Known by its name alone, it may be another one.
            Some((RecordKind::Deleted, edited)) if edited.uid == record.uid && record.uid.is_given() => return,
            Some((RecordKind::Deleted, _)) => None,
            Some((_, edited)) => Some((&edited.uid, &edited.version)),
            None => {
                let entry = snapshot.entry(record.key.namespace(), record.key.name());
                entry.map(|entry| (entry.uid(), entry.version()))
            }
        };
        if !self.disorder.is_news(kind, record, held) {
            return;
        }
        self.disorder.doubt(kind, record, unbroken);
        let held = self.reflector.version().map_or("none", ResourceVersion::as_str);
        let what = match kind {
            RecordKind::Added => "was added",
            RecordKind::Modified => "was changed",
            RecordKind::Deleted => "was deleted",
        };
        let why =
            format!("{} {what} at version {}, below {held} that is held, and that is news", record.key, record.version);
        let outputs = self.reflector.step(now, Input::Contradicted(id, why.into()));
        self.perform(outputs);
    }

    /// Leaves out an object that is none of the informer's: the server, or a proxy, answers what was not asked.
    fn stray(&mut self, now: Instant, id: RequestId, identity: &Identity) {
        let why = self.asker.why_stray(&identity.key);
        let outputs = self.reflector.step(now, Input::Unidentified(id, why.into()));
        self.perform(outputs);
    }

    fn unidentified(&mut self, now: Instant, id: RequestId, error: &RecordError) {
        let outputs = self.reflector.step(now, Input::Unidentified(id, error.to_string().into()));
        self.perform(outputs);
    }

    fn compare(&mut self, identity: &Identity) {
        if let Some(comparison) = &mut self.comparison {
            comparison.see(&self.shared.snapshot(), identity);
        }
    }

    fn stage(&mut self, object: &RawObject) {
        let copied = self.reflector.evidence().breaches.commit(Breach::CopiedRelist);
        let Some(staging) = &mut self.staging else { return };
        if copied || staging.offer(&object.identity) == Offer::Wanted {
            match self.keep(object) {
                Ok(kept) => {
                    if let Some(staging) = &mut self.staging {
                        staging.put(object.identity.clone(), Ok(kept));
                    }
                }
                Err(why) => self.stage_tainted(object.identity.clone(), &why),
            }
        }
    }

    fn stage_tainted(&mut self, identity: Identity, why: &impl ToString) {
        if let Some(note) = self.undecodable(&identity, why) {
            self.complaints.stage(note);
        }
        if let Some(staging) = &mut self.staging {
            staging.put(identity, Err(Tainted));
        }
    }

    /// What there is to tell of a state that cannot be decoded; nothing where it is held as such, and so was reported.
    fn undecodable(&self, identity: &Identity, why: &impl ToString) -> Option<Note> {
        let Identity { key, uid, version } = identity;
        let snapshot = self.shared.snapshot();
        let told = snapshot.entry(key.namespace(), key.name());
        if told.is_some_and(|held| held.is_tainted() && held.uid().is_same(uid) && held.version() == version) {
            return None;
        }
        Some(Note::Undecodable { key: key.clone(), version: version.clone(), why: why.to_string().into() })
    }

    /// Takes note of a state that was kept and could not be decoded when it was read (R8).
    pub(super) fn unread(&mut self, error: &DecodeError) {
        let (key, version) = (error.key(), error.version());
        let snapshot = self.shared.snapshot();
        let held = snapshot.entry(key.namespace(), key.name()).filter(|held| !held.is_tainted());
        // One that the server did not give is made of all bytes, and what is kept lacks some.
        let is_read = |held: &ResourceVersion| held == version || !held.is_given() && !version.is_given();
        let Some(held) = held.filter(|held| is_read(held.version())) else { return };
        let is_noted = |edit: &Edit<K>| matches!(edit, Edit::Taint(noted, at) if noted == key && at == held.version());
        if self.edits.iter().any(is_noted) {
            return;
        }
        self.notes.extend(self.undecodable(held.identity(), error));
        self.edits.push(Edit::Taint(key.clone(), held.version().clone()));
        if self.edits.len() >= MOST_TOGETHER {
            self.flush();
        } else {
            self.unpublished.get_or_insert(self.shared.environment.now());
        }
    }

    fn unstage(&mut self, identity: &Identity) {
        if let Some(staging) = &mut self.staging {
            staging.remove(identity);
        }
    }

    /// The form in which a watched object is kept; what has none taints its entry (R8).
    fn kept(&mut self, object: &RawObject) -> Result<Arc<K>, Tainted> {
        self.keep(object).map_err(|why| {
            self.notes.extend(self.undecodable(&object.identity, &why));
            Tainted
        })
    }

    /// Decodes an object into the form in which it is kept, or says why it cannot.
    fn keep(&mut self, object: &RawObject) -> Result<Arc<K>, String> {
        let Self { decoder, keeping, .. } = self;
        // The user's own code: what it breaks stays with this object.
        let kept = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let kept = K::decode(object, decoder)?;
            Ok(match &keeping.transform {
                Some(transform) => transform(kept),
                None => kept,
            })
        }));
        match kept {
            Ok(Ok(kept)) => Ok(Arc::new(kept)),
            Ok(Err::<_, DecodeError>(error)) => Err(error.to_string()),
            Err(_) => Err(format!("{}: decoding or transforming it panicked", object.identity.key)),
        }
    }
}

/// Which object a record is about that cannot be read, where enough of it could be.
fn tainted(error: &RecordError) -> Option<(RecordKind, Identity)> {
    // One of another sort may well have the name of one of ours.
    if let RecordProblem::OtherKind { .. } = error.problem {
        return None;
    }
    let PartialIdentity { key, uid, version } = (*error.identity).clone();
    let kind = error.kind.unwrap_or(RecordKind::Added);
    Some((kind, Identity { key: key?, uid: uid?, version: version? }))
}
