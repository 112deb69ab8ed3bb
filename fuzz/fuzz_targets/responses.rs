//! Fuzzes the reflector with responses: any content in any order must not break its invariants.
//!
//! The input consists of one byte for the settings, and a script with two bytes per step: the kind of the response, and
//! a number that selects its content.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use steadfast_core::record::{Bookmark, Identity, ListMeta, RecordKind, Status};
use steadfast_core::reflector::{
    Differences, Failure, Input, ListHints, Output, Record, RecordAction, Reflector, ReflectorSettings, Request,
    RequestId,
};
use steadfast_core::{Instant, ObjectKey, ResourceVersion};

/// Maximum number of outputs per input. The reflector normally returns a handful.
const MAX_OUTPUTS: usize = 16;

fuzz_target!(|input: &[u8]| {
    let [seed, script @ ..] = input else { return };
    let settings = ReflectorSettings {
        streamed_lists: Some(seed % 2 == 0),
        delta_relists: Some(seed % 3 > 0),
        ..ReflectorSettings::default()
    };
    let mut run = ReflectorRun {
        reflector: Reflector::new(settings, u64::from(*seed)),
        now: Instant::from_zero(Duration::from_secs(1)),
        open_requests: BTreeSet::new(),
        last_request: 0,
        is_staging: false,
        is_comparing: false,
        version: None,
    };
    run.reflector.set_list_hints(ListHints { cached_objects: 2000, ..ListHints::default() });
    run.step(Input::Start);
    for step in script.chunks_exact(2) {
        run.respond(step[0], step[1]);
    }
    run.step(Input::Stop);
    assert!(run.open_requests.is_empty(), "open requests are cancelled at the end: {:?}", run.open_requests);
});

struct ReflectorRun {
    reflector: Reflector,
    now: Instant,
    open_requests: BTreeSet<RequestId>,
    last_request: u64,
    is_staging: bool,
    is_comparing: bool,
    /// Version of the cache, ordered by its number.
    version: Option<ResourceVersion>,
}

impl ReflectorRun {
    fn respond(&mut self, kind: u8, amount: u8) {
        // Selects mostly an open request, and sometimes a request that has ended or never existed.
        let id = match amount % 8 {
            0 => RequestId(u64::from(amount)),
            _ => self
                .open_requests
                .iter()
                .nth(usize::from(amount) % self.open_requests.len().max(1))
                .copied()
                .unwrap_or(RequestId(1)),
        };
        match kind % 25 {
            0 => self.step(Input::Tick),
            1 => self.advance_time(Duration::from_millis(u64::from(amount) * 10)),
            2 => self.advance_time(Duration::from_secs(u64::from(amount))),
            3 => {
                if let Some(at) = self.reflector.wake_at() {
                    self.now = self.now.max(at);
                }
                self.step(Input::Tick);
            }
            4 | 5 => self.step(Input::TransferGranted),
            6 | 7 => self.step(Input::Opened(id)),
            8 => self.step(Input::Reachable),
            9 => self.step(Input::SeekProof),
            10 => self.finish_request(id, Input::Ended(id)),
            11 => self.finish_request(id, Input::Failed(id, failure(amount))),
            12 => {
                let token = (amount % 5 == 0).then(|| format!("token {}", amount / 64));
                self.finish_request(
                    id,
                    Input::ListEnded(id, ListMeta { version: version(amount), continue_token: token }),
                );
            }
            13 => self.step(Input::Unidentified(id, "an object without metadata.name".into())),
            14 => {
                let identity = identity(amount);
                let action = self.reflector.list_item(self.now, id, &identity);
                let differs = action == RecordAction::StageUnchanged && amount % 3 > 0;
                self.apply_action(action);
                if differs {
                    self.step(Input::Differs(id, identity));
                }
            }
            15 => {
                let status = status(amount);
                self.open_requests.remove(&id);
                self.record(id, Record::Error(&status));
            }
            16 | 17 => {
                let version = version(amount).unwrap_or_else(|| ResourceVersion::from("0"));
                self.record(id, Record::Bookmark(&Bookmark { version, initial_events_end: kind % 25 == 17 }));
            }
            18 => self.finish_request(id, Input::Probed(id, version(amount), self.now)),
            19 => self.step(Input::ConnectionEnding(id)),
            20 => self.step(Input::ConnectionHealthy(id)),
            21 => self.step(Input::ResponsivenessChanged(id, amount % 2 == 0)),
            22 => self.step(Input::Contradicted(id, "below the cached version".into())),
            _ => {
                let kind = [RecordKind::Added, RecordKind::Modified, RecordKind::Deleted][usize::from(amount % 3)];
                self.record(id, Record::Object(kind, &identity(amount)));
            }
        }
    }

    fn advance_time(&mut self, time: Duration) {
        self.now = self.now + time;
        self.step(Input::Tick);
    }

    fn finish_request(&mut self, id: RequestId, input: Input) {
        self.open_requests.remove(&id);
        self.step(input);
    }

