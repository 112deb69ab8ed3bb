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
use super::request_fault::{RequestFault, RequestPoint};
use super::runner::SweepRunner;
use super::setting::Setting;
use crate::TestkitError;
use crate::clients::InMemory;
use crate::proxy::NetworkFaults;

/// Delay before a process is restarted, equal to the first restart delay of a kubelet.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Result of a run.
pub(super) struct RunResult {
    pub(super) final_state: FinalState,
    /// Failure of the run itself: the error of the scenario, or a violated invariant.
    pub(super) failure: Option<String>,
    /// Processes that ended without being killed.
    pub(super) ended: Vec<UnexpectedExit>,
    pub(super) points: Vec<(Duration, RequestPoint)>,
    pub(super) reached: bool,
}

/// End of a process on its own.
pub(super) struct UnexpectedExit {
    pub(super) text: String,
    pub(super) is_panic: bool,
}

/// Runs once, on its own runtime with virtual time.
pub(super) fn run_once<C, S, CF, SF, CE, SE>(
    setting: &Setting<C, S>,
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
        // Each process has its own replica, so that a lag or a crash affects only this process. The scenario has a
        // further replica.
        let replicas = setting.processes + 1;
        let server = ApiServer::builder().seed(setting.seed).replicas(replicas).in_memory().start().await?;
        let server = Arc::new(server);
        (setting.prepare)(&server)?;
        let runner = SweepRunner::new(&server, setting.processes, fault.cloned());
        let ended = Mutex::default();
        let connection =
            connect(&server, setting.seed, setting.processes, &NetworkFaults::seeded(setting.seed)).await?;
        let (quiet, ignored) = (setting.quiet, setting.ignored.clone().into());
        let fixture = Fixture { server: server.clone(), runner: runner.clone(), connection, quiet, ignored };
        let processes = (0..setting.processes).map(|process| supervise(setting, &server, &runner, process, &ended));
        let scenario = AssertUnwindSafe(async {
            (setting.scenario)(fixture.clone()).await.map_err(|error| error.to_string())?;
            // The gap ends with the scenario, so that the controller must still converge.
            runner.end_gap();
            fixture.settle().await.map_err(|error| error.to_string())
        });
        let limited = tokio::time::timeout(setting.limit, scenario.catch_unwind());
        let outcome = tokio::select! {
            // The overrun is checked first, because in virtual time the timeout never expires during a hot loop.
            biased;
            endless = runner.overrun() => Err(endless),
            outcome = limited => match outcome {
                Ok(Ok(ended)) => ended.map_err(|error| format!("the scenario failed: {error}")),
                Ok(Err(panic)) => Err(format!("the scenario panicked: {}", message(&*panic))),
                Err(_) => Err(format!("the scenario did not end within {:?}", setting.limit)),
            },
            started = try_join_all(processes) => return Err(started.err().unwrap_or_else(|| {
                "all processes of the controller have ended".into()
            })),
        };
        let failure = outcome.and_then(|()| check_invariants(setting, &server)).err();
        Ok(RunResult {
            final_state: FinalState::of(&server, &setting.ignored, &setting.unseen),
            failure,
            ended: std::mem::take(&mut *ended.lock()),
            points: runner.points(),
            reached: runner.has_injected(),
        })
    })
}

/// Checks the invariants.
fn check_invariants<C, S>(setting: &Setting<C, S>, server: &ApiServer) -> Result<(), String> {
    setting.invariants.iter().try_for_each(|(name, holds)| {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| holds(server)));
        let outcome = outcome.unwrap_or_else(|panic| Err(message(&*panic).to_owned()));
        outcome.map_err(|broken| format!("{name}: {broken}"))
    })
}

/// Runs one process of the controller and restarts it. Ends only if a connection cannot be created.
async fn supervise<C, S, F, E>(
    setting: &Setting<C, S>,
    server: &Arc<ApiServer>,
    runner: &SweepRunner,
    process: usize,
    ended: &Mutex<Vec<UnexpectedExit>>,
) -> Result<(), TestkitError>
where
    C: Fn(Connection) -> F,
    F: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    for start in 0.. {
        // A restarted process needs another seed: with equal jitter, a race would repeat.
        let seed = setting.seed.wrapping_add(1 + process as u64).wrapping_add(start * 1000);
        let network = NetworkFaults::seeded(seed);
        let connection = connect(server, seed, process, &network).await?;
        // The network is registered once the connection exists. Requests of a process without a network count as
        // those of a dead process.
        runner.process_started(process, network.clone());
        // The caller's function is called within this future, so that a panic of the call itself is caught too.
        let running = AssertUnwindSafe(async { (setting.controller)(connection).await }).catch_unwind();
        // A kill wins over an end in the same poll, because the fault decides the outcome.
        let how = tokio::select! {
            biased;
            () = runner.killed(process) => None,
            ended = running => Some(match ended {
                Ok(Ok(())) => ("ended".to_owned(), false),
                Ok(Err(error)) => (format!("ended: {error}"), false),
                Err(panic) => (format!("panicked: {}", message(&*panic)), true),
            }),
        };
        // Spawned tasks of the process may survive the drop of its future. Without a network they can do nothing.
        network.cut();
        runner.process_ended(process);
        if let Some((how, is_panic)) = how {
            let text = format!("process {process} {how}, {:?} after the start", server.elapsed());
            ended.lock().push(UnexpectedExit { text, is_panic });
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
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
