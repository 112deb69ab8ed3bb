//! Reflector against a model of a server, in virtual time, with thousands of random faults.
//!
//! Invariants: the cache never goes back, and the reflector never sends a storm of requests. The cache is never `Fresh`
//! if it lacks a change that is older than two periods, even if a record hid the change. After the last fault, the cache
//! equals the server. A failing run prints its seed. `STEADFAST_SEEDS=7..8 cargo test` repeats that run; a wider range
//! tests more seeds.

mod server;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::env;
use std::ops::Range;
use std::time::Duration;

use crate::monitor::{Monitor, Transfer};
use server::{Arrival, Kind, Server};
use steadfast_core::random::Random;
use steadfast_core::record::{Bookmark, Identity, RecordKind};
use steadfast_core::reflector::{
    Diagnostic, Differences, Failure, Input, ListHints, Output, Record, RecordAction, Reflector, ReflectorSettings,
    Request, RequestId,
};
use steadfast_core::{Instant, ObjectKey, ResourceVersion};

const SEEDS: Range<u64> = 0..1500;
const FAULT_DURATION: Duration = Duration::from_secs(420);
/// Maximum recovery time: requested delays, a period until a silence is noticed, and its timeout.
const MAX_RECOVERY: Duration = Duration::from_secs(240);
/// Maximum recovery time if only a list is a proof, once in five periods.
const MAX_RECOVERY_BY_LISTS: Duration = Duration::from_secs(900);
/// Maximum number of periods between two lists, if lists have unidentified entries.
const MAX_LIST_PERIODS: u32 = 80;
const AUDIT_INTERVAL: Duration = Duration::from_secs(150);
const QUIET_DURATION: Duration = Duration::from_secs(300);
const MAX_SENDS_PER_MINUTE: usize = 120;

#[test]
fn reflector_is_never_wrong_and_recovers() {
    let mut seen = BTreeMap::new();
    let seeds = seeds();
    for seed in seeds.clone() {
        // A run starts with faults. The recovery follows, and then a quiet time in which each check must hold.
        let mut client = Client::new(seed);
        client.run_until(Instant::ZERO + FAULT_DURATION);
        client.server.end_faults(client.now);
        client.run_until(client.now + client.recovery());
        client.wait_for_unidentified();
        client.assert_equals_server();
        let start = client.now;
        while client.now < start + QUIET_DURATION {
            client.run_until(client.now + Duration::from_secs(7));
            client.assert_equals_server();
        }
        client.step(Input::Stop);
        for (name, times) in std::mem::take(&mut client.seen) {
            *seen.entry(name).or_insert(0) += times;
        }
    }
    // A selected range of seeds need not cover every event.
    if seeds != SEEDS {
        return;
    }
    // Each event must occur in some run; otherwise the model does not cover it.
    let required = [
        "fell back to pages",
        "lagging",
        "listing all",
        "listed again",
        "listed by difference",
        "listed by metadata",
        "moved",
        "new epoch",
        "proven",
        "resumed",
        "seeking proof",
        "suspect",
        "short watch",
        "compared",
        "lost",
        "polled",
        "unidentified",
    ];
    for name in required {
        assert!(seen.get(name).is_some_and(|times| *times > 20), "{name} occurred too rarely: {seen:?}");
    }
}

fn seeds() -> Range<u64> {
    let Ok(requests) = env::var("STEADFAST_SEEDS") else { return SEEDS };
    let (first, end) = requests.split_once("..").expect("a range of seeds");
    first.parse().expect("a seed")..end.parse().expect("a seed")
}

