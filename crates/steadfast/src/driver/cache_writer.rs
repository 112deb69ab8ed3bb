//! Objects between their response and the cache: their decoding, the list in progress, and the edits that wait for the
//! next publication.

use std::sync::Arc;

use steadfast_core::decode::{Cacheable, DecodeError, RawObject};
use steadfast_core::event::{DeleteReason, Event};
use steadfast_core::fault_injection::{FaultInjection, inject};
use steadfast_core::record::{Identity, RecordKind};
use steadfast_core::reflector::{Diagnostic, Failure, Reflector};
use steadfast_core::store::{OfferResult, Staging, Store, Tainted};
use steadfast_core::{Instant, ObjectKey, ResourceVersion, Uid, WithSize};

use super::decoding::{DecodePurpose, Decoding};
use super::diagnostic_queue::DiagnosticQueue;
use super::edits::Edit;
use super::metadata_diff::MetadataDiff;
use super::object_decoder::ObjectDecoder;
use super::ordering_detector::OrderingDetector;
use crate::decoded_forms::DecodedForms;
use crate::recent_objects::RecentObjects;
use crate::shared::Shared;

/// Maximum number of read failures processed together.
const MAX_READ_FAILURES_PER_FLUSH: usize = 64;

/// Maximum number of remembered failures of objects that are not in the cache yet.
const MAX_EARLY_FAILURES: usize = 10_000;

/// Objects that are not published yet. Everything here except the publication runs before the store is locked,
/// including user code.
pub(super) struct CacheWriter<K: Send + Sync + 'static> {
    shared: Arc<Shared<K>>,
    decoding: Decoding<K>,
    /// Length of the current body chunk, until an object in it is submitted for decoding.
    chunk_len: usize,
    /// List in progress.
    staging: Option<Staging<K>>,
    edits: Vec<Edit<K>>,
    decoded_forms: DecodedForms,
    recent_objects: RecentObjects<K>,
    /// Decode errors of objects that are not in the cache yet. A transform may decode its input before the object is
    /// cached.
    early: Vec<DecodeError>,
    /// Maximum size of the cache in bytes.
    memory_limit: Option<usize>,
    faults: FaultInjection,
}

/// Handling of a decode failure of a cached object that a reader has reported.
pub(super) enum ReadFailure {
    /// The failure was known already, or is remembered until the object is cached.
    Remembered,
    /// Recorded as an edit.
    Recorded,
    /// Recorded as an edit. The number of recorded failures is high enough to publish them now.
    RecordedMany,
}

impl<K: Cacheable> CacheWriter<K> {
    /// Creates a writer to the store of `shared`.
    pub(super) fn new(
        shared: Arc<Shared<K>>,
        object_decoder: ObjectDecoder<K>,
        memory_limit: Option<usize>,
        faults: FaultInjection,
    ) -> Self {
        Self {
            decoding: Decoding::new(object_decoder, shared.environment.clone()),
            recent_objects: RecentObjects::new(shared.recent_bytes.clone()),
            shared,
            chunk_len: 0,
            staging: None,
            edits: Vec::new(),
            decoded_forms: DecodedForms::default(),
            early: Vec::new(),
            memory_limit,
            faults,
        }
    }

    /// Decodes a stored object.
    #[cfg(feature = "checkpoint")]
    pub(super) fn decode(&mut self, object: &RawObject) -> Result<WithSize<K>, String> {
        self.decoding.decode(object)
    }

    /// Starts to read a body chunk of `chunk_len` bytes.
    pub(super) fn begin_chunk(&mut self, chunk_len: usize) {
        self.chunk_len = chunk_len;
    }

    /// Returns true if edits wait for the next publication.
    pub(super) fn has_edits(&self) -> bool {
        !self.edits.is_empty()
    }

