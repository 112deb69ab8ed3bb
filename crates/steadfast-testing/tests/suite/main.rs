//! The conformance suite: scenarios of informers that are played on any server, and judged by the checker of the contract.
//!
//! `STEADFAST_SERVER` says on which: the embedded one, which is the default, `reference`, or a kubeconfig; see
//! `docs/development/testing.md`. A scenario that cannot be played on a server says so, and `played.rs` asserts which these are.

mod changes;
mod clients;
mod controllers;
mod cuts;
mod definitions;
mod played;
mod servers;
mod streams;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use steadfast::{Informer, InformerBuilder, InformerFactory, Kept, Note, Scope};
use steadfast_contract::{Terms, Verdict};
use steadfast_testing::cluster::{Cluster, Kind, Need};
use steadfast_testing::menu::Fault;
use steadfast_testing::{Form, Held, Recorder, Recording, WorldError};

/// How long anything may take that has to happen.
const SOON: Duration = Duration::from_secs(30);

/// One scenario: what it needs to be done to the server, which faults of the menu it plays, and how it goes.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) faults: &'static [Fault],
    pub(crate) tell: for<'a> fn(&'a mut Cluster) -> LocalBoxFuture<'a, Result<(), WorldError>>,
}

/// An informer of `factory` to be started, which requests objects in the form of this run.
fn build<K: Held>(factory: &InformerFactory, scope: Scope) -> InformerBuilder<'_, K> {
    factory.build(scope).protobuf(Form::of_this_run().protobuf)
}

/// A scenario that is told: one that says so with what is kept in the form that is asked for.
macro_rules! told {
    ($cluster:ident, $name:ident) => {
        Box::pin($name($cluster))
    };
    ($cluster:ident, $name:ident, $kept:ident) => {
        if steadfast_testing::Form::of_this_run().lazy {
            Box::pin($name::<steadfast::Lazy<k8s_openapi::api::core::v1::ConfigMap>>($cluster))
        } else {
            Box::pin($name::<k8s_openapi::api::core::v1::ConfigMap>($cluster))
        }
    };
}
pub(crate) use told;

/// The scenarios of a file, a test for each: `name: needs [...], tells [...]`, or `name<K>: ...` of one that is told in any
/// form.
macro_rules! scenarios {
    ($($name:ident $(<$kept:ident>)?: needs [$($need:ident),*], tells [$($fault:ident),*];)*) => {
        pub(crate) const SCENARIOS: &[crate::Scenario] = &[$(crate::Scenario {
            name: stringify!($name),
            needs: &[$(steadfast_testing::cluster::Need::$need),*],
            faults: &[$(steadfast_testing::menu::Fault::$fault),*],
            tell: |cluster| crate::told!(cluster, $name $(, $kept)?),
        }),*];

        mod on_the_server {
            $(
                #[test]
                fn $name() -> Result<(), steadfast_testing::WorldError> {
                    crate::play(stringify!($name), super::SCENARIOS)
                }
            )*
        }
    };
}
pub(crate) use scenarios;

/// Tells the scenario `name` of `scenarios` on the server that is asked for.
fn play(name: &str, scenarios: &[Scenario]) -> Result<(), WorldError> {
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).ok_or("there is no such scenario")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let begun = Instant::now();
        let mut cluster = match Cluster::start(&Kind::asked(), scenario.needs).await? {
            Ok(cluster) => cluster,
            Err(not_here) => {
                // Past the capture of tests that pass: nobody should take this for a scenario that was played.
                writeln!(std::io::stderr(), "not played: {name}: {not_here}")?;
                return Ok(());
            }
        };
        let (ready, begun) = (begun.elapsed(), Instant::now());
        let told = AssertUnwindSafe((scenario.tell)(&mut cluster)).catch_unwind().await;
        match told {
            Ok(Ok(())) => {
                println!("{name}: {:.1?}, after {ready:.1?}", begun.elapsed());
                Ok(cluster.end().await?)
            }
            Ok(Err(error)) => {
                cluster.give_up().await?;
                Err(error)
            }
            Err(panic) => {
                cluster.give_up().await?;
                resume_unwind(panic)
            }
        }
    })
}