fn name_of(diagnostic: &Diagnostic) -> &'static str {
    match diagnostic {
        Diagnostic::Synced { .. } => "synced",
        Diagnostic::Restored { .. } => "restored",
        Diagnostic::NotRestored { .. } => "not restored",
        Diagnostic::CheckpointNotWritten { .. } => "checkpoint not written",
        Diagnostic::DeliveredUnrecorded { .. } => "delivered unrecorded",
        Diagnostic::Resumed { .. } => "resumed",
        Diagnostic::Moved { .. } => "moved",
        Diagnostic::Ended => "ended",
        Diagnostic::Failed { .. } => "failed",
        Diagnostic::Relisting { .. } => "relisting",
        Diagnostic::Relisted { fetched: None, .. } => "listed again",
        Diagnostic::Relisted { fetched: Some(0), .. } => "listed by metadata",
        Diagnostic::Relisted { fetched: Some(_), .. } => "listed by difference",
        Diagnostic::ListingAll { .. } => "listing all",
        Diagnostic::FellBackToPages { .. } => "fell back to pages",
        Diagnostic::FellBackToJson { .. } => "fell back to JSON",
        Diagnostic::Polling { .. } => "polled",
        Diagnostic::NewEpoch { .. } => "new epoch",
        Diagnostic::Lagging { .. } => "lagging",
        Diagnostic::SeekingProof => "seeking proof",
        Diagnostic::Suspect { .. } => "suspect",
        Diagnostic::Proven => "proven",
        Diagnostic::Undecodable { .. } => "undecodable",
        Diagnostic::Contradicted { .. } => "contradicted",
        Diagnostic::VersionsUnordered => "versions unordered",
        Diagnostic::IdentifiedByName { .. } => "identified by name",
        Diagnostic::Endless { .. } => "endless",
        Diagnostic::Unidentified { .. } => "unidentified",
        Diagnostic::Audited { .. } => "compared",
        Diagnostic::Lost { .. } => "lost",
        _ => "other",
    }
}

/// Reflector with a plain map as its store.
struct Client {
    seed: u64,
    now: Instant,
    random: Random,
    reflector: Reflector,
    period: Duration,
    monitor: Monitor,
    server: Server,
    store: BTreeMap<u8, u64>,
    staged: BTreeMap<u8, u64>,
    /// List of the running comparison, its version, and the objects that our watch removed in the meantime.
    compared: (BTreeMap<u8, u64>, u64, BTreeSet<u8>),
    kind: Kind,
    /// Epoch of the store's content.
    epoch: u32,
    grant_at: Option<Instant>,
    sends: VecDeque<Instant>,
    /// Number of occurrences of each diagnostic.
    seen: BTreeMap<&'static str, u64>,
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, at {}: {:?}", self.seed, self.now, self.reflector);
        }
    }
}

