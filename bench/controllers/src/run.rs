//! A program with one controller: how many calls a second it makes, what each costs and what it takes up, or how long a
//! change waits for its call.

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

use super::answers::quantiles;
use super::contestant::{Contestant, Trouble};
use super::usage::{memory, processor_time};
use super::work::Work;

/// Of how many keys, and what its calls do.
#[derive(Parser)]
struct Args {
    #[arg(long)]
    kubeconfig: PathBuf,
    /// How many objects there are, `map-0` and so on in `default`.
    #[arg(long)]
    keys: usize,
    /// How often all are called for.
    #[arg(long, default_value_t = 0)]
    rounds: usize,
    /// How many calls at a time.
    #[arg(long)]
    concurrency: usize,
    /// How long a call waits, in microseconds.
    #[arg(long, default_value_t = 0)]
    wait_us: u64,
    /// How many changes are made and waited for while the first calls are queued.
    #[arg(long, default_value_t = 0)]
    urgent: usize,
    /// How often each object is written, by calls; they are called for once, and then by what they have written.
    #[arg(long, default_value_t = 0)]
    writes: u64,
    /// Whether what is to be called for is told, and waited for, on a thread that makes no calls.
    #[arg(long)]
    outside: bool,
}

/// From one change to the next.
const BETWEEN: Duration = Duration::from_millis(5);

/// So many calls there were before the first change: at the very first one, keys of the list are still on their way to the
/// queue, and what is changed comes after them.
const BEGUN: u64 = 100;

/// Runs the controller of `C` as the program's arguments have it, and answers a line of JSON for each phase.
pub async fn run<C: Contestant>() -> ExitCode {
    let args = Args::parse();
    // The task that this is called in has the program's first thread to itself; others share theirs with the calls.
    let done = if args.outside {
        measure::<C>(args).await
    } else {
        tokio::spawn(measure::<C>(args)).await.unwrap_or_else(|panic| Err(panic.into()))
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure<C: Contestant>(args: Args) -> Result<(), Trouble> {
    let file = Kubeconfig::read_from(&args.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let work = Arc::new(Work::new(Duration::from_micros(args.wait_us), args.writes));
    // A client that only the changes need would be memory that no controller takes.
    let changes = if args.urgent > 0 { Some(kube::Client::try_from(config.clone())?) } else { None };
    let running = C::start(config, args.keys, args.concurrency, work.clone())?;
    if let Some(client) = changes {
        return urgent(&args, &client, &work).await;
    }
    work.reach(args.keys as u64).await;
    // What is left of the start ends.
    sleep(Duration::from_secs(1)).await;
    let (begun, used, before) = (Instant::now(), processor_time()?, work.calls());
    for _ in 0..args.rounds {
        let calls = work.calls() + args.keys as u64;
        running.all()?;
        work.reach(calls).await;
    }
    if args.writes > 0 {
        work.writing.begin();
        running.all()?;
        work.writing.ended(args.keys).await;
    }
    let calls = work.calls() - before;
    let (seconds, processor) = (begun.elapsed().as_secs_f64(), processor_time()? - used);
    let writes = args.writes * args.keys as u64;
    println!(
        "{}",
        json!({ "phase": "calls", "calls": calls, "writes": writes, "seconds": seconds, "processor": processor })
    );
    println!("{}", memory()?);
    Ok(())
}

/// Changes objects from the last on while the first calls for all are queued, and waits for the call of each.
async fn urgent(args: &Args, client: &kube::Client, work: &Work) -> Result<(), Trouble> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    work.reach(BEGUN).await;
    let mut changed = Vec::new();
    for number in 0..args.urgent {
        let value = format!("urgent-{number}");
        work.expect(&value);
        let patch = Patch::Merge(json!({ "data": { "value": value } }));
        let name = format!("map-{}", args.keys - 1 - number);
        maps.patch(&name, &PatchParams::default(), &patch).await?;
        changed.push((value, Instant::now()));
        sleep(BETWEEN).await;
    }
    let mut times = Vec::new();
    for (value, at) in changed {
        let called = loop {
            if let Some(called) = work.seen(&value) {
                break called;
            }
            sleep(Duration::from_millis(1)).await;
        };
        times.push(called.saturating_duration_since(at).as_nanos() as u64);
    }
    println!("{}", quantiles("urgent", times));
    Ok(())
}
