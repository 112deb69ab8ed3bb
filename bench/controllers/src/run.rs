//! A program with one controller. It measures the reconciles per second, their cost and the memory, or the delay from a
//! change to its reconcile.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::time::sleep;

use super::controller_under_test::{BenchError, ControllerUnderTest};
use super::quantiles::quantiles;
use super::usage::{context_switches, memory, processor_time};
use super::work::Work;

/// Number of keys, and behaviour of the reconciles.
#[derive(Parser)]
struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Number of objects, named `map-0` and so on, in `default`
    #[arg(long)]
    keys: usize,
    /// Number of times that all objects are enqueued
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// Number of concurrent reconciles
    #[arg(long)]
    concurrency: usize,
    /// Duration of a reconcile, in microseconds
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    /// Number of measured changes while the first reconciles are queued; at most the number of keys
    #[arg(long, default_value_t = 0)]
    changes_during_backlog: usize,
    /// Number of writes to each object by its reconciles. Objects are enqueued once, and then by their own writes
    #[arg(long, default_value_t = 0)]
    writes: u64,
    /// Enqueues and waits on a thread that runs no reconciles
    #[arg(long)]
    outside: bool,
}

/// Interval between two changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(5);

/// Minimum number of reconciles before the first change.
///
/// When the first reconcile starts, not all keys of the list are enqueued yet. A change could then be enqueued before
/// the list's own entry of its key, and its delay would not show a full queue.
const MIN_RECONCILES_BEFORE_CHANGES: u64 = 100;

/// Runs the controller of `C` with the program's arguments, and prints one line of JSON for each phase.
pub async fn run<C: ControllerUnderTest>() -> ExitCode {
    let args = Args::parse();
    // With `--outside`, the measurement runs on the program's first thread, which runs no reconciles. Otherwise it is a
    // task on a worker thread, which also runs reconciles.
    let result = if args.outside {
        measure::<C>(args).await
    } else {
        tokio::spawn(measure::<C>(args)).await.unwrap_or_else(|panic| Err(panic.into()))
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure<C: ControllerUnderTest>(args: Args) -> Result<(), BenchError> {
    if args.changes_during_backlog > args.keys {
        return Err("more changes than keys; set --changes-during-backlog to at most --keys".into());
    }
    let file = Kubeconfig::read_from(&args.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let work = Arc::new(Work::new(Duration::from_micros(args.wait_us), args.writes));
    // Only a run with measured changes needs this client. In other runs, the memory of the client would distort the
    // measurement.
    let change_client =
        if args.changes_during_backlog > 0 { Some(kube::Client::try_from(config.clone())?) } else { None };
    let controller = C::start(config, args.keys, args.concurrency, work.clone())?;
    if let Some(client) = change_client {
        return measure_changes_during_backlog(&args, &client, &work).await;
    }
    // The first reconciles are those of the initial list. They warm up both the program and the server.
    work.wait_for_calls(args.keys as u64).await;
    // Waits for the end of the start-up work.
    sleep(Duration::from_secs(1)).await;
    let (started, cpu_before, calls_before) = (Instant::now(), processor_time()?, work.calls());
    let switches_before = context_switches()?;
    for _ in 0..args.rounds {
        // Each round waits for its reconciles, because a queue merges keys that are enqueued twice.
        let calls = work.calls() + args.keys as u64;
        controller.enqueue_all()?;
        work.wait_for_calls(calls).await;
    }
    if args.writes > 0 {
        work.writing.start();
        controller.enqueue_all()?;
        work.writing.wait_for_objects(args.keys).await;
    }
    let calls = work.calls() - calls_before;
    let (seconds, processor) = (started.elapsed().as_secs_f64(), processor_time()? - cpu_before);
    let switches = context_switches()? - switches_before;
    let writes = args.writes * args.keys as u64;
    println!(
        "{}",
        json!({
            "phase": "calls",
            "calls": calls,
            "writes": writes,
            "seconds": seconds,
            "processor": processor,
            "switches": switches,
        })
    );
    println!("{}", memory()?);
    Ok(())
}

/// Changes objects, starting with the last, while the reconciles of all objects are queued. Waits for the reconcile of
/// each change.
async fn measure_changes_during_backlog(args: &Args, client: &kube::Client, work: &Work) -> Result<(), BenchError> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    // Before the first change, each key is reconciled once. A higher number would never be reached.
    work.wait_for_calls(MIN_RECONCILES_BEFORE_CHANGES.min(args.keys as u64)).await;
    let mut changes = Vec::new();
    for number in 0..args.changes_during_backlog {
        let value = format!("change-{number}");
        // The value is registered before the write, because the reconcile may run before the response to the patch
        // arrives.
        work.expect_value(&value);
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        // The last names are at the end of the queue, so that the delay shows whether a change overtakes queued keys.
        let name = format!("map-{}", args.keys - 1 - number);
        maps.patch(&name, &PatchParams::default(), &patch).await?;
        changes.push((value, Instant::now()));
        sleep(CHANGE_INTERVAL).await;
    }
    let mut times = Vec::new();
    for (value, changed_at) in changes {
        let reconciled_at = loop {
            if let Some(reconciled_at) = work.first_seen(&value) {
                break reconciled_at;
            }
            sleep(Duration::from_millis(1)).await;
        };
        // The subtraction saturates, because a reconcile can start before the response to the write is processed here.
        times.push(reconciled_at.saturating_duration_since(changed_at).as_nanos() as u64);
    }
    println!("{}", quantiles("changes during backlog", times));
    Ok(())
}
