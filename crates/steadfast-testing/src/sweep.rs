//! Runs a controller and a scenario once without a fault, and then again with one fault at each possible point. The
//! final objects must be equal.
//!
//! A controller must reach the state that its objects specify, regardless of faults in between. If one fault changes
//! the final state, the controller has a bug. The method is Sieve's (Sun and others, "Automatic Reliability Testing for
//! Cluster Management Controllers", OSDI '22). Sieve found 46 bugs in ten controllers with three kinds of faults:
//! crashes between two steps, stale reads, and states that are never observed.
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//! use steadfast::{Connection, InformerFactory, Scope};
//! use steadfast_testing::sweep::{Fixture, Sweep};
//! use steadfast_testing::{TestkitError, config_map};
//!
//! /// Process that would mirror the objects; this one only reads them.
//! async fn controller(connection: Connection) -> Result<(), TestkitError> {
//!     let informers = InformerFactory::new(&connection);
//!     let maps = informers.informer::<ConfigMap>(Scope::all())?;
//!     maps.wait_for_sync(Duration::from_secs(60)).await?;
//!     std::future::pending().await
//! }
//!
//! /// Activity of another client.
//! async fn scenario(fixture: Fixture) -> Result<(), TestkitError> {
//!     let maps = Api::<ConfigMap>::namespaced(fixture.client(), "default");
//!     maps.create(&PostParams::default(), &config_map("a", "1")).await?;
//!     fixture.settle().await
//! }
//!
//! let report = Sweep::new(controller, scenario).run()?;
//! println!("{report}");
//! report.check()?;
//! # Ok::<(), TestkitError>(())
//! ```
//!
//! Each run has a cluster in memory, virtual time and a seed, so that a repeated run is equal. For each run with
//! another final state, the report contains a line. `STEADFAST_SWEEP='that line' cargo test name_of_the_test --
//! --nocapture` repeats only that run and prints each request. Randomness in a controller itself (`select!` without
//! `biased`, iteration over a `HashMap`) makes runs differ. In this case the sweep reports the first difference
//! instead.

mod final_state;
mod fixture;
mod injector;
mod report;
mod request_fault;
mod run;
mod settings;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast::Connection;
use steadfast_apiserver::{ApiServer, Verb};

pub use self::fixture::Fixture;
pub use self::report::{Finding, Report};
use self::request_fault::FAULT_VARIABLE;
pub use self::request_fault::{RequestFault, RequestFaultKind, RequestPoint, RequestSender};
use self::run::{RunResult, run_once};
use self::settings::SweepSettings;
use crate::TestkitError;

/// Environment variable with the number of equal requests that receive a fault.
const REPEATS_VARIABLE: &str = "STEADFAST_SWEEP_REPEATS";

/// Sweep of a controller and a scenario; see the [module](self).
pub struct Sweep<C, S> {
    settings: SweepSettings<C, S>,
    repeats: u32,
}

impl<C, S> Sweep<C, S> {
    /// Creates a sweep. `controller` is one process: it receives a connection and runs until it is dropped, which
    /// simulates a kill. `scenario` is the activity of other clients: it writes, and waits in between.
    ///
    /// A process that ends on its own, for example after the loss of its leadership, is restarted one second later.
    /// Statics survive a simulated kill, unlike in a real process, and concurrent runs share them. Spawned tasks
    /// continue without a network. No garbage collector runs, so owned objects outlive their owners.
    pub fn new(controller: C, scenario: S) -> Self {
        Self { settings: SweepSettings::new(controller, scenario), repeats: 10 }
    }

    /// Prepares the server before the controller starts, for example with custom resource definitions.
    #[must_use]
    pub fn prepare(mut self, prepare: impl Fn(&ApiServer) -> Result<(), TestkitError> + Send + Sync + 'static) -> Self {
        self.settings.prepare = Box::new(prepare);
        self
    }

    /// Adds an invariant that must hold for the server, or for its whole history, at the end of each run. `name`
    /// identifies a violated invariant in the error.
    #[must_use]
    pub fn invariant(
        mut self,
        name: &str,
        holds: impl Fn(&ApiServer) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.settings.invariants.push((name.to_owned(), Box::new(holds)));
        self
    }

