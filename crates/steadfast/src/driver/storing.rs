//! Decoding of wanted objects into their cached form, for the list or edit that they belong to.
//!
//! All of this runs before the store is locked, including user code.

use steadfast_core::decode::{Cacheable, DecodeError, RawObject};
use steadfast_core::fault_injection::inject;
use steadfast_core::record::{Identity, RecordKind};
use steadfast_core::reflector::{Diagnostic, Input, Output, RequestId};
use steadfast_core::store::{OfferResult, Tainted};
use steadfast_core::{Instant, ResourceVersion, WithSize};

use super::Driver;
use super::decoding::DecodePurpose;
use super::edits::Edit;

/// Maximum number of read failures processed together.
const MAX_READ_FAILURES_PER_FLUSH: usize = 64;

/// Maximum number of remembered failures of objects that are not in the cache yet.
const MAX_EARLY_FAILURES: usize = 10_000;

impl<K: Cacheable> Driver<K> {
    /// Processes a watch event of an object.
    pub(super) fn apply(&mut self, kind: RecordKind, object: RawObject) {
        if kind == RecordKind::Deleted {
            self.edits.push(Edit::Apply(kind, object.identity, Err(Tainted)));
        } else if self.decoding.is_shared() {
            // The edit keeps its place in the order of arrival, and counts as tainted until the object is decoded.
            self.edits.push(Edit::Apply(kind, object.identity.clone(), Err(Tainted)));
            let diagnostic_index = self.diagnostics.len() - self.late_diagnostics;
            self.submit(DecodePurpose::Edited { edit: self.edits.len() - 1, diagnostic_index }, object);
        } else {
            let kept = self.decoding.decode(&object).map_err(|why| {
                self.diagnostics.extend(self.undecodable(&object.identity, &why));
                Tainted
            });
            if let Ok(kept) = &kept
                && kept.is_on_demand()
            {
                self.decoded_forms.event(&object.identity.key, kept, self.shared.environment.now());
            }
            self.edits.push(Edit::Apply(kind, object.identity, kept));
        }
    }

    /// Adds an object to the list in progress.
    pub(super) fn stage(&mut self, object: RawObject) {
        let copied = inject!(self.reflector.evidence().faults, CopiedRelist);
        let Some(staging) = &mut self.staging else { return };
        // UID and version identify the content, so an unchanged object needs no decoding and keeps its memory.
        if !copied && staging.offer(&object.identity) == OfferResult::Unchanged {
            return;
        }
        if self.decoding.is_shared() {
            let place = staging.put_unfilled(object.identity.clone());
            let diagnostic_index = self.log_throttle.diagnostic_index();
            self.submit(DecodePurpose::Listed { place, diagnostic_index }, object);
            return;
        }
        match self.decoding.decode(&object) {
            Ok(kept) => staging.put(object.identity, Ok(kept)),
            Err(why) => self.stage_tainted(object.identity, &why),
        }
    }

    /// Processes the metadata of an object in a delta list: the cached object is current, or must be requested. Returns
    /// the reflector's actions.
    pub(super) fn offer(&mut self, now: Instant, id: RequestId, identity: Identity) -> Vec<Output> {
        let Some(staging) = &mut self.staging else { return Vec::new() };
        if staging.offer_unseen(&identity) == OfferResult::Requested {
            self.reflector.step(now, Input::Differs(id, identity))
        } else {
            Vec::new()
        }
    }

    pub(super) fn stage_tainted(&mut self, identity: Identity, why: &impl ToString) {
        if let Some(diagnostic) = self.undecodable(&identity, why) {
            self.log_throttle.stage(diagnostic);
        }
        if let Some(staging) = &mut self.staging {
            staging.put(identity, Err::<WithSize<K>, _>(Tainted));
        }
    }

    pub(super) fn unstage(&mut self, identity: &Identity) {
        if let Some(staging) = &mut self.staging {
            staging.remove(identity);
        }
    }

