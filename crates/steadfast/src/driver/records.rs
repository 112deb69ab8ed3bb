//! Watch records and list items: their identity, and the decision to keep them.

use steadfast_core::decode::{self, Cacheable, ExpectedKind, PartialIdentity, RecordError, RecordProblem, WatchRecord};
use steadfast_core::frame::{ItemFramer, ListPart, StreamFramer, StreamRecord};
use steadfast_core::record::{Identity, ListMeta, RecordKind};
use steadfast_core::reflector::{Diagnostic, Failure, FailureKind, Input, Record, RecordAction, RequestId};
use steadfast_core::{Instant, ResourceVersion, Uid};

use super::Driver;

impl<K: Cacheable> Driver<K> {
    pub(super) fn read_stream(
        &mut self,
        now: Instant,
        id: RequestId,
        framer: &mut StreamFramer,
    ) -> Result<(), Failure> {
        let encoding = framer.encoding();
        while let Some(line) = framer.next() {
            let record = match &line {
                StreamRecord::Complete(record) => {
                    decode::watch_record(encoding, record, Some(&self.request_builder.expected_kind))
                }
                StreamRecord::Overlong(record) => {
                    decode::overlong_record(record, Some(&self.request_builder.expected_kind))
                }
            };
            let (action, object) = match self.with_ordering(record) {
                // An object of another namespace is not cached, and its version must not advance the cache either.
                Ok(WatchRecord::Object { object, .. })
                    if self.request_builder.is_in_other_namespace(&object.identity.key) =>
                {
                    self.skip_in_other_namespace(now, id, &object.identity);
                    continue;
                }
                Ok(WatchRecord::Object { kind, object }) => {
                    self.check_uid(&object.identity);
                    let action = self.reflector.record(now, id, Record::Object(kind, &object.identity));
                    (action, Some((kind, object)))
                }
                Ok(WatchRecord::Bookmark(bookmark)) => {
                    (self.reflector.record(now, id, Record::Bookmark(&bookmark)), None)
                }
                // An `ERROR` record ends a watch in the middle of a `200` response, for example with a 410 for an
                // expired version.
                Ok(WatchRecord::Error(status)) => {
                    self.requests.failed(id, Failure::from_status(&status, None).kind);
                    (self.reflector.record(now, id, Record::Error(&status)), None)
                }
                // Without a known type, the record proves no change of this resource. Its version must not become the
                // cache's version.
                Err(error) if error.kind.is_none() => {
                    self.report_unidentified(now, id, &error);
                    continue;
                }
                Err(error) => {
                    self.handle_unreadable(now, id, &error);
                    continue;
                }
            };
            match (action, object) {
                (RecordAction::Apply, Some((kind, object))) => self.writer.apply(kind, object, &mut self.diagnostics),
                (RecordAction::Older { reached_higher }, Some((kind, object))) => {
                    self.handle_older_record(now, id, kind, &object.identity, reached_higher);
                }
                (RecordAction::Stage, Some((RecordKind::Deleted, object))) => self.writer.unstage(&object.identity),
                (RecordAction::Stage, Some((_, object))) => {
                    self.writer.stage(object, &mut self.diagnostics);
                    self.writer.check_memory()?;
                }
                (RecordAction::Perform(outputs), _) => self.perform(outputs),
                _ => {}
            }
        }
        if let Some(bytes) = framer.take_overlong_length() {
            self.report_overlong_record(bytes);
        }
        Ok(())
    }