    /// Sets the number of controller processes. Defaults to 1.
    ///
    /// # Panics
    ///
    /// Panics if `processes` is 0.
    #[must_use]
    pub fn processes(mut self, processes: usize) -> Self {
        assert!(processes > 0, "a sweep needs at least one process");
        self.settings.processes = processes;
        self
    }

    /// Ignores objects of this resource, given by its plural name: in the final state, and in the detection of quiet.
    /// Events and leases are always ignored.
    #[must_use]
    pub fn ignore(mut self, plural: &str) -> Self {
        self.settings.ignored_resources.push(plural.to_owned());
        self
    }

    /// Ignores this field of all objects, given as a JSON pointer (`/status/observedGeneration`). Times, the number of
    /// writes, and values chosen by the server (UIDs, names) are always ignored.
    #[must_use]
    pub fn ignore_field(mut self, pointer: &str) -> Self {
        self.settings.ignored_fields.push(pointer.to_owned());
        self
    }

    /// Sets how many requests with the same verb and path receive a fault; later ones do not. Defaults to 10. The
    /// report states the number of skipped requests. `STEADFAST_SWEEP_REPEATS=50` overrides this setting.
    #[must_use]
    pub fn repeats(mut self, repeats: u32) -> Self {
        self.repeats = repeats;
        self
    }

    /// Sets the time without a write after which the controller counts as finished. Defaults to one minute.
    ///
    /// It must be longer than any wait of the controller, such as the backoff after failures that last for thirty
    /// seconds.
    #[must_use]
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.settings.quiet = quiet;
        self
    }

    /// Sets the seed of all random choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }
}