    /// Submits an object for decoding.
    fn submit(&mut self, purpose: DecodePurpose, object: RawObject) {
        // The first object of each chunk keeps the whole chunk in memory, also for the others.
        let further_bytes = std::mem::take(&mut self.chunk_len);
        self.decoding.submit(purpose, object, further_bytes);
    }

    /// Moves decoded objects to their list or edit.
    pub(super) fn settle(&mut self) {
        while let Some((purpose, decoded)) = self.decoding.settled() {
            match (purpose, decoded) {
                (DecodePurpose::Listed { place, .. }, Ok(kept)) => {
                    if let Some(staging) = &mut self.staging {
                        staging.fill(place, kept);
                    }
                }
                (DecodePurpose::Edited { edit, .. }, Ok(kept)) => {
                    // The index is valid: `flush` settles all edits before it drains them.
                    if let Some(Edit::Apply(_, _, held)) = self.edits.get_mut(edit) {
                        *held = Ok(kept);
                    }
                }
                // The objects are tainted until they are decoded, so only the diagnostics are missing. Each is inserted
                // in the order of arrival.
                (DecodePurpose::Listed { diagnostic_index, .. }, Err(error)) => {
                    let (identity, why) = *error;
                    if let Some(diagnostic) = self.undecodable(&identity, &why) {
                        self.log_throttle.stage_late(diagnostic_index, diagnostic);
                    }
                }
                (DecodePurpose::Edited { diagnostic_index, .. }, Err(error)) => {
                    let (identity, why) = *error;
                    if let Some(diagnostic) = self.undecodable(&identity, &why) {
                        self.diagnostics.insert(diagnostic_index + self.late_diagnostics, diagnostic);
                        self.late_diagnostics += 1;
                    }
                }
            }
        }
    }

    /// Decodes all submitted objects and moves them to their list or edit.
    pub(super) fn finish_decoding(&mut self) {
        self.decoding.finish();
        self.settle();
    }

    /// Returns the diagnostic for an undecodable state, or `None` if the state was reported before.
    pub(super) fn undecodable(&self, identity: &Identity, why: &impl ToString) -> Option<Diagnostic> {
        let Identity { key, uid, version } = identity;
        let snapshot = self.shared.snapshot();
        let entry = snapshot.entry(key.namespace(), key.name());
        if entry.is_some_and(|held| held.is_tainted() && held.uid().is_same(uid) && held.version() == version) {
            return None;
        }
        Some(Diagnostic::Undecodable { key: key.clone(), version: version.clone(), why: why.to_string().into() })
    }

    /// Records a cached state that failed to decode on a read (R8). Returns true if enough failures are recorded to
    /// publish them now.
    pub(super) fn unread(&mut self, error: &DecodeError) -> bool {
        let (key, version) = (error.key(), error.version());
        let snapshot = self.shared.snapshot();
        let held = snapshot.entry(key.namespace(), key.name()).filter(|held| !held.is_tainted());
        // If the server sends no version, a hash of all bytes serves as the version. The cached object may lack some of
        // these bytes, so two such versions of one state can differ.
        let is_read = |held: &ResourceVersion| held == version || !held.is_given() && !version.is_given();
        let Some(held) = held.filter(|held| is_read(held.version())) else {
            if self.early.len() < MAX_EARLY_FAILURES {
                self.early.push(error.clone());
            }
            return false;
        };
        // Each reader of the object reports the failure, but one edit is enough.
        let is_noted = |edit: &Edit<K>| matches!(edit, Edit::Taint(noted, at) if noted == key && at == held.version());
        if self.edits.iter().any(is_noted) {
            return false;
        }
        self.diagnostics.extend(self.undecodable(held.identity(), error));
        self.edits.push(Edit::Taint(key.clone(), held.version().clone()));
        let publishes = self.edits.len() >= MAX_READ_FAILURES_PER_FLUSH;
        if !publishes {
            self.unpublished.get_or_insert(self.shared.environment.now());
        }
        publishes
    }
}