impl Client {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xC11E);
        let kind = match random.draw() % 6 {
            0 => Kind::WithoutBookmarks,
            1 => Kind::Losing,
            _ => Kind::Ordinary,
        };
        let settings = ReflectorSettings {
            page_size: Some(3),
            streamed_lists: Some(random.fraction() < 0.7),
            audit_every: (kind == Kind::Losing || random.fraction() < 0.3).then_some(AUDIT_INTERVAL),
            delta_relists: Some(random.fraction() < 0.5),
            delta_min_objects: 1,
            delta_objects_per_difference: 1,
            paged_list_period: Duration::from_secs(if random.fraction() < 0.5 { 60 } else { 1800 }),
            max_period: (kind == Kind::WithoutBookmarks).then(|| Duration::from_secs(300)),
            ..Default::default()
        };
        let mut client = Self {
            seed,
            now: Instant::ZERO,
            period: settings.max_period.unwrap_or(settings.period),
            reflector: Reflector::new(settings, seed),
            random,
            monitor: Monitor::default(),
            server: Server::new(seed, kind),
            kind,
            compared: Default::default(),
            store: BTreeMap::new(),
            staged: BTreeMap::new(),
            epoch: 0,
            grant_at: None,
            sends: VecDeque::new(),
            seen: BTreeMap::new(),
        };
        client.step(Input::Start);
        client
    }

    fn run_until(&mut self, end: Instant) {
        let mut steps_at_instant = 0;
        loop {
            let next = [self.reflector.wake_at(), self.server.next(), self.grant_at].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            steps_at_instant = if next > self.now { 0 } else { steps_at_instant + 1 };
            assert!(steps_at_instant < 200, "200 steps without an advance of the time");
            self.now = self.now.max(next);
            self.advance();
            self.check_invariants();
        }
        self.now = end;
        self.check_invariants();
    }

    /// Performs all due actions: of the server, of grants, and of the reflector's timer.
    fn advance(&mut self) {
        for (id, arrival) in self.server.advance(self.now, self.reflector.version(), self.epoch) {
            // A response to a cancelled request may still be in flight.
            if self.monitor.open.contains_key(&id) {
                self.arrive(id, arrival);
            }
        }
        if self.grant_at.is_some_and(|at| self.now >= at) {
            self.grant_at = None;
            self.monitor.transfer_granted();
            // The hints must precede the grant, because the grant selects the kind of list.
            self.reflector.set_list_hints(ListHints { cached_objects: self.store.len(), ..ListHints::default() });
            self.step(Input::TransferGranted);
        }
        if self.server.take_recovered() {
            self.step(Input::Reachable);
        }
        if self.random.fraction() < 0.01 {
            self.step(Input::SeekProof);
        }
        if self.reflector.wake_at().is_some_and(|at| self.now >= at) {
            self.step(Input::Tick);
        }
    }

    fn arrive(&mut self, id: RequestId, arrival: Arrival) {
        match arrival {
            Arrival::Opened => self.step(Input::Opened(id)),
            Arrival::Object(kind, key, version) => {
                let identity = identity(key, version);
                match self.reflector.record(self.now, id, Record::Object(kind, &identity)) {
                    RecordAction::Apply => self.apply(kind, key, version),
                    RecordAction::Stage if kind == RecordKind::Deleted => drop(self.staged.remove(&key)),
                    RecordAction::Stage => drop(self.staged.insert(key, version)),
                    RecordAction::Skip
                    | RecordAction::Older { .. }
                    | RecordAction::Compare
                    | RecordAction::StageUnchanged => {}
                    RecordAction::Perform(outputs) => self.perform(&outputs),
                }
            }
            Arrival::Item(key, version) => match self.reflector.list_item(self.now, id, &identity(key, version)) {
                RecordAction::Stage => drop(self.staged.insert(key, version)),
                RecordAction::Compare => drop(self.compared.0.insert(key, version)),
                RecordAction::StageUnchanged if self.store.get(&key) == Some(&version) => {
                    self.staged.insert(key, version);
                }
                RecordAction::StageUnchanged => self.step(Input::Differs(id, identity(key, version))),
                RecordAction::Perform(outputs) => self.perform(&outputs),
                RecordAction::Apply | RecordAction::Skip | RecordAction::Older { .. } => {}
            },
            Arrival::Unidentified => self.step(Input::Unidentified(id, "it has no name".into())),
            Arrival::Probed(version, sent) => {
                self.monitor.response_ended(id);
                self.step(Input::Probed(id, Some(version_of(version)), sent));
            }
            Arrival::Bookmark(version, initial_events_end) => {
                let bookmark = Bookmark { version: version_of(version), initial_events_end };
                if let RecordAction::Perform(outputs) = self.reflector.record(self.now, id, Record::Bookmark(&bookmark))
                {
                    self.perform(&outputs);
                }
            }
            Arrival::Error(status) => {
                self.monitor.response_ended(id);
                if let RecordAction::Perform(outputs) = self.reflector.record(self.now, id, Record::Error(&status)) {
                    self.perform(&outputs);
                }
            }
            Arrival::ListEnded(meta) => {
                if let (Some(Request::Versions { .. }), Some(version)) = (self.monitor.open.get(&id), &meta.version) {
                    self.compared.1 = version.as_str().parse().unwrap();
                }
                self.monitor.response_ended(id);
                self.step(Input::ListEnded(id, meta));
            }
            Arrival::Ended => {
                self.monitor.response_ended(id);
                self.step(Input::Ended(id));
            }
            Arrival::Rejected(status, after) => {
                self.monitor.response_ended(id);
                self.step(Input::Failed(id, Failure::from_status(&status, after)));
            }
            Arrival::ConnectionEnding => self.step(Input::ConnectionEnding(id)),
            Arrival::ConnectionHealthy => self.step(Input::ConnectionHealthy(id)),
            Arrival::Responsive(responsive) => self.step(Input::ResponsivenessChanged(id, responsive)),
            Arrival::Broke => {
                self.monitor.response_ended(id);
                self.step(Input::Failed(id, Failure::unreachable("reset")));
            }
        }
    }

    fn apply(&mut self, kind: RecordKind, key: u8, version: u64) {
        assert!(self.store.get(&key).is_none_or(|held| *held < version), "{key} reverts to version {version}");
        if kind == RecordKind::Deleted {
            self.store.remove(&key);
            self.compared.2.insert(key);
        } else {
            self.store.insert(key, version);
        }
    }

    fn step(&mut self, input: Input) {
        let stop = input == Input::Stop;
        let outputs = self.reflector.step(self.now, input);
        if stop {
            self.monitor.reflector_stopped();
        }
        self.perform(&outputs);
        if outputs.contains(&Output::CompareListed) {
            self.monitor.comparison_judged();
            let found = self.compare();
            self.step(Input::Compared(found));
        }
    }

    /// Compares the cache with the list, without cached versions above the list's version.
    fn compare(&mut self) -> Differences {
        let (listed, at, removed) = &self.compared;
        let mut found = Differences::default();
        for key in listed.keys().chain(self.store.keys()).collect::<BTreeSet<_>>() {
            let differs = match (self.store.get(key), listed.get(key)) {
                (Some(held), _) if held > at => false,
                (Some(held), Some(listed)) => {
                    if held > listed {
                        found.backwards = Some((version_of(*held), version_of(*listed)));
                    }
                    held != listed
                }
                (Some(_), None) => true,
                (None, _) => !removed.contains(key),
            };
            found.count += usize::from(differs);
        }
        found
    }

    fn perform(&mut self, outputs: &[Output]) {
        self.monitor.check_outputs(outputs);
        for output in outputs {
            match output {
                Output::Send(id, request) => {
                    self.sends.push_back(self.now);
                    if matches!(request, Request::ShortWatch { .. }) {
                        *self.seen.entry("short watch").or_default() += 1;
                    }
                    self.server.accept(self.now, *id, request);
                }
                Output::Cancel(id) => self.server.forget(*id),
                Output::BeginStaging { .. } => self.staged.clear(),
                Output::Commit { version, new_epoch, .. } => {
                    let server_epoch = self.server.epoch();
                    if *new_epoch {
                        assert_ne!(self.epoch, server_epoch, "no epoch ended");
                    }
                    for (key, version) in &self.staged {
                        let held = self.store.get(key);
                        assert!(
                            *new_epoch || held.is_none_or(|held| held <= version),
                            "{key} reverts to an earlier version in a list"
                        );
                    }
                    assert!(version.is_some());
                    let changed = self.staged.iter().filter(|(key, version)| self.store.get(key) != Some(version));
                    let removed = self.store.keys().filter(|key| !self.staged.contains_key(key));
                    self.reflector.list_differed(changed.count() + removed.count());
                    self.epoch = server_epoch;
                    self.store = std::mem::take(&mut self.staged);
                }
                Output::BeginComparison => self.compared = Default::default(),
                Output::ReportDifferences => *self.seen.entry("lost").or_default() += 1,
                Output::Diagnostic(diagnostic) => *self.seen.entry(name_of(diagnostic)).or_default() += 1,
                // The monitor checks these outputs.
                _ => {}
            }
        }
        match self.monitor.transfer {
            Transfer::Awaited if self.grant_at.is_none() => {
                self.grant_at = Some(self.now + self.random.between(Duration::ZERO, Duration::from_millis(200)));
            }
            Transfer::Awaited => {}
            Transfer::None | Transfer::Held => self.grant_at = None,
        }
    }

    /// Checks the invariants that hold after every step.
    fn check_invariants(&mut self) {
        Monitor::check(&self.reflector, self.now, self.period);
        while self.sends.front().is_some_and(|sent| self.now.since(*sent) > Duration::from_secs(60)) {
            self.sends.pop_front();
        }
        assert!(self.sends.len() <= MAX_SENDS_PER_MINUTE, "{} requests in a minute", self.sends.len());
        if self.reflector.evidence().at(self.now).is_fresh() {
            // A replica that resumes after a freeze delivers old changes as new ones, which no client can detect.
            let audit = if self.kind == Kind::Losing { AUDIT_INTERVAL * 3 } else { Duration::ZERO };
            let max_lag = self.period * 2 + server::MAX_FREEZE + audit + Duration::from_secs(5);
            self.server.assert_known(self.now - max_lag, &self.store, self.epoch);
        }
    }

    /// Returns the maximum recovery time.
    fn recovery(&self) -> Duration {
        if self.kind == Kind::WithoutBookmarks { MAX_RECOVERY_BY_LISTS } else { MAX_RECOVERY.max(AUDIT_INTERVAL * 2) }
    }

    /// Waits until a list has shown all objects that were unidentified before the last fault.
    fn wait_for_unidentified(&mut self) {
        let end = self.now + self.period * MAX_LIST_PERIODS;
        while self.server.hides_objects() && self.now < end && !self.reflector.evidence().at(self.now).is_fresh() {
            self.run_until(self.now + self.period);
        }
    }

    fn assert_equals_server(&self) {
        assert_eq!(self.store, self.server.content(), "the cache must equal the content of the server");
        let freshness = self.reflector.evidence().at(self.now);
        assert!(freshness.is_fresh(), "{freshness}");
    }
}

fn version_of(version: u64) -> ResourceVersion {
    ResourceVersion::from(version.to_string().as_str())
}

fn identity(key: u8, version: u64) -> Identity {
    let name = key.to_string();
    Identity { key: ObjectKey::cluster(name.as_str()), uid: name.as_str().into(), version: version_of(version) }
}