    /// Returns true if a complete list waits for the next publication.
    pub(super) fn has_commit(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::Commit { .. }))
    }

    /// Adds a watch event of an object.
    pub(super) fn apply(&mut self, kind: RecordKind, object: RawObject, diagnostics: &mut DiagnosticQueue) {
        if kind == RecordKind::Deleted {
            self.edits.push(Edit::Apply(kind, object.identity, Err(Tainted)));
        } else if self.decoding.is_shared() {
            // The edit keeps its place in the order of arrival, and counts as tainted until the object is decoded.
            self.edits.push(Edit::Apply(kind, object.identity.clone(), Err(Tainted)));
            let diagnostic_index = diagnostics.pending.next_place();
            self.submit(DecodePurpose::Edited { edit: self.edits.len() - 1, diagnostic_index }, object);
        } else {
            self.recent_objects.make_room();
            let kept = self.decoding.decode(&object).map_err(|reason| {
                self.report_undecodable(&object.identity, &reason, diagnostics);
                Tainted
            });
            if let Ok(kept) = &kept
                && kept.is_on_demand()
            {
                let now = self.shared.environment.now();
                if !self.decoded_forms.event(&object.identity.key, kept, now) {
                    self.recent_objects.add(kept, now);
                }
            }
            self.edits.push(Edit::Apply(kind, object.identity, kept));
        }
    }

    /// Adds a watch event of an object that cannot be decoded (R8).
    pub(super) fn apply_tainted(
        &mut self,
        kind: RecordKind,
        identity: Identity,
        reason: &impl ToString,
        diagnostics: &mut DiagnosticQueue,
    ) {
        if kind != RecordKind::Deleted {
            self.report_undecodable(&identity, reason, diagnostics);
        }
        self.edits.push(Edit::Apply(kind, identity, Err(Tainted)));
    }

    /// Adds the version up to which nothing is missing.
    pub(super) fn advance(&mut self, version: ResourceVersion) {
        self.edits.push(Edit::Advance(version));
    }

    /// Starts a list. It replaces an abandoned one.
    pub(super) fn begin_list(&mut self, new_epoch: bool) {
        if new_epoch {
            // A restored server can have removed objects again, with the same UIDs.
            self.shared.removed_objects.clear();
        }
        let base = |store: &mut Store<K>| if new_epoch { store.begin_new_epoch() } else { store.begin_relist() };
        // Objects of an abandoned list may still be in decoding, with places in the old staging.
        self.decoding.forget_listed();
        self.staging = Some(self.shared.edit(base));
    }

    /// Abandons the list in progress.
    pub(super) fn abandon_list(&mut self, diagnostics: &mut DiagnosticQueue) {
        self.decoding.forget_listed();
        self.staging = None;
        diagnostics.list_abandoned();
    }

    /// Completes the list in progress: the next publication replaces the cache by it.
    pub(super) fn commit_list(
        &mut self,
        version: Option<ResourceVersion>,
        initial: bool,
        new_epoch: bool,
        diagnostics: &mut DiagnosticQueue,
    ) {
        // The commit replaces the cache, so every listed object must be decoded and staged before.
        self.finish_decoding(diagnostics);
        if let Some(staging) = self.staging.take() {
            diagnostics.list_completed();
            self.edits.push(Edit::Commit { staging, version, initial, new_epoch });
        }
    }

    /// Adds an object to the list in progress.
    pub(super) fn stage(&mut self, object: RawObject, diagnostics: &mut DiagnosticQueue) {
        let copied = inject!(self.faults, CopiedRelist);
        let Some(staging) = &mut self.staging else { return };
        // UID and version identify the content, so an unchanged object needs no decoding and keeps its memory.
        if !copied && staging.offer(&object.identity) == OfferResult::Unchanged {
            return;
        }
        if self.decoding.is_shared() {
            let place = staging.put_unfilled(object.identity.clone());
            let diagnostic_index = diagnostics.listed.next_place();
            self.submit(DecodePurpose::Listed { place, diagnostic_index }, object);
            return;
        }
        match self.decoding.decode(&object) {
            Ok(kept) => staging.put(object.identity, Ok(kept)),
            Err(reason) => self.stage_tainted(object.identity, &reason, diagnostics),
        }
    }

    /// Adds an object of a delta list by its metadata. Returns true if the cached object is not current, so that the
    /// object must be requested.
    pub(super) fn stage_unchanged(&mut self, identity: &Identity) -> bool {
        self.staging.as_mut().is_some_and(|staging| staging.offer_unseen(identity) == OfferResult::Requested)
    }

    /// Adds an object that cannot be decoded to the list in progress (R8).
    pub(super) fn stage_tainted(
        &mut self,
        identity: Identity,
        reason: &impl ToString,
        diagnostics: &mut DiagnosticQueue,
    ) {
        if let Some(diagnostic) = self.undecodable(&identity, reason) {
            diagnostics.listed.push(diagnostic);
        }
        if let Some(staging) = &mut self.staging {
            staging.put(identity, Err::<WithSize<K>, _>(Tainted));
        }
    }

    /// Removes an object from the list in progress.
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
    pub(super) fn settle(&mut self, diagnostics: &mut DiagnosticQueue) {
        while let Some((purpose, decoded)) = self.decoding.settled() {
            match (purpose, decoded) {
                (DecodePurpose::Listed { place, .. }, Ok(kept)) => {
                    if let Some(staging) = &mut self.staging {
                        staging.fill(place, kept);
                    }
                }
                (DecodePurpose::Edited { edit, .. }, Ok(kept)) => {
                    // The index is valid: a publication decodes the objects of all edits before it drains the edits.
                    if let Some(Edit::Apply(_, _, held)) = self.edits.get_mut(edit) {
                        *held = Ok(kept);
                    }
                }
                // The objects are tainted until they are decoded, so only the diagnostics are missing. Each is inserted
                // in the order of arrival.
                (purpose, Err(error)) => {
                    let (identity, reason) = *error;
                    let Some(diagnostic) = self.undecodable(&identity, &reason) else { continue };
                    match purpose {
                        DecodePurpose::Listed { diagnostic_index, .. } => {
                            diagnostics.listed.insert_late(diagnostic_index, diagnostic);
                        }
                        DecodePurpose::Edited { diagnostic_index, .. } => {
                            diagnostics.pending.insert_late(diagnostic_index, diagnostic);
                        }
                    }
                }
            }
        }
    }

    /// Decodes all submitted objects and moves them to their list or edit.
    fn finish_decoding(&mut self, diagnostics: &mut DiagnosticQueue) {
        self.decoding.finish();
        self.settle(diagnostics);
    }

    /// Returns the UID and version of the object of this name. Unpublished edits count, since they are newer than the
    /// cache.
    pub(super) fn known_state(&self, key: &ObjectKey) -> Option<(Uid, ResourceVersion)> {
        // The last edit of an object counts.
        let pending = self.edits.iter().rev().find_map(|edit| match edit {
            Edit::Apply(kind, edited, _) if edited.key == *key => Some((*kind, edited)),
            _ => None,
        });
        match pending {
            Some((RecordKind::Deleted, _)) => None,
            Some((_, edited)) => Some((edited.uid.clone(), edited.version.clone())),
            None => {
                let snapshot = self.shared.snapshot();
                let entry = snapshot.entry(key.namespace(), key.name())?;
                Some((entry.uid().clone(), entry.version().clone()))
            }
        }
    }

    /// Returns whether an edit that is not published yet deletes the object with this UID.
    pub(super) fn has_pending_deletion(&self, uid: &Uid) -> bool {
        let is_deletion =
            |edit: &Edit<K>| matches!(edit, Edit::Apply(RecordKind::Deleted, edited, _) if edited.uid == *uid);
        uid.is_from_server() && self.edits.iter().any(is_deletion)
    }

    /// Returns the diagnostic for an undecodable state, or `None` if the state was reported before.
    fn undecodable(&self, identity: &Identity, reason: &impl ToString) -> Option<Diagnostic> {
        let Identity { key, uid, version } = identity;
        let snapshot = self.shared.snapshot();
        let entry = snapshot.entry(key.namespace(), key.name());
        if entry.is_some_and(|held| held.is_tainted() && held.uid().is_same(uid) && held.version() == version) {
            return None;
        }
        Some(Diagnostic::Undecodable { key: key.clone(), version: version.clone(), reason: reason.to_string().into() })
    }

    fn report_undecodable(&self, identity: &Identity, reason: &impl ToString, diagnostics: &mut DiagnosticQueue) {
        if let Some(diagnostic) = self.undecodable(identity, reason) {
            diagnostics.push(diagnostic);
        }
    }

    /// Records a cached state that failed to decode on a read (R8).
    pub(super) fn read_failed(&mut self, error: &DecodeError, diagnostics: &mut DiagnosticQueue) -> ReadFailure {
        let (key, version) = (error.key(), error.version());
        let snapshot = self.shared.snapshot();
        let held = snapshot.entry(key.namespace(), key.name()).filter(|held| !held.is_tainted());
        // If the server sends no version, a hash of all bytes serves as the version. The cached object may lack some of
        // these bytes, so two such versions of one state can differ.
        let is_read = |held: &ResourceVersion| held == version || !held.is_from_server() && !version.is_from_server();
        let Some(held) = held.filter(|held| is_read(held.version())) else {
            if self.early.len() < MAX_EARLY_FAILURES {
                self.early.push(error.clone());
            }
            return ReadFailure::Remembered;
        };
        // Each reader of the object reports the failure, but one edit is enough.
        let is_noted = |edit: &Edit<K>| matches!(edit, Edit::Taint(noted, at) if noted == key && at == held.version());
        if self.edits.iter().any(is_noted) {
            return ReadFailure::Remembered;
        }
        self.report_undecodable(held.identity(), error, diagnostics);
        self.edits.push(Edit::Taint(key.clone(), held.version().clone()));
        if self.edits.len() >= MAX_READ_FAILURES_PER_FLUSH { ReadFailure::RecordedMany } else { ReadFailure::Recorded }
    }

    /// Takes the failures that were found before their objects were cached.
    pub(super) fn take_early_failures(&mut self) -> Vec<DecodeError> {
        std::mem::take(&mut self.early)
    }

    /// Drops failures of objects that are still not cached, unless a list in progress may contain them.
    pub(super) fn forget_early_failures(&mut self) {
        if self.staging.is_none() {
            self.early.clear();
        }
    }

    /// Returns an error if the cache, or the list so far, exceeds the memory limit.
    ///
    /// A cache above the limit does not abort a list, because the list may be smaller.
    pub(super) fn check_memory(&self) -> Result<(), Failure> {
        let Some(limit) = self.memory_limit else { return Ok(()) };
        let (what, bytes) = match &self.staging {
            // The base objects of delta compression are shared with the cache and count for both.
            Some(staging) => ("the list", staging.held_bytes() + self.shared.dictionary_len()),
            None => ("the cache", self.shared.held_bytes()),
        };
        if bytes <= limit {
            return Ok(());
        }
        let (bytes, limit) = (bytes as f64 / 1e6, limit as f64 / 1e6);
        Err(Failure::full(format!(
            "{what} reaches {bytes:.1} MB, above the memory_limit of {limit:.1} MB: narrow the scope, keep less \
             of each object, or raise the limit"
        )))
    }

    /// Decodes the objects of all edits, which must have them before they are published. Objects of an unfinished list
    /// can wait.
    pub(super) fn prepare(&mut self, diagnostics: &mut DiagnosticQueue) {
        if self.decoding.has_edits() {
            self.finish_decoding(diagnostics);
        }
    }

    /// Applies all edits under one lock, with one publication. Returns true if a list has proven that versions are
    /// unordered.
    pub(super) fn publish(
        &mut self,
        reflector: &mut Reflector,
        mut comparison: Option<&mut MetadataDiff>,
        ordering: &mut OrderingDetector,
    ) -> bool {
        let mut changes = Vec::new();
        let (mut viewed, mut disordered) = (false, false);
        let shared = &self.shared;
        // Objects held only by the old snapshot are dropped after the lock is released: the drop can take long, and
        // `Drop` is user code.
        let _before = shared.snapshot();
        shared.edit(|store| {
            // Removals are recorded before the edits, so that the comparison does not count them as lost.
            if let Some(comparison) = &mut comparison {
                for edit in &self.edits {
                    if let Edit::Apply(RecordKind::Deleted, identity, _) = edit {
                        comparison.removed(&identity.uid);
                    }
                }
            }
            for edit in self.edits.drain(..) {
                let before = changes.len();
                let committed = if let Edit::Commit { new_epoch, .. } = &edit { Some(*new_epoch) } else { None };
                let relisted = matches!(edit, Edit::Commit { initial: false, new_epoch: false, .. });
                viewed |= edit.carry_out(store, &mut changes, &shared.name);
                if relisted {
                    reflector.list_differed(changes.len() - before);
                }
                shared.counted.changes(&changes[before..], committed.is_some());
                let proven = committed.map(|new_epoch| ordering.is_proven(store.working(), new_epoch));
                disordered |= proven.unwrap_or_default();
            }
            for change in &changes {
                if let Event::Deleted { reason, .. } = change.event {
                    ordering.ended(change.uid());
                    // An object that left the scope still exists, and may match it again before its deletion.
                    if matches!(reason, DeleteReason::Deleted | DeleteReason::Replaced) {
                        shared.removed_objects.add(change.uid());
                    }
                }
            }
            // Before the publication, because the evidence published with it contains the tainted objects.
            reflector.set_tainted(store.working().tainted().clone());
            shared.publish(store, &changes, viewed, reflector.evidence());
        });
        disordered
    }

    /// Accepts the reports of readers about objects that they decoded.
    pub(super) fn decoded_by_readers(&mut self) {
        self.decoded_forms.reported(&self.shared.decode_reports, self.shared.environment.now());
    }

    /// Returns the time of the next drop of unused decoded objects.
    pub(super) fn next_sweep(&self) -> Option<Instant> {
        [self.decoded_forms.next(), self.recent_objects.next()].into_iter().flatten().min()
    }

    /// Returns true if a sweep is in progress.
    pub(super) fn is_sweeping(&self) -> bool {
        self.decoded_forms.has_step()
    }

    /// Drops some decoded objects that no reader uses. All edits must have been published.
    pub(super) fn sweep(&mut self) {
        let shared = &self.shared;
        let now = shared.environment.now();
        self.recent_objects.expire(now);
        if !self.decoded_forms.is_due(now) {
            return;
        }
        // The decoded forms are dropped after the lock is released: this can take long, and their `Drop` is user code.
        let _before = shared.snapshot();
        shared.edit(|store| {
            if self.decoded_forms.step(&shared.decode_reports, store, now) {
                store.publish();
            }
        });
    }
}