    fn step(&mut self, input: Input) {
        let outputs = self.reflector.step(self.now, input);
        self.apply_outputs(outputs);
    }

    fn record(&mut self, id: RequestId, record: Record<'_>) {
        let action = self.reflector.record(self.now, id, record);
        self.apply_action(action);
    }

    fn apply_action(&mut self, action: RecordAction) {
        match action {
            RecordAction::Perform(outputs) => self.apply_outputs(outputs),
            RecordAction::Apply => assert!(self.reflector.is_synced(), "a change before the first list"),
            RecordAction::Compare => assert!(self.is_comparing, "compared without a comparison in progress"),
            RecordAction::Stage | RecordAction::StageUnchanged => {
                assert!(self.is_staging, "staged without a list in progress")
            }
            RecordAction::Skip | RecordAction::Older { .. } => {}
        }
        self.assert_never_older(false);
    }

    fn apply_outputs(&mut self, outputs: Vec<Output>) {
        assert!(outputs.len() <= MAX_OUTPUTS, "{} outputs", outputs.len());
        let (mut epoch_changed, mut must_judge) = (false, false);
        for output in outputs {
            match output {
                Output::Send(id, request) => {
                    assert!(id.0 > self.last_request, "a request number must not be reused");
                    self.last_request = id.0;
                    self.open_requests.insert(id);
                    assert_well_formed(&request);
                }
                Output::Cancel(id) => drop(self.open_requests.remove(&id)),
                Output::BeginStaging { .. } => self.is_staging = true,
                Output::DropStaging => self.is_staging = false,
                Output::Commit { new_epoch, .. } => {
                    assert!(std::mem::take(&mut self.is_staging), "committed without staged objects");
                    epoch_changed |= new_epoch;
                }
                Output::BeginComparison => self.is_comparing = true,
                Output::EndComparison => self.is_comparing = false,
                Output::CompareListed => {
                    assert!(self.is_comparing, "judged without a comparison in progress");
                    must_judge = true;
                }
                Output::Diagnostic(diagnostic) => assert!(diagnostic.to_string().len() < 8192, "too long"),
                Output::ReportDifferences
                | Output::AwaitTransfer
                | Output::ReleaseTransfer
                | Output::Advance(_)
                | Output::RememberPages { .. }
                | Output::RememberFull { .. } => {}
            }
        }
        assert!(self.open_requests.len() <= 8, "too many open requests: {:?}", self.open_requests);
        self.assert_never_older(epoch_changed);
        if must_judge {
            let count = usize::from(self.last_request % 3 == 0);
            self.step(Input::Compared(Differences { count, backwards: None }));
        }
        let evidence = self.reflector.evidence();
        assert!(evidence.next_attempt.is_none_or(|at| at.since(self.now) < Duration::from_secs(3600)));
    }

    /// Checks that the version decreases only in a new epoch (C4).
    fn assert_never_older(&mut self, epoch_changed: bool) {
        let now = self.reflector.version().cloned();
        if let (Some(previous_version), Some(now), false) = (&self.version, &now, epoch_changed) {
            assert!(!now.is_older_than(previous_version), "the version went back from {previous_version} to {now}");
        }
        self.version = now;
    }
}

/// Checks that a query contains only unreserved characters, for any version and token.
fn assert_well_formed(request: &Request) {
    let query = request.query();
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%=&".contains(&byte);
    assert!(query.bytes().all(is_unreserved), "{query}");
    assert!(query.matches("resourceVersion=").count() <= 1, "{query}");
}

/// Returns one of two identities, sometimes without a version.
fn identity(amount: u8) -> Identity {
    let key = ObjectKey::namespaced("default", if amount % 2 == 0 { "a" } else { "b" });
    let version = version(amount).unwrap_or_else(|| ResourceVersion::substitute_for(&[amount]));
    Identity { key, uid: "u".into(), version }
}

fn version(amount: u8) -> Option<ResourceVersion> {
    match amount {
        0..32 => None,
        32..40 => Some(ResourceVersion::from("")),
        40..48 => Some(ResourceVersion::from("opaque&resourceVersion=0\"\n")),
        48..52 => Some(ResourceVersion::from("18446744073709551616")),
        _ => Some(ResourceVersion::from(amount.to_string().as_str())),
    }
}

fn status(amount: u8) -> Status {
    let codes = [0, 200, 302, 400, 401, 403, 404, 410, 422, 429, 500, 503, 504, 65535];
    Status {
        code: codes[usize::from(amount) % codes.len()],
        reason: if amount % 3 == 0 { "Expired" } else { "" }.into(),
        message: if amount % 7 == 0 { "Too large resource version".into() } else { "\u{1b}\n".repeat(amount.into()) },
        causes: Vec::new(),
        retry_after_seconds: (amount > 128).then_some(u64::MAX),
    }
}

fn failure(amount: u8) -> Failure {
    match amount % 4 {
        0 => Failure::unreachable("gone"),
        1 => Failure::unreadable("garbage"),
        _ => Failure::from_status(&status(amount), Some(Duration::from_secs(u64::from(amount)))),
    }
}