impl<C, S, CF, SF, CE, SE> Sweep<C, S>
where
    C: Fn(Connection) -> CF + Sync,
    S: Fn(Fixture) -> SF + Sync,
    CF: Future<Output = Result<(), CE>>,
    SF: Future<Output = Result<(), SE>>,
    CE: fmt::Display,
    SE: fmt::Display,
{
    /// Runs without a fault, and then with each fault. Runs with a different final state are in the report.
    ///
    /// # Errors
    ///
    /// Returns an error if the run without a fault fails or is not reproducible. Returns an error if a runtime is
    /// current, as in a `#[tokio::test]`, because each run creates its own. Returns an error if `STEADFAST_SWEEP` is
    /// not a valid fault.
    pub fn run(&self) -> Result<Report, TestkitError> {
        // A nested runtime would panic inside tokio, with a message that does not name the sweep.
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err("a sweep creates its own runtimes; call it from a #[test], not from a #[tokio::test]".into());
        }
        let fault_free = self.fault_free()?;
        let (faults, skipped) = match std::env::var(FAULT_VARIABLE) {
            // With a single line, the sweep repeats one run and ignores the limit of equal requests.
            Ok(line) => (vec![line.parse()?], 0),
            Err(_) => self.faults(&fault_free, self.requested_repeats()?),
        };
        let is_single = faults.len() == 1;
        let results = self.run_each(&faults)?;
        let mut report = Report::new(fault_free.points.len(), fault_free.final_state.len(), skipped);
        for (fault, result) in faults.into_iter().zip(results) {
            if is_single {
                report.print_requests(&result);
            }
            report.add(fault, &fault_free, &result);
        }
        Ok(report)
    }

    /// Returns the run without a fault, after a check that it is reproducible.
    fn fault_free(&self) -> Result<RunResult, TestkitError> {
        // Two runs without a fault must be equal. Otherwise every difference below could be random.
        let (first, second) = (run_once(&self.settings, None)?, run_once(&self.settings, None)?);
        if let Some(failure) = &first.failure {
            return Err(format!("run without a fault: {failure}{}", report::exits_suffix(&first.exits)).into());
        }
        if !first.exits.is_empty() {
            return Err(
                format!("run without a fault: the controller stopped{}", report::exits_suffix(&first.exits)).into()
            );
        }
        let differences = first.final_state.differences(&second.final_state);
        if !differences.is_empty() {
            return Err(format!(
                "run without a fault: two runs have different final objects: {}",
                differences.join("; ")
            )
            .into());
        }
        // The first differing request locates the source of the randomness.
        let in_common = first.points.iter().zip(&second.points).take_while(|(one, other)| one == other).count();
        match (first.points.get(in_common), second.points.get(in_common)) {
            (None, None) => Ok(first),
            (one, other) => {
                let describe_point = |point: Option<&(Duration, RequestPoint)>| {
                    point.map_or_else(|| "no request".to_owned(), |(at, point)| format!("{point} after {at:?}"))
                };
                let (one, other) = (describe_point(one), describe_point(other));
                Err(format!("run without a fault: two runs have different requests: {one}, and {other}").into())
            }
        }
    }

    /// Returns the number of equal requests that receive a fault.
    fn requested_repeats(&self) -> Result<u32, TestkitError> {
        match std::env::var(REPEATS_VARIABLE) {
            Ok(text) => text
                .parse()
                .map_err(|_| format!("{REPEATS_VARIABLE}={text:?} is not a valid number of requests").into()),
            Err(_) => Ok(self.repeats),
        }
    }

    /// Returns the faults, the least severe first. Also returns the number of points that receive no fault, because
    /// enough equal points receive one.
    fn faults(&self, fault_free: &RunResult, repeats: u32) -> (Vec<RequestFault>, usize) {
        let has_leader = fault_free.points.iter().any(|(_, point)| point.is_write() && point.is_of(injector::LEASES));
        let mut skipped = HashSet::new();
        let mut faults = Vec::new();
        // The order is by kind: the least severe faults are tested and reported first.
        for kind in RequestFaultKind::ALL {
            for (_, point) in &fault_free.points {
                if !self.applies_to(kind, point, has_leader) {
                    continue;
                }
                // Controllers often poll. Thousands of equal requests would multiply the runs and find nothing new.
                if point.ordinal > repeats {
                    skipped.insert(point);
                    continue;
                }
                faults.push(RequestFault { kind, point: point.clone() });
            }
        }
        (faults, skipped.len())
    }

    fn applies_to(&self, kind: RequestFaultKind, point: &RequestPoint, has_leader: bool) -> bool {
        let is_controllers = point.sender == RequestSender::Controller;
        let is_relevant = !self.settings.ignored_resources.iter().any(|plural| point.is_of(plural));
        match kind {
            RequestFaultKind::Delayed | RequestFaultKind::Unobserved => point.is_write() && is_relevant,
            RequestFaultKind::ResponseLost | RequestFaultKind::CrashBefore => {
                is_controllers && point.verb != Verb::Other
            }
            // A crash after a read only loses the response, like a crash before the next request.
            RequestFaultKind::CrashAfter => is_controllers && point.is_write(),
            RequestFaultKind::CrashThenStaleView => is_controllers && point.is_write() && is_relevant,
            // The delay matters only for writes, since only a write can affect the next leader.
            RequestFaultKind::LeadershipLost => has_leader && is_controllers && point.is_write() && is_relevant,
        }
    }

    /// Runs with each fault, on one thread per processor.
    fn run_each(&self, faults: &[RequestFault]) -> Result<Vec<RunResult>, TestkitError> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let next_index = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.min(faults.len()) {
                scope.spawn(|| {
                    while let Some((index, fault)) = {
                        // The threads share one counter, because runs differ in duration.
                        let index = next_index.fetch_add(1, Ordering::Relaxed);
                        faults.get(index).map(|fault| (index, fault))
                    } {
                        // A panic in one run must not end the other runs of the scope.
                        let result =
                            std::panic::catch_unwind(AssertUnwindSafe(|| run_once(&self.settings, Some(fault))));
                        let result = result.unwrap_or_else(|_| Err("the run itself panicked".into()));
                        let result =
                            result.map_err(|error| TestkitError::from(format!("{FAULT_VARIABLE}='{fault}': {error}")));
                        results.lock().push((index, result));
                    }
                });
            }
        });
        let mut results = results.into_inner();
        // The results are sorted by number, so that the report does not depend on the scheduling of threads.
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl<C, S> fmt::Debug for Sweep<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep")
            .field("processes", &self.settings.processes)
            .field("seed", &self.settings.seed)
            .finish_non_exhaustive()
    }
}
