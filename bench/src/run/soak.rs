//! Soak test: changes objects for hours, and checks that memory stays constant and that the cache is correct.
//!
//! Objects are modified, deleted and recreated as fast as the client processes the events. From time to time, the
//! client's connections are reset, and the resource version of its watch expires. Twice in the warm-up, the client's
//! handler blocks while all objects change. After the warm-up and at the end, a checksum of all objects in the cache is
//! compared with that of the server, and the memory is measured.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::client_variant::{self, Library};
use super::number::format_number;
use super::process::{Process, send_control};
use super::workspace::Workspace;
use crate::BenchError;

/// Duration and rate of the changes.
#[derive(clap::Args)]
pub(crate) struct SoakArgs {
    /// Maximum number of objects; an eighth of them is deleted at a time
    #[arg(long, default_value_t = 10_000)]
    objects: usize,
    /// Number of events, unless the time ends before
    #[arg(long, default_value_t = 100_000_000)]
    events: usize,
    /// Duration in minutes, unless the number of events is reached before
    #[arg(long, default_value_t = 120.0)]
    minutes: f64,
    /// Maximum number of events per second, to leave time for other programs
    #[arg(long, default_value_t = f64::INFINITY)]
    rate: f64,
    /// Client, by its name in the tables
    #[arg(long, default_value = "steadfast, JSON, streamed")]
    client: String,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the data
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Maximum number of events before the run waits for the client.
const MAX_BATCH_EVENTS: usize = 10_000;

/// Minimum number of batches.
const MIN_BATCHES: usize = 100;

/// Number of batches between two resets of all connections. These batches take longer than the time after which a
/// stream counts as healthy. Otherwise the backoff for a failing server (bound R6 in docs/contract.md) would dominate
/// the result.
const BATCHES_PER_RESET: usize = 64;

/// Number of batches between two expiries of the resource version. After each expiry, the client must relist.
const BATCHES_PER_EXPIRY: usize = 50;

/// Part of the run in which caches and allocator may grow.
const WARM_UP_FRACTION: f64 = 0.1;

/// Maximum relative growth of memory after the warm-up.
const MAX_GROWTH: f64 = 0.03;

/// Minimum number of events after the warm-up for a memory check: an allocator needs time to settle.
const MIN_EVENTS_FOR_CHECK: usize = 1_000_000;

/// Number of changes per object while the handler is blocked. Each object changes more than once.
const CHANGES_PER_STALLED_OBJECT: usize = 4;

/// Time for memory to settle before a measurement.
const MEMORY_SETTLE_TIME: Duration = Duration::from_secs(5);

const MINUTE: Duration = Duration::from_mins(1);

/// Runs the changes. Returns an error if the client's memory has grown, or if its cache differs from the server.
pub(crate) async fn run(args: SoakArgs) -> Result<(), BenchError> {
    let workspace = Workspace::prepare(&args.out, args.seed, None).await?;
    let data = workspace.generate(args.objects).await?;
    let kubeconfig = workspace.out.join("kubeconfig-soak");
    let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
    let variant = client_variant::client_named(&args.client)?;
    let mut client = Process::start(variant.command(&workspace.programs, &kubeconfig, args.objects)?)?;
    client.expect_response("synced").await?;
    workspace.say(&format!("{}: {} objects synced", variant.name, format_number(args.objects as f64)));
    let soak = Soak {
        args,
        workspace,
        address,
        library: variant.library,
        client,
        started: Instant::now(),
        events: 0,
        batches: 0,
    };
    soak.run().await
}

struct Soak {
    args: SoakArgs,
    workspace: Workspace,
    address: String,
    library: Library,
    client: Process,
    started: Instant,
    events: usize,
    batches: usize,
}

impl Soak {
    async fn run(mut self) -> Result<(), BenchError> {
        self.stall().await?;
        self.churn(WARM_UP_FRACTION).await?;
        self.stall().await?;
        let warm_bytes = self.check_and_measure().await?;
        let warm_up_events = self.events;
        self.workspace.say(&format!("warmed up: {} MB, and the cache is correct", format_number(warm_bytes / 1e6)));
        self.churn(1.0).await?;
        let end_bytes = self.check_and_measure().await?;
        let growth = end_bytes / warm_bytes - 1.0;
        let summary = format!(
            "{} events: the cache is correct; memory {} MB, {:+.1} % since the warm-up",
            format_number(self.events as f64),
            format_number(end_bytes / 1e6),
            growth * 100.0
        );
        if self.events - warm_up_events < MIN_EVENTS_FOR_CHECK {
            self.workspace.say(&format!(
                "passed. {summary}, without a check of the memory: fewer than {} events",
                format_number(MIN_EVENTS_FOR_CHECK as f64)
            ));
        } else if growth > MAX_GROWTH {
            return Err(format!("FAILED. {summary}: the limit is {:.0} %", MAX_GROWTH * 100.0).into());
        } else {
            self.workspace.say(&format!("passed. {summary}"));
        }
        Ok(())
    }

