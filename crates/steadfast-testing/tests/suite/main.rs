//! The conformance suite: scenarios of informers that run on any server, checked by the contract checker.
//!
//! `STEADFAST_SERVER` selects the server: the embedded one (the default), `reference`, or a kubeconfig; see
//! `docs/development/testing.md`. A scenario that cannot run on a server prints the reason, and `coverage.rs` asserts
//! the list of those scenarios.

mod changes;
mod clients;
mod controllers;
mod coverage;
mod cuts;
mod definitions;
mod servers;
mod streams;

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use parking_lot::Mutex;
use steadfast::{Cacheable, Diagnostic, Informer, InformerBuilder, InformerFactory, Scope};
use steadfast_contract::{Bounds, Verdict};
use steadfast_testing::cluster::{ServerFault, ServerKind, TestCluster};
use steadfast_testing::scenarios::CatalogFault;
use steadfast_testing::{CachedConfigMap, CachedForm, EventRecording, Recorder, TestError};

/// Timeout for an expected event.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Scenario: required faults of the server, covered faults of the catalog, and the function.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [ServerFault],
    pub(crate) faults: &'static [CatalogFault],
    pub(crate) run: for<'a> fn(&'a mut TestCluster) -> LocalBoxFuture<'a, Result<(), TestError>>,
}

/// Returns a builder for an informer of `factory` that requests objects in the form of this run.
fn build<K: CachedConfigMap>(factory: &InformerFactory, scope: Scope) -> InformerBuilder<'_, K> {
    factory.builder(scope).protobuf(CachedForm::current().protobuf)
}

/// Selects the function of a scenario for the requested form.
macro_rules! in_requested_form {
    ($cluster:ident, $name:ident) => {
        Box::pin($name($cluster))
    };
    ($cluster:ident, $name:ident, $kept:ident) => {
        if steadfast_testing::CachedForm::current().lazy {
            Box::pin($name::<steadfast::Lazy<k8s_openapi::api::core::v1::ConfigMap>>($cluster))
        } else {
            Box::pin($name::<k8s_openapi::api::core::v1::ConfigMap>($cluster))
        }
    };
}
pub(crate) use in_requested_form;

/// Declares the scenarios of a file, with a test for each: `name: needs [...], covers [...]`, or `name<K>: ...` for a
/// scenario that supports each form.
macro_rules! scenarios {
    ($($name:ident $(<$kept:ident>)?: needs [$($need:ident),*], covers [$($fault:ident),*];)*) => {
        pub(crate) const SCENARIOS: &[crate::Scenario] = &[$(crate::Scenario {
            name: stringify!($name),
            needs: &[$(steadfast_testing::cluster::ServerFault::$need),*],
            faults: &[$(steadfast_testing::scenarios::CatalogFault::$fault),*],
            run: |cluster| crate::in_requested_form!(cluster, $name $(, $kept)?),
        }),*];

        mod on_the_server {
            $(
                #[test]
                fn $name() -> Result<(), steadfast_testing::TestError> {
                    crate::run_scenario(stringify!($name), super::SCENARIOS)
                }
            )*
        }
    };
}
pub(crate) use scenarios;

/// Runs the scenario `name` of `scenarios` on the selected server.
fn run_scenario(name: &str, scenarios: &[Scenario]) -> Result<(), TestError> {
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).ok_or("unknown scenario")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let start = Instant::now();
        let mut cluster = match TestCluster::start(&ServerKind::from_env(), scenario.needs).await? {
            Ok(cluster) => cluster,
            Err(reason) => {
                // Written to standard error directly, which is not captured for passing tests, so that a skipped
                // scenario is visible.
                writeln!(std::io::stderr(), "skipped: {name}: {reason}")?;
                return Ok(());
            }
        };
        let (startup_time, start) = (start.elapsed(), Instant::now());
        let result = AssertUnwindSafe((scenario.run)(&mut cluster)).catch_unwind().await;
        match result {
            Ok(Ok(())) => {
                println!("{name}: {:.1?}, after {startup_time:.1?}", start.elapsed());
                Ok(cluster.end().await?)
            }
            Ok(Err(error)) => {
                cluster.clean_up_after_failure().await?;
                Err(error)
            }
            Err(panic) => {
                cluster.clean_up_after_failure().await?;
                resume_unwind(panic)
            }
        }
    })
}

/// Diagnostics of an informer.
#[derive(Clone, Default)]
struct DiagnosticLog(Arc<Mutex<Vec<String>>>);

