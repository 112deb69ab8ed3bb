//! One play: a cluster in memory, the controller's processes, the scenario, and at most one disturbance.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use steadfast::Connection;
use steadfast_apiserver::ApiServer;
use tokio::time::sleep;

use super::Sweep;
use super::director::Director;
use super::disturbance::{Disturbance, Point};
use super::ending::Ending;
use super::stage::Stage;
use crate::Error;
use crate::proxy::NetworkFaults;
use crate::world::InMemory;

/// So long after its end a process begins anew, as the first time that a kubelet restarts one.
const RESTART: Duration = Duration::from_secs(1);

/// How a play went.
pub(super) struct Played {
    pub(super) ending: Ending,
    /// What went wrong in itself: the scenario's error, or what is always to be true and was not.
    pub(super) failure: Option<String>,
    /// How processes ended that nobody has killed.
    pub(super) ended: Vec<String>,
    pub(super) points: Vec<(Duration, Point)>,
    pub(super) reached: bool,
}

/// Plays once, on a runtime of its own whose time is virtual.
pub(super) fn play<C, S, CF, SF, CE, SE>(
    sweep: &Sweep<C, S>,
    disturbance: Option<&Disturbance>,
) -> Result<Played, Error>
where
    C: Fn(Connection) -> CF,
    S: Fn(Stage) -> SF,
    CF: Future<Output = Result<(), CE>>,
    SF: Future<Output = Result<(), SE>>,
    CE: fmt::Display,
    SE: fmt::Display,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let replicas = sweep.processes + 1;
        let server = ApiServer::builder().seed(sweep.seed).replicas(replicas).in_memory().start().await?;
        let server = Arc::new(server);
        (sweep.prepare)(&server)?;
        let director = Director::new(&server, sweep.processes, disturbance.cloned());
        let told = Mutex::default();
        let connection = connect(&server, sweep.seed, sweep.processes, &NetworkFaults::seeded(sweep.seed)).await?;
        let (quiet, ignored) = (sweep.quiet, sweep.ignored.clone().into());
        let stage = Stage { server: server.clone(), director: director.clone(), connection, quiet, ignored };
        let processes = (0..sweep.processes).map(|process| supervise(sweep, &server, &director, process, &told));
        let scenario = AssertUnwindSafe(async {
            (sweep.scenario)(stage.clone()).await.map_err(|error| error.to_string())?;
            director.end_gap();
            stage.settle().await.map_err(|error| error.to_string())
        });
        let limited = tokio::time::timeout(sweep.limit, scenario.catch_unwind());
        let outcome = tokio::select! {
            biased;
            outcome = limited => outcome,
            begun = join_all(processes) => return Err(begun.into_iter().find_map(Result::err).unwrap_or_else(|| {
                "no process of the controller goes on".into()
            })),
        };
        let failure = match outcome {
            Ok(Ok(Ok(()))) => sweep
                .invariants
                .iter()
                .find_map(|(name, holds)| holds(&server).err().map(|broken| format!("{name}: {broken}"))),
            Ok(Ok(Err(error))) => Some(format!("the scenario failed: {error}")),
            Ok(Err(panic)) => Some(format!("the scenario panicked: {}", message(&*panic))),
            Err(_) => Some(format!("the scenario did not end within {:?}", sweep.limit)),
        };
        Ok(Played {
            ending: Ending::of(&server, &sweep.ignored, &sweep.unseen),
            failure,
            ended: std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner)),
            points: director.points(),
            reached: director.has_disturbed(),
        })
    })
}

/// Runs one process of the controller, again and again; ends only where a connection cannot be made.
async fn supervise<C, S, F, E>(
    sweep: &Sweep<C, S>,
    server: &Arc<ApiServer>,
    director: &Director,
    process: usize,
    told: &Mutex<Vec<String>>,
) -> Result<(), Error>
where
    C: Fn(Connection) -> F,
    F: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    for life in 0.. {
        let seed = sweep.seed.wrapping_add(1 + process as u64).wrapping_add(life * 1000);
        let network = NetworkFaults::seeded(seed);
        let connection = connect(server, seed, process, &network).await?;
        director.begins(process, network.clone());
        // A future of the user's begins within, so that what panics before there is one is caught too.
        let running = AssertUnwindSafe(async { (sweep.controller)(connection).await }).catch_unwind();
        let how = tokio::select! {
            biased;
            () = director.killed(process) => None,
            ended = running => Some(match ended {
                Ok(Ok(())) => "ended".to_owned(),
                Ok(Err(error)) => format!("ended: {error}"),
                Err(panic) => format!("panicked: {}", message(&*panic)),
            }),
        };
        network.cut();
        director.ended(process);
        if let Some(how) = how {
            let text = format!("process {process} {how}, {:?} after the beginning", server.elapsed());
            told.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
        sleep(RESTART).await;
    }
    Ok(())
}

/// A connection to the replica of that number.
async fn connect(server: &ApiServer, seed: u64, replica: usize, network: &NetworkFaults) -> Result<Connection, Error> {
    network.send_to(replica);
    InMemory { seed, network: network.clone(), ..InMemory::default() }.connection(server).await
}

/// What a panic says.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