    /// Makes the client reach its maximum memory: its handler blocks until every object has changed.
    ///
    /// An allocator keeps its peak memory, even after a situation as rare as this one. After the peak, memory must not
    /// grow.
    async fn stall(&mut self) -> Result<(), BenchError> {
        if self.library != Library::Steadfast {
            // The caches of the other libraries block with their handlers, or have an unbounded queue.
            return Ok(());
        }
        self.client.request("stall").await?;
        let count = CHANGES_PER_STALLED_OBJECT * self.args.objects;
        let version = send_control(&self.address, &format!("churn {count}")).await?;
        // A blocked handler must not block the cache, so the cache must reach the server's state in this time.
        let started = Instant::now();
        while self.client.compare_with_server(&self.address).await?.is_some() {
            if started.elapsed() > MINUTE {
                return Err("FAILED. The cache did not catch up with the server while the handler was blocked".into());
            }
            sleep(Duration::from_millis(100)).await;
        }
        self.client.request("resume").await?;
        self.client.request(&format!("reached {version}")).await?;
        self.events += count;
        Ok(())
    }

    /// Runs changes until this part of the run has finished, and prints a line per minute.
    async fn churn(&mut self, fraction: f64) -> Result<(), BenchError> {
        let (mut last_report, mut events_before) = (Instant::now(), self.events);
        while self.finished_fraction() < fraction {
            self.batch().await?;
            if last_report.elapsed() >= MINUTE {
                let rate = (self.events - events_before) as f64 / last_report.elapsed().as_secs_f64();
                let resident = self.resident().await?;
                self.workspace.say(&format!(
                    "{} events, {} a second; {} MB",
                    format_number(self.events as f64),
                    format_number(rate),
                    format_number(resident / 1e6)
                ));
                (last_report, events_before) = (Instant::now(), self.events);
            }
        }
        Ok(())
    }

    /// Returns the finished part of the run.
    fn finished_fraction(&self) -> f64 {
        let time = self.started.elapsed().as_secs_f64() / (self.args.minutes * 60.0);
        time.max(self.events as f64 / self.args.events as f64)
    }

    /// Runs one batch of events, and waits until the client has seen the last one.
    async fn batch(&mut self) -> Result<(), BenchError> {
        self.batches += 1;
        let count = (self.args.events / MIN_BATCHES).clamp(1, MAX_BATCH_EVENTS);
        let command = if self.batches.is_multiple_of(BATCHES_PER_EXPIRY) { "churn-and-expire" } else { "churn" };
        let version = send_control(&self.address, &format!("{command} {count}")).await?;
        // The connections are reset after the request for changes, so that they break within the batch.
        if self.batches.is_multiple_of(BATCHES_PER_RESET) {
            send_control(&self.address, "cut").await?;
        }
        self.client.request(&format!("reached {version}")).await?;
        self.events += count;
        // The schedule is absolute from the start, so that no pause follows a late batch.
        let due = Duration::try_from_secs_f64(self.events as f64 / self.args.rate)
            .map_err(|_| format!("--rate {} is not a valid number of events per second", self.args.rate))?;
        sleep(due.saturating_sub(self.started.elapsed())).await;
        Ok(())
    }

    /// Returns the settled resident memory, after a check of the cache.
    async fn check_and_measure(&mut self) -> Result<f64, BenchError> {
        if let Some(objects) = self.client.compare_with_server(&self.address).await? {
            let events = format_number(self.events as f64);
            return Err(format!(
                "FAILED. After {events} events the {objects} objects of the cache differ from the server's"
            )
            .into());
        }
        // The comparison itself allocates memory, which must settle first.
        sleep(MEMORY_SETTLE_TIME).await;
        self.resident().await
    }

    async fn resident(&mut self) -> Result<f64, BenchError> {
        let memory = self.client.request("memory").await?;
        memory["resident"].as_f64().ok_or_else(|| Value::to_string(&memory).into())
    }
}
