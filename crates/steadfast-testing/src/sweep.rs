//! A controller and a scenario, played once undisturbed and then again with one disturbance each, wherever there can be one:
//! the end has to be the same.
//!
//! A controller brings the world to where its objects say, whatever happens on the way; if one thing that goes wrong changes
//! where it ends, it has a bug. The idea is Sieve's (Sun and others, "Automatic Reliability Testing for Cluster Management
//! Controllers", OSDI '22): of three patterns of disturbance that it knows, crashes between two steps, views of the past and
//! states that are never observed, came 46 bugs in ten controllers.
//!
//! ```
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//! use steadfast::{Connection, InformerFactory, Scope};
//! use steadfast_testing::sweep::{Stage, Sweep};
//! use steadfast_testing::{Error, config_map};
//!
//! /// A process that is to mirror what it sees; here it only looks.
//! async fn controller(connection: Connection) -> Result<(), Error> {
//!     let informers = InformerFactory::new(&connection);
//!     let maps = informers.informer::<ConfigMap>(Scope::all())?;
//!     maps.wait_for_sync(Duration::from_secs(60)).await?;
//!     std::future::pending().await
//! }
//!
//! /// What somebody does meanwhile.
//! async fn scenario(stage: Stage) -> Result<(), Error> {
//!     let maps = Api::<ConfigMap>::namespaced(stage.client(), "default");
//!     maps.create(&PostParams::default(), &config_map("a", "1")).await?;
//!     stage.settle().await
//! }
//!
//! let report = Sweep::new(controller, scenario).run()?;
//! println!("{report}");
//! report.check()?;
//! # Ok::<(), Error>(())
//! ```
//!
//! Each play has a cluster in memory, virtual time and a seed, so that it is the same each time. Where one ends otherwise, the
//! report has a line for it, and `STEADFAST_SWEEP='that line' cargo test name_of_the_test -- --nocapture` plays it
//! alone and tells each request. Whatever is random in a controller itself (`select!` without `biased`, the iteration over a
//! `HashMap`) makes plays differ; then what is not the same twice is told instead.

mod director;
mod disturbance;
mod ending;
mod play;
mod report;
mod setting;
mod stage;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::Connection;
use steadfast_apiserver::{ApiServer, Verb};

use self::disturbance::VARIABLE;
pub use self::disturbance::{Disturbance, Kind, Point, Whose};
use self::play::{Played, play};
pub use self::report::{Finding, Report};
use self::setting::Setting;
pub use self::stage::Stage;
use crate::Error;

/// What says how many requests that are alike are disturbed.
const ALIKE: &str = "STEADFAST_ALIKE";

/// A controller and a scenario to be swept; see the [module](self).
pub struct Sweep<C, S> {
    setting: Setting<C, S>,
    alike: u32,
}

impl<C, S> Sweep<C, S> {
    /// `controller` is one process: it is given a connection and goes on until it is dropped, which is how it is killed.
    /// `scenario` is what happens to it: it writes, and waits in between.
    ///
    /// Where a process ends by itself, as one that has lost its leadership does, it begins anew a second later. What a process
    /// leaves in statics stays there, which a killed one would have lost, and plays that run beside each other share them; what
    /// it has spawned goes on without a network. Nothing collects garbage: what is owned outlives its owner.
    pub fn new(controller: C, scenario: S) -> Self {
        Self { setting: Setting::new(controller, scenario), alike: 10 }
    }

    /// What is there before the controller begins, such as its custom resource definitions.
    #[must_use]
    pub fn prepare(mut self, prepare: impl Fn(&ApiServer) -> Result<(), Error> + Send + Sync + 'static) -> Self {
        self.setting.prepare = Box::new(prepare);
        self
    }

    /// What has to be true of the server at the end of each play, or of all its history; `name` is told where it is not.
    #[must_use]
    pub fn invariant(
        mut self,
        name: &str,
        holds: impl Fn(&ApiServer) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.setting.invariants.push((name.to_owned(), Box::new(holds)));
        self
    }

    /// So many processes of the controller; one, unless it is said.
    ///
    /// # Panics
    ///
    /// Where there are none.
    #[must_use]
    pub fn processes(mut self, processes: usize) -> Self {
        assert!(processes > 0, "without a process there is no controller");
        self.setting.processes = processes;
        self
    }

    /// Objects of this resource, by its plural name, do not count: not at the end, and not as writing. Events and leases do
    /// not anyway.
    #[must_use]
    pub fn ignore(mut self, plural: &str) -> Self {
        self.setting.ignored.push(plural.to_owned());
        self
    }

    /// This field, as a JSON pointer (`/status/observedGeneration`), counts in no object. When something was written, how
    /// often, and what the server has chosen (UIDs, names) does not anyway, nor do times.
    #[must_use]
    pub fn ignore_field(mut self, pointer: &str) -> Self {
        self.setting.unseen.push(pointer.to_owned());
        self
    }

    /// Of requests with the same verb and path, the first so many are disturbed: 10, unless it is said. How many are left out
    /// is told in the report. `STEADFAST_ALIKE=50` disturbs more of them, whatever is said.
    #[must_use]
    pub fn alike(mut self, alike: u32) -> Self {
        self.alike = alike;
        self
    }

    /// Once nothing has been written for so long, the controller is taken to be done: a minute, unless it is said.
    ///
    /// It has to be longer than whatever the controller waits for, such as the back-off after the failures that thirty
    /// seconds bring.
    #[must_use]
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.setting.quiet = quiet;
        self
    }

    /// What decides all that is random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.setting.seed = seed;
        self
    }
}