impl DiagnosticLog {
    fn record<K: Cacheable>(informer: &Informer<K>) -> Self {
        let diagnostics = Self::default();
        let captured_diagnostics = diagnostics.clone();
        informer.on_diagnostic(move |note| {
            let kind = match note {
                Diagnostic::Relisted { .. } => "relisted",
                Diagnostic::Resumed { .. } => "resumed",
                Diagnostic::FellBackToPages { .. } => "fell back to pages",
                Diagnostic::FellBackToJson { .. } => "fell back to JSON",
                Diagnostic::Suspect { .. } => "suspect",
                _ => return,
            };
            captured_diagnostics.0.lock().push(kind.to_owned());
        });
        diagnostics
    }

    fn times(&self, kind: &str) -> usize {
        self.0.lock().iter().filter(|diagnostic| *diagnostic == kind).count()
    }
}

/// Informer of all config maps of a scenario, with its diagnostics and the events of its handler. Dropping it drops the
/// informer.
struct Watched<K: CachedConfigMap> {
    factory: InformerFactory,
    informer: Informer<K>,
    diagnostics: DiagnosticLog,
    recording: EventRecording<K>,
}

/// Watches and records the scenario's config maps through the faulty network, and waits for the sync.
async fn watch<K: CachedConfigMap>(cluster: &TestCluster, recorder: &Recorder) -> Result<Watched<K>, TestError> {
    watch_with(InformerFactory::new(&cluster.connection().await?), cluster, recorder).await
}

/// Does the same as [`watch`] with this factory.
async fn watch_with<K: CachedConfigMap>(
    factory: InformerFactory,
    cluster: &TestCluster,
    recorder: &Recorder,
) -> Result<Watched<K>, TestError> {
    let informer = build::<K>(&factory, cluster.scope()).start()?;
    Ok(watched(factory, informer, recorder).await)
}

/// Records the informer, and waits until it is synced.
async fn watched<K: CachedConfigMap>(
    factory: InformerFactory,
    informer: Informer<K>,
    recorder: &Recorder,
) -> Watched<K> {
    let diagnostics = DiagnosticLog::record(&informer);
    let recording = recorder.record(&informer);
    recording.until_synced().await;
    Watched { factory, informer, diagnostics, recording }
}

/// Waits until the scenario is quiet, and checks the records of config maps: no event is lost or delivered twice.
async fn check_contract(cluster: &TestCluster, recorder: &Recorder) -> Result<Verdict, TestError> {
    check_contract_with(Bounds::default(), cluster, recorder).await
}

/// Does the same as [`check_contract`] with other times than the contract's.
async fn check_contract_with(bounds: Bounds, cluster: &TestCluster, recorder: &Recorder) -> Result<Verdict, TestError> {
    cluster.settle(recorder).await?;
    let report = bounds.report(&cluster.history().await?, &recorder.trace());
    assert!(report.passed(), "{report:#?}");
    let total = report.verdict.total();
    assert_eq!((total.lost, total.repeated), (0, 0), "{:?}", report.verdict);
    Ok(report.verdict)
}

/// Waits until the handler has received this number of events of `name`, because pending events may otherwise be
/// merged.
async fn until_delivered<K: Cacheable>(
    cluster: &TestCluster,
    recording: &EventRecording<K>,
    name: &str,
    count: usize,
) -> Result<(), TestError> {
    let key = cluster.key(name);
    let delivered = async {
        while recording.of(&key).len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let result = tokio::time::timeout(EVENT_TIMEOUT, delivered).await;
    result.map_err(|_| format!("{key} has {:?} after {EVENT_TIMEOUT:?}", recording.descriptions(&key)).into())
}

/// Returns the time until `informer` is fresh, or no longer fresh. Returns an error after `limit`.
async fn until_fresh<K: Cacheable>(
    informer: &Informer<K>,
    is_fresh: bool,
    limit: Duration,
) -> Result<Duration, TestError> {
    let start = Instant::now();
    while informer.freshness().is_fresh() != is_fresh {
        if start.elapsed() > limit {
            return Err(format!("{}: still {} after {limit:?}", informer.name(), informer.freshness()).into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(start.elapsed())
}

fn assert_fresh<K: Cacheable>(recording: &EventRecording<K>) {
    let freshness = recording.informer().freshness();
    assert!(freshness.is_fresh(), "{}: {freshness}", recording.informer().name());
}
