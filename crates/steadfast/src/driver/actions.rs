//! Actions of the reflector: requests, lists, comparisons and edits.

use steadfast_core::decode::Cacheable;
use steadfast_core::freshness::FreshnessState;
use steadfast_core::reflector::{Failure, FailureKind, Output, Request, RequestId};

use super::Driver;
use super::deadline_timer::MAX_TIMER_DELAY;
use super::metadata_diff::MetadataDiff;
use super::transfer::Transfer;

impl<K: Cacheable> Driver<K> {
    pub(super) fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(id, request) => self.send(id, &request),
                Output::Cancel(id) => self.requests.cancel(id),
                Output::AwaitTransfer => {
                    self.transfer =
                        Transfer::Awaited(self.request_builder.connection.transfer(&self.request_builder.path));
                }
                Output::ReleaseTransfer => self.transfer = Transfer::None,
                Output::BeginStaging { new_epoch } => self.writer.begin_list(new_epoch),
                Output::DropStaging => self.writer.abandon_list(&mut self.diagnostics),
                Output::Commit { version, initial, new_epoch } => {
                    self.writer.commit_list(version, initial, new_epoch, &mut self.diagnostics);
                }
                Output::Advance(version) => self.writer.advance(version),
                Output::BeginComparison => self.comparison = Some(MetadataDiff::default()),
                Output::CompareListed => {
                    self.comparison.iter_mut().for_each(|comparison| comparison.is_due = true);
                }
                Output::ReportDifferences => {
                    let lost = self.comparison.iter_mut().flat_map(MetadataDiff::take_lost);
                    lost.for_each(|diagnostic| self.diagnostics.push(diagnostic));
                }
                Output::EndComparison => self.comparison = None,
                Output::RememberPages { until } => {
                    self.request_builder.connection.remember_pages(&self.request_builder.all_namespaces_path, until);
                }
                Output::RememberFull { until } => {
                    self.request_builder.connection.remember_full(&self.request_builder.all_namespaces_path, until);
                }
                Output::Diagnostic(diagnostic) => self.diagnostics.push(diagnostic),
            }
        }
    }

    fn send(&mut self, id: RequestId, request: &Request) {
        if let Request::Versions { continue_token, .. } = request
            && let Some(comparison) = &mut self.comparison
        {
            comparison.id = Some(id);
            // A comparison only verifies the cache, so it never waits for a slot that an ordinary list could use. All
            // its pages keep the slot of the first page.
            if continue_token.is_none() {
                comparison.slot = self.request_builder.connection.spare_transfer(&self.request_builder.path);
            }
            if comparison.slot.is_none() {
                let reason = "more urgent lists use the slot of a version list".into();
                let retry_after = Some(MAX_TIMER_DELAY);
                let failure = Failure { kind: FailureKind::Busy, message: reason, retry_after, code: 0, reason: None };
                self.requests.fail_without_sending(id, request, failure);
                return;
            }
        }
        let is_suspect = self.reflector.evidence().state == FreshnessState::Suspect;
        self.requests.send(id, request, is_suspect, &self.request_builder);
    }
}