/// What an informer said of itself, in its own words.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    fn by<K: Kept>(informer: &Informer<K>) -> Self {
        let said = Self::default();
        let own = said.clone();
        informer.on_note(move |note| {
            let word = match note {
                Note::Relisted { .. } => "relisted",
                Note::Resumed { .. } => "resumed",
                Note::FellBackToPages { .. } => "fell back to pages",
                Note::FellBackToJson { .. } => "fell back to JSON",
                Note::Suspect { .. } => "suspect",
                _ => return,
            };
            own.0.lock().unwrap_or_else(PoisonError::into_inner).push(word.to_owned());
        });
        said
    }

    fn times(&self, word: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|said| *said == word).count()
    }
}

/// An informer of all config maps of a scenario, what it said of itself, and what its handler was told. It lives as long as
/// this does.
struct Watched<K: Held> {
    factory: InformerFactory,
    informer: Informer<K>,
    said: Said,
    seen: Recording<K>,
}

/// Watches and records the scenario's config maps through the network that can fail, from when all are known.
async fn watch<K: Held>(cluster: &Cluster, recorder: &Recorder) -> Result<Watched<K>, WorldError> {
    watch_by(InformerFactory::new(&cluster.connection().await?), cluster, recorder).await
}

/// The same by an informer of this factory.
async fn watch_by<K: Held>(
    factory: InformerFactory,
    cluster: &Cluster,
    recorder: &Recorder,
) -> Result<Watched<K>, WorldError> {
    let informer = build::<K>(&factory, cluster.scope()).start()?;
    Ok(watched(factory, informer, recorder).await)
}

/// Waits until the informer is synced, from its beginning on.
async fn watched<K: Held>(factory: InformerFactory, informer: Informer<K>, recorder: &Recorder) -> Watched<K> {
    let said = Said::by(&informer);
    let seen = recorder.record(&informer);
    seen.until_synced().await;
    Watched { factory, informer, said, seen }
}

/// Waits until all is quiet, and judges what was recorded of config maps: nothing is lost, nothing delivered twice.
async fn judge(cluster: &Cluster, recorder: &Recorder) -> Result<Verdict, WorldError> {
    judge_by(Terms::default(), cluster, recorder).await
}

/// The same by other times than the contract's.
async fn judge_by(terms: Terms, cluster: &Cluster, recorder: &Recorder) -> Result<Verdict, WorldError> {
    cluster.settle(recorder).await?;
    let report = terms.judge(&cluster.history().await?, &recorder.trace());
    assert!(report.passed(), "{report:#?}");
    let total = report.verdict.total();
    assert_eq!((total.lost, total.repeated), (0, 0), "{:?}", report.verdict);
    Ok(report.verdict)
}

/// Waits until the handler has been told so many things of `name`: what waits for it may be merged otherwise.
async fn until_told<K: Kept>(
    cluster: &Cluster,
    recording: &Recording<K>,
    name: &str,
    times: usize,
) -> Result<(), WorldError> {
    let key = cluster.key(name);
    let told = async {
        while recording.of(&key).len() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(SOON, told).await;
    waited.map_err(|_| format!("{key} has {:?} after {SOON:?}", recording.in_words(&key)).into())
}

/// How long it takes until `informer` is fresh, or no longer is; an error after `limit`.
async fn until_fresh<K: Kept>(informer: &Informer<K>, fresh: bool, limit: Duration) -> Result<Duration, WorldError> {
    let begun = Instant::now();
    while informer.freshness().is_fresh() != fresh {
        if begun.elapsed() > limit {
            return Err(format!("{}: still {} after {limit:?}", informer.name(), informer.freshness()).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(begun.elapsed())
}

fn assert_fresh<K: Kept>(recording: &Recording<K>) {
    let freshness = recording.informer().freshness();
    assert!(freshness.is_fresh(), "{}: {freshness}", recording.informer().name());
}
