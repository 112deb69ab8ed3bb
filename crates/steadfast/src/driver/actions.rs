//! Actions of the reflector: requests, lists, comparisons and edits.

use steadfast_core::decode::Cacheable;
use steadfast_core::freshness::Condition;
use steadfast_core::reflector::{Failure, FailureKind, Output, Request, RequestId};
use steadfast_core::store::Store;

use super::Driver;
use super::comparison::Comparison;
use super::deadline_timer::MAX_TIMER_DELAY;
use super::edits::Edit;
use super::transfer::Transfer;

impl<K: Cacheable> Driver<K> {
    pub(super) fn perform(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(id, request) => self.send(id, &request),
                Output::Cancel(id) => self.drop_request(id),
                Output::AwaitTransfer => {
                    self.transfer =
                        Transfer::Awaited(self.request_builder.connection.transfer(&self.request_builder.path));
                }
                Output::ReleaseTransfer => self.transfer = Transfer::None,
                Output::BeginStaging { new_epoch } => {
                    let base =
                        |store: &mut Store<K>| if new_epoch { store.begin_new_epoch() } else { store.begin_relist() };
                    // Objects of an abandoned list may still be in decoding, with places in the old staging.
                    self.decoding.forget_listed();
                    self.staging = Some(self.shared.edit(base));
                }
                Output::DropStaging => {
                    self.decoding.forget_listed();
                    self.staging = None;
                    self.log_throttle.listed();
                }
                Output::Commit { version, initial, new_epoch } => {
                    // The commit replaces the cache, so every listed object must be decoded and staged before.
                    self.finish_decoding();
                    let Some(staging) = self.staging.take() else { continue };
                    self.diagnostics.extend(self.log_throttle.listed());
                    self.edits.push(Edit::Commit { staging, version, initial, new_epoch });
                }
                Output::Advance(version) => self.edits.push(Edit::Advance(version)),
                Output::BeginComparison => self.comparison = Some(Comparison::default()),
                Output::JudgeComparison => {
                    self.comparison.iter_mut().for_each(|comparison| comparison.is_due = true);
                }
                Output::ReportDifferences => {
                    self.diagnostics.extend(self.comparison.iter_mut().flat_map(Comparison::take_lost));
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
        self.requests.sent(id, request.is_stream());
        if let Request::Metadata { .. } = request {
            self.skimmed = Some(id);
        }
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
                let why = "more urgent lists use the slot of a version list".into();
                let retry_after = Some(MAX_TIMER_DELAY);
                self.responses.fail_without_sending(
                    id,
                    Failure { kind: FailureKind::Busy, why, retry_after, code: 0, reason: None },
                );
                return;
            }
        }
        self.request_metrics.sent(id, request);
        let doubted = self.reflector.evidence().condition == Condition::Suspect;
        self.responses.send(id, request, doubted, &self.request_builder);
    }

    pub(super) fn drop_request(&mut self, id: RequestId) {
        // Dropping the response resets its HTTP/2 stream, so that the server stops sending.
        self.responses.cancel(id);
        self.request_metrics.cancelled(id);
        self.requests.finish(id);
    }

    /// Returns an error if the cache, or the list so far, exceeds the memory limit.
    ///
    /// A cache above the limit does not abort a list, because the list may be smaller.
    pub(super) fn within_memory(&self) -> Result<(), Failure> {
        let Some(limit) = self.limits.memory else { return Ok(()) };
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
}