impl<C, S, CF, SF, CE, SE> Sweep<C, S>
where
    C: Fn(Connection) -> CF + Sync,
    S: Fn(Stage) -> SF + Sync,
    CF: Future<Output = Result<(), CE>>,
    SF: Future<Output = Result<(), SE>>,
    CE: fmt::Display,
    SE: fmt::Display,
{
    /// Plays without a disturbance, and then with each; what ends otherwise is in the report.
    ///
    /// # Errors
    ///
    /// Where the undisturbed play fails, or is not the same twice; where a runtime is current already, as in a
    /// `#[tokio::test]`, for each play has one of its own; and where what `STEADFAST_SWEEP` says is no disturbance.
    pub fn run(&self) -> Result<Report, Error> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err("a sweep has runtimes of its own: it is to be called by a #[test], not a #[tokio::test]".into());
        }
        let undisturbed = self.undisturbed()?;
        let (disturbances, left_out) = match std::env::var(VARIABLE) {
            Ok(line) => (vec![line.parse()?], 0),
            Err(_) => self.disturbances(&undisturbed, self.asked_alike()?),
        };
        let alone = disturbances.len() == 1;
        let played = self.play_each(&disturbances)?;
        let mut report = Report::new(undisturbed.points.len(), undisturbed.ending.len(), left_out);
        for (disturbance, played) in disturbances.into_iter().zip(played) {
            if alone {
                report.tell_story(&played);
            }
            report.add(disturbance, &undisturbed, &played);
        }
        Ok(report)
    }

    /// The undisturbed play, once it was seen to be the same twice.
    fn undisturbed(&self) -> Result<Played, Error> {
        let (first, second) = (play(&self.setting, None)?, play(&self.setting, None)?);
        if let Some(failure) = &first.failure {
            return Err(format!("undisturbed: {failure}{}", report::ends(&first.ended)).into());
        }
        if !first.ended.is_empty() {
            return Err(format!("undisturbed, the controller does not go on{}", report::ends(&first.ended)).into());
        }
        let differences = first.ending.differences(&second.ending);
        if !differences.is_empty() {
            return Err(format!("undisturbed, the end is not the same twice: {}", differences.join("; ")).into());
        }
        let in_common = first.points.iter().zip(&second.points).take_while(|(one, other)| one == other).count();
        match (first.points.get(in_common), second.points.get(in_common)) {
            (None, None) => Ok(first),
            (one, other) => {
                let told = |point: Option<&(Duration, Point)>| {
                    point.map_or_else(|| "nothing".to_owned(), |(at, point)| format!("{point} after {at:?}"))
                };
                let (one, other) = (told(one), told(other));
                Err(format!("undisturbed, the requests are not the same twice: {one}, or {other}").into())
            }
        }
    }

    /// How many requests that are alike are disturbed.
    fn asked_alike(&self) -> Result<u32, Error> {
        match std::env::var(ALIKE) {
            Ok(text) => text.parse().map_err(|_| format!("{ALIKE}={text:?} is no number of requests").into()),
            Err(_) => Ok(self.alike),
        }
    }

    /// What can go wrong, the smallest first, and at how many points nothing does, for others were like them.
    fn disturbances(&self, undisturbed: &Played, alike: u32) -> (Vec<Disturbance>, usize) {
        let has_leader = undisturbed.points.iter().any(|(_, point)| point.is_write() && point.is_of(director::LEASES));
        let mut left_out = HashSet::new();
        let mut disturbances = Vec::new();
        for kind in Kind::ALL {
            for (_, point) in &undisturbed.points {
                if !self.is_for(kind, point, has_leader) {
                    continue;
                }
                if point.ordinal > alike {
                    left_out.insert(point);
                    continue;
                }
                disturbances.push(Disturbance { kind, point: point.clone() });
            }
        }
        (disturbances, left_out.len())
    }

    fn is_for(&self, kind: Kind, point: &Point, has_leader: bool) -> bool {
        let is_controllers = point.whose == Whose::Controller;
        let counts = !self.setting.ignored.iter().any(|plural| point.is_of(plural));
        match kind {
            Kind::Delayed | Kind::Unobserved => point.is_write() && counts,
            Kind::AnswerLost | Kind::CrashBefore => is_controllers && point.verb != Verb::Other,
            // After a read a process knows something that it forgets; before the next request that is the same.
            Kind::CrashAfter => is_controllers && point.is_write(),
            Kind::CrashIntoThePast => is_controllers && point.is_write() && counts,
            // What is held up is of interest where it is acted on later.
            Kind::LeadershipLost => has_leader && is_controllers && point.is_write() && counts,
        }
    }

    /// Plays with each disturbance, on as many threads as there are processors.
    fn play_each(&self, disturbances: &[Disturbance]) -> Result<Vec<Played>, Error> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.min(disturbances.len()) {
                scope.spawn(|| {
                    while let Some((index, disturbance)) = {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        disturbances.get(index).map(|disturbance| (index, disturbance))
                    } {
                        let played =
                            std::panic::catch_unwind(AssertUnwindSafe(|| play(&self.setting, Some(disturbance))));
                        let played = played.unwrap_or_else(|_| Err("the play itself panicked".into()));
                        let played =
                            played.map_err(|error| Error::from(format!("{VARIABLE}='{disturbance}': {error}")));
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((index, played));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        done.into_iter().map(|(_, played)| played).collect()
    }
}

impl<C, S> fmt::Debug for Sweep<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweep")
            .field("processes", &self.setting.processes)
            .field("seed", &self.setting.seed)
            .finish_non_exhaustive()
    }
}
