//! Invariants of a reflector's outputs.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast_core::reflector::{Output, Reflector, Request, RequestId};
use steadfast_core::{Freshness, Instant};

/// Monitor of a reflector's outputs, which panics on an invalid sequence.
#[derive(Default)]
pub(crate) struct Monitor {
    /// Requests in flight.
    pub(crate) open: BTreeMap<RequestId, Request>,
    pub(crate) transfer: Transfer,
    last: u64,
    staging: bool,
    comparison: Comparison,
    stopped: bool,
}

/// State of the permit for a full transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transfer {
    #[default]
    None,
    Awaited,
    Held,
}

/// State of a comparison with a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Comparison {
    #[default]
    None,
    Running,
    /// The result must be the next input.
    ResultPending,
}

impl Monitor {
    pub(crate) fn transfer_granted(&mut self) {
        assert_eq!(self.transfer, Transfer::Awaited, "granted without a pending request for a transfer");
        self.transfer = Transfer::Held;
    }

    /// Records the end of the response `id`.
    pub(crate) fn response_ended(&mut self, id: RequestId) {
        self.open.remove(&id);
    }

    pub(crate) fn reflector_stopped(&mut self) {
        self.stopped = true;
    }

    pub(crate) fn comparison_judged(&mut self) {
        assert_eq!(self.comparison, Comparison::ResultPending, "a result of a comparison without its request");
        self.comparison = Comparison::Running;
    }

    pub(crate) fn check_outputs(&mut self, outputs: &[Output]) {
        for output in outputs {
            self.check_output(output);
        }
        let fetched = self.open.values().filter(|request| matches!(request, Request::State { .. })).count();
        assert!(
            fetched == 0 || self.staging && fetched <= 4,
            "more than 4 requests for single objects, or some without staging: {:?}",
            self.open
        );
        let others =
            self.open.values().filter(|request| !matches!(request, Request::Versions { .. })).count() - fetched;
        assert!(others <= 3, "more requests than a main one, a proof and a successor: {:?}", self.open);
        assert!(
            self.open.len() - others - fetched <= usize::from(self.comparison != Comparison::None),
            "a comparison has one request at a time"
        );
        assert_eq!(
            self.staging,
            self.transfer == Transfer::Held,
            "the transfer permit must be held exactly while a list is staged"
        );
        if self.stopped {
            assert!(
                self.comparison == Comparison::None && self.open.is_empty() && self.transfer == Transfer::None,
                "requests, a comparison or a permit remain after the stop"
            );
        }
    }

    fn check_output(&mut self, output: &Output) {
        match output {
            Output::Send(id, request) => {
                assert!(!self.stopped && id.0 > self.last, "a request ID was reused, or used after the stop");
                self.last = id.0;
                assert!(
                    !request.is_full_transfer() || self.transfer == Transfer::Held,
                    "a list was requested without a transfer permit"
                );
                self.open.insert(*id, request.clone());
            }
            Output::Cancel(id) => assert!(self.open.remove(id).is_some(), "{id:?} is not in flight"),
            Output::AwaitTransfer => {
                assert_eq!(self.transfer, Transfer::None);
                self.transfer = Transfer::Awaited;
            }
            Output::ReleaseTransfer => {
                assert_ne!(self.transfer, Transfer::None, "the transfer permit was released twice");
                self.transfer = Transfer::None;
            }
            Output::BeginStaging { .. } => assert!(!std::mem::replace(&mut self.staging, true)),
            Output::DropStaging | Output::Commit { .. } => assert!(std::mem::take(&mut self.staging)),
            Output::BeginComparison => {
                assert_eq!(self.comparison, Comparison::None);
                self.comparison = Comparison::Running;
            }
            Output::EndComparison => assert_ne!(std::mem::take(&mut self.comparison), Comparison::None),
            Output::CompareListed => {
                assert_ne!(self.comparison, Comparison::None, "no comparison is in progress");
                self.comparison = Comparison::ResultPending;
            }
            Output::ReportDifferences => assert_ne!(self.comparison, Comparison::None, "no comparison is in progress"),
            Output::Advance(_) | Output::RememberPages { .. } | Output::RememberFull { .. } | Output::Diagnostic(_) => {
            }
        }
    }

    /// Checks the invariants that hold after every step.
    pub(crate) fn check(reflector: &Reflector, now: Instant, period: Duration) {
        if let Freshness::Fresh { age, .. } = reflector.evidence().at(now) {
            assert!(age <= period * 2, "fresh at an age of {age:?}");
        }
        // Without any further input or tick, the freshness must also expire.
        let later = now + period * 2 + Duration::from_millis(1);
        assert!(!reflector.evidence().at(later).is_fresh(), "the freshness never expires");
    }
}
