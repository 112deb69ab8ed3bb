//! One run: a cluster in memory, the controller's processes, the scenario, and at most one fault.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::try_join_all;
use parking_lot::Mutex;
use steadfast::Connection;
use steadfast_apiserver::ApiServer;
use tokio::time::sleep;

use super::final_state::FinalState;
use super::fixture::Fixture;
use super::injector::SweepInjector;
use super::request_fault::{RequestFault, RequestPoint};
use super::settings::SweepSettings;
use crate::TestkitError;
use crate::clients::InMemory;
use crate::proxy::NetworkFaults;

/// Delay before a process is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Result of a run.
pub(super) struct RunResult {
    pub(super) final_state: FinalState,
    /// Failure of the run itself: the error of the scenario, or a violated invariant.
    pub(super) failure: Option<String>,
    /// Processes that ended without being killed.
    pub(super) exits: Vec<UnexpectedExit>,
    pub(super) points: Vec<(Duration, RequestPoint)>,
    pub(super) was_injected: bool,
}

/// End of a process on its own.
pub(super) struct UnexpectedExit {
    pub(super) text: String,
    pub(super) is_panic: bool,
}

/// Runs once, on its own runtime with virtual time.
pub(super) fn run_once<C, S, CF, SF, CE, SE>(
    settings: &SweepSettings<C, S>,
    fault: Option<&RequestFault>,
) -> Result<RunResult, TestkitError>
where
    C: Fn(Connection) -> CF,
    S: Fn(Fixture) -> SF,
    CF: Future<Output = Result<(), CE>>,
    SF: Future<Output = Result<(), SE>>,
    CE: fmt::Display,
    SE: fmt::Display,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        // Each process has its own replica, by which the injector identifies the sender of a request. The scenario has
        // a further replica, whose cache never lags.
        let replicas = settings.processes + 1;
        let server = ApiServer::builder().seed(settings.seed).replicas(replicas).in_memory().start().await?;
        let server = Arc::new(server);
        (settings.prepare)(&server)?;
        let injector = SweepInjector::new(&server, settings.processes, fault.cloned());
        let exits = Mutex::default();
        let connection =
            connect(&server, settings.seed, settings.processes, &NetworkFaults::seeded(settings.seed)).await?;
        let (quiet, ignored_resources) = (settings.quiet, settings.ignored_resources.clone().into());
        let fixture =
            Fixture { server: server.clone(), injector: injector.clone(), connection, quiet, ignored_resources };
        let processes = (0..settings.processes).map(|process| supervise(settings, &server, &injector, process, &exits));
        let scenario = AssertUnwindSafe(async {
            (settings.scenario)(fixture.clone()).await.map_err(|error| error.to_string())?;
            // The gap ends with the scenario, so that the controller must still converge.
            injector.end_gap();
            fixture.settle().await.map_err(|error| error.to_string())
        });
        let timed_scenario = tokio::time::timeout(settings.limit, scenario.catch_unwind());
        let outcome = tokio::select! {
            // The overrun is checked first, because in virtual time the timeout never expires during a hot loop.
            biased;
            overrun_message = injector.overrun() => Err(overrun_message),
            outcome = timed_scenario => match outcome {
                Ok(Ok(result)) => result.map_err(|error| format!("the scenario failed: {error}")),
                Ok(Err(panic)) => Err(format!("the scenario panicked: {}", panic_message(&*panic))),
                Err(_) => Err(format!("the scenario did not end within {:?}", settings.limit)),
            },
            result = try_join_all(processes) => return Err(result.err().unwrap_or_else(|| {
                "all processes of the controller have ended".into()
            })),
        };
        let failure = outcome.and_then(|()| check_invariants(settings, &server)).err();
        Ok(RunResult {
            final_state: FinalState::collect(&server, &settings.ignored_resources, &settings.ignored_fields),
            failure,
            exits: std::mem::take(&mut *exits.lock()),
            points: injector.points(),
            was_injected: injector.has_injected(),
        })
    })
}

/// Checks the invariants.
fn check_invariants<C, S>(settings: &SweepSettings<C, S>, server: &ApiServer) -> Result<(), String> {
    settings.invariants.iter().try_for_each(|(name, holds)| {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| holds(server)));
        let outcome = outcome.unwrap_or_else(|panic| Err(panic_message(&*panic).to_owned()));
        outcome.map_err(|violation| format!("{name}: {violation}"))
    })
}

/// Runs one process of the controller and restarts it. Ends only if a connection cannot be created.
async fn supervise<C, S, F, E>(
    settings: &SweepSettings<C, S>,
    server: &Arc<ApiServer>,
    injector: &SweepInjector,
    process: usize,
    exits: &Mutex<Vec<UnexpectedExit>>,
) -> Result<(), TestkitError>
where
    C: Fn(Connection) -> F,
    F: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    for start in 0.. {
        // A restarted process needs another seed: with equal jitter, a race would repeat.
        let seed = settings.seed.wrapping_add(1 + process as u64).wrapping_add(start * 1000);
        let network = NetworkFaults::seeded(seed);
        let connection = connect(server, seed, process, &network).await?;
        // The network is registered once the connection exists. Requests of a process without a network count as
        // those of a dead process.
        injector.process_started(process, network.clone());
        // The caller's function is called within this future, so that a panic of the call itself is caught too.
        let process_future = AssertUnwindSafe(async { (settings.controller)(connection).await }).catch_unwind();
        // A kill takes precedence over an end in the same poll, because the run must show the effect of the fault.
        let exit = tokio::select! {
            biased;
            () = injector.until_killed(process) => None,
            result = process_future => Some(match result {
                Ok(Ok(())) => ("ended".to_owned(), false),
                Ok(Err(error)) => (format!("ended: {error}"), false),
                Err(panic) => (format!("panicked: {}", panic_message(&*panic)), true),
            }),
        };
        // Spawned tasks of the process may survive the drop of its future. Without a network they can do nothing.
        network.cut();
        injector.process_ended(process);
        if let Some((exit, is_panic)) = exit {
            let text = format!("process {process} {exit}, {:?} after the start", server.elapsed());
            exits.lock().push(UnexpectedExit { text, is_panic });
        }
        sleep(RESTART_DELAY).await;
    }
    Ok(())
}

/// Opens a connection to the replica with this number.
async fn connect(
    server: &ApiServer,
    seed: u64,
    replica: usize,
    network: &NetworkFaults,
) -> Result<Connection, TestkitError> {
    network.send_to(replica);
    InMemory { seed, network: network.clone(), ..InMemory::default() }.connection(server).await
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