    pub(super) fn read_list(
        &mut self,
        now: Instant,
        id: RequestId,
        framer: &mut ItemFramer,
        meta: &mut Option<ListMeta>,
    ) -> Result<(), Failure> {
        let encoding = framer.encoding();
        // Comparisons request metadata, independent of the cached form.
        let is_comparison = self.comparison.as_ref().is_some_and(|comparison| comparison.id == Some(id));
        let expected = &self.request_builder.expected_kind;
        let is_metadata_list = self.requests.is_metadata_page(id);
        let wanted =
            ExpectedKind { metadata: expected.metadata || is_comparison || is_metadata_list, ..expected.clone() };
        while let Some(part) = framer.next() {
            match part.map_err(|error| Failure::unreadable(error.to_string()))? {
                ListPart::Item(item) => match decode::list_item(encoding, &item, Some(&wanted)) {
                    Ok(object) if self.request_builder.is_in_other_namespace(&object.identity.key) => {
                        self.skip_in_other_namespace(now, id, &object.identity);
                    }
                    Ok(mut object) => {
                        self.ordering.count(&mut object.identity.version);
                        self.check_uid(&object.identity);
                        match self.reflector.list_item(now, id, &object.identity) {
                            RecordAction::Stage => {
                                self.writer.stage(object, &mut self.diagnostics);
                                self.writer.check_memory()?;
                            }
                            RecordAction::StageUnchanged => {
                                self.stage_unchanged(now, id, object.identity);
                                self.writer.check_memory()?;
                            }
                            RecordAction::Compare => self.compare(&object.identity),
                            RecordAction::Perform(outputs) => self.perform(outputs),
                            _ => {}
                        }
                    }
                    Err(error) => self.handle_unreadable(now, id, &error),
                },
                ListPart::Overlong(item) => self.handle_unreadable(now, id, &decode::overlong(&item, Some(&wanted))),
                // The encodings differ in the order: JSON may send `metadata` after `items`.
                ListPart::Meta(found) => *meta = Some(found),
                ListPart::Status(status) => return Err(Failure::from_status(&status, None)),
                ListPart::End { kind, items } => {
                    self.request_builder.check_list(kind.as_deref(), items, meta.as_ref(), wanted.metadata)?;
                    if is_metadata_list {
                        check_metadata(kind.as_deref())?;
                    }
                }
            }
        }
        if let Some(bytes) = framer.take_overlong_length() {
            self.report_overlong_record(bytes);
        }
        Ok(())
    }

    /// Reports a record that may be endless. Such a record blocks only the later records of its response.
    fn report_overlong_record(&mut self, bytes: u64) {
        self.diagnostics.push(Diagnostic::Endless { bytes, limit: self.limits.object });
    }

    /// Processes an unreadable record or item, as far as its object is known (R8).
    fn handle_unreadable(&mut self, now: Instant, id: RequestId, error: &RecordError) {
        match identified_object(error) {
            Some((kind, identity)) => self.tainted_record(now, id, kind, identity, error),
            None => self.report_unidentified(now, id, error),
        }
    }

    /// Processes a record with a known object that cannot be decoded (R8).
    fn tainted_record(
        &mut self,
        now: Instant,
        id: RequestId,
        kind: RecordKind,
        mut identity: Identity,
        error: &RecordError,
    ) {
        self.ordering.count(&mut identity.version);
        self.check_uid(&identity);
        // The reflector returns `Skip` unless the request is a list in progress. With `Skip`, the record belongs to a
        // watch.
        let action = match self.reflector.list_item(now, id, &identity) {
            RecordAction::Skip => self.reflector.record(now, id, Record::Object(kind, &identity)),
            staged => staged,
        };
        match (action, kind) {
            (RecordAction::Apply, _) => self.writer.apply_tainted(kind, identity, error, &mut self.diagnostics),
            (RecordAction::Stage, RecordKind::Deleted) => self.writer.unstage(&identity),
            (RecordAction::Stage, _) => self.writer.stage_tainted(identity, error, &mut self.diagnostics),
            (RecordAction::Perform(outputs), _) => self.perform(outputs),
            (RecordAction::Compare, _) => self.compare(&identity),
            // A comparison needs only the identity and version.
            (RecordAction::StageUnchanged, _) => self.stage_unchanged(now, id, identity),
            (RecordAction::Older { reached_higher }, _) => {
                self.handle_older_record(now, id, kind, &identity, reached_higher);
            }
            (RecordAction::Skip, _) => {}
        }
    }

