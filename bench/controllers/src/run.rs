//! One of the controllers in Rust as a process of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::time::sleep;

use super::answers::quantiles;
use super::ours::Ours;
use super::theirs::Theirs;
use super::work::Work;
use crate::Trouble;
use crate::usage::{memory, processor_time};

/// Which controller, of how many keys, and what its calls do.
#[derive(clap::Args)]
pub(crate) struct ReconcilerArgs {
    #[arg(long)]
    library: Library,
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
    /// Whether what is to be called for is told, and waited for, on a thread that makes no calls.
    #[arg(long)]
    outside: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Library {
    Steadfast,
    Kube,
}

/// From one change to the next.
const BETWEEN: Duration = Duration::from_millis(5);

/// So many calls there were before the first change: at the very first one, keys of the list are still on their way to the
/// queue, and what is changed comes after them.
const BEGUN: u64 = 100;

enum Running {
    Ours(Ours),
    Theirs(Theirs),
}

impl Running {
    fn all(&self) -> Result<(), Trouble> {
        match self {
            Self::Ours(ours) => {
                ours.all();
                Ok(())
            }
            Self::Theirs(theirs) => theirs.all(),
        }
    }
}

/// Runs it, and answers a line of JSON for each phase.
pub(crate) async fn run(args: ReconcilerArgs) -> Result<(), Trouble> {
    // The task that this is called in has the program's first thread to itself; others share theirs with the calls.
    if args.outside { measure(args).await } else { tokio::spawn(measure(args)).await? }
}

async fn measure(args: ReconcilerArgs) -> Result<(), Trouble> {
    let file = Kubeconfig::read_from(&args.kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let work = Arc::new(Work::new(Duration::from_micros(args.wait_us)));
    let changes = if args.urgent > 0 { Some(kube::Client::try_from(config.clone())?) } else { None };
    let running = match args.library {
        Library::Steadfast => Running::Ours(Ours::start(config, args.keys, args.concurrency, work.clone())?),
        Library::Kube => Running::Theirs(Theirs::start(config, args.concurrency, work.clone())?),
    };
    // A client that only the changes need would be memory that no controller takes.
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
    let calls = work.calls() - before;
    let (seconds, processor) = (begun.elapsed().as_secs_f64(), processor_time()? - used);
    println!("{}", json!({ "phase": "calls", "calls": calls, "seconds": seconds, "processor": processor }));
    println!("{}", memory()?);
    Ok(())
}

/// Changes objects from the last on while the first calls for all are queued, and waits for the call of each.
async fn urgent(args: &ReconcilerArgs, client: &kube::Client, work: &Work) -> Result<(), Trouble> {
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