    /// Reports objects without a UID once (C1).
    fn check_uid(&mut self, identity: &Identity) {
        if !identity.uid.is_from_server() {
            self.diagnostics.missing_uid(&identity.key);
        }
    }

    /// Processes the metadata of an object in a delta list: the cached object is current, or must be requested.
    fn stage_unchanged(&mut self, now: Instant, id: RequestId, identity: Identity) {
        if self.writer.stage_unchanged(&identity) {
            let outputs = self.reflector.step(now, Input::Differs(id, identity));
            self.perform(outputs);
        }
    }

    /// Returns the record with its version, marked as unordered if the server's versions are.
    fn with_ordering(&self, mut record: Result<WatchRecord, RecordError>) -> Result<WatchRecord, RecordError> {
        match &mut record {
            Ok(WatchRecord::Object { object, .. }) => self.ordering.count(&mut object.identity.version),
            Ok(WatchRecord::Bookmark(bookmark)) => self.ordering.count(&mut bookmark.version),
            Ok(WatchRecord::Error(_)) | Err(_) => {}
        }
        record
    }

    /// Processes a record below the cache's version. If the record's state is not known already, a list decides.
    fn handle_older_record(
        &mut self,
        now: Instant,
        id: RequestId,
        kind: RecordKind,
        record: &Identity,
        reached_higher: bool,
    ) {
        let cached = self.writer.known_state(&record.key);
        let cached = cached.as_ref().map(|(uid, version)| (uid, version));
        let is_deleted = |uid: &Uid| self.writer.has_pending_deletion(uid);
        if !self.ordering.is_new_state(kind, record, cached, is_deleted) {
            return;
        }
        self.ordering.defer(kind, record, reached_higher);
        let cached = self.reflector.version().map_or("none", ResourceVersion::as_str);
        let change = match kind {
            RecordKind::Added => "was added",
            RecordKind::Modified => "was changed",
            RecordKind::Deleted => "was deleted",
        };
        let reason = format!(
            "{} {change} at version {}, below the cached version {cached}, but the cache lacks this state",
            record.key, record.version
        );
        let outputs = self.reflector.step(now, Input::Contradicted(id, reason.into()));
        self.perform(outputs);
    }

    /// Skips an object outside the informer's scope: the server or a proxy returned unrequested data.
    fn skip_in_other_namespace(&mut self, now: Instant, id: RequestId, identity: &Identity) {
        let reason = self.request_builder.other_namespace_reason(&identity.key);
        let outputs = self.reflector.step(now, Input::Unidentified(id, reason.into()));
        self.perform(outputs);
    }

    fn report_unidentified(&mut self, now: Instant, id: RequestId, error: &RecordError) {
        let outputs = self.reflector.step(now, Input::Unidentified(id, error.to_string().into()));
        self.perform(outputs);
    }

    fn compare(&mut self, identity: &Identity) {
        if let Some(comparison) = &mut self.comparison {
            comparison.record_listed(&self.shared.snapshot(), identity);
        }
    }
}

/// Returns an error unless the list contains only metadata. Full objects would cost as much as a full list.
fn check_metadata(kind: Option<&str>) -> Result<(), Failure> {
    if kind == Some("PartialObjectMetadataList") {
        return Ok(());
    }
    let reason = "the server lists full objects although metadata was requested".into();
    Err(Failure { kind: FailureKind::Invalid, message: reason, retry_after: None, code: 0, reason: None })
}

/// Returns the object of an unreadable record, if its identity could be read.
fn identified_object(error: &RecordError) -> Option<(RecordKind, Identity)> {
    // An object of another kind may share the name of a cached object.
    if let RecordProblem::OtherKind { .. } = error.problem {
        return None;
    }
    let PartialIdentity { key, uid, version } = (*error.identity).clone();
    let kind = error.kind.unwrap_or(RecordKind::Added);
    Some((kind, Identity { key: key?, uid: uid?, version: version? }))
}
