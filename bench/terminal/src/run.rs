//! The runs of all programs, and their table.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_apiserver::ApiServer;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::args::Args;
use crate::pods;
use crate::process::{TerminalProcess, Usage};
use crate::program::Program;
use crate::run_error::RunError;

/// Maximum time until a program shows all pods.
const COMPLETE_TIMEOUT: Duration = Duration::from_mins(3);

/// Maximum time until a program shows a change.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Time between the first complete table and the measurement of memory, in which allocators return memory.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Time between two measurements of the delay.
const DELAY_PERIOD: Duration = Duration::from_secs(2);

/// Changes are written in groups, since timers are not exact enough for single ones.
const GROUPS_PER_SECOND: u32 = 50;

/// Figures of a program.
struct Measurement {
    first_output: Duration,
    complete: Duration,
    at_start: Usage,
    settled: Usage,
    after: Usage,
    changing: Duration,
    written: u32,
    delays: Vec<Duration>,
}

/// Measures all programs with each number of pods, and prints a table. A program that fails does not affect the others,
/// and makes the run fail at its end.
pub(crate) async fn run(args: &Args) -> Result<(), RunError> {
    std::fs::create_dir_all(&args.out)?;
    let out = args.out.canonicalize()?;
    let mut failed = Vec::new();
    for count in &args.pods {
        // Without credentials in the kubeconfig, kubectl reads a user name from the terminal.
        let server =
            Arc::new(ApiServer::builder().tls(true).token("bench").start().await.map_err(|error| error.to_string())?);
        let bytes = pods::create(&server, *count).map_err(|status| format!("cannot create a pod: {status}"))?;
        let kubeconfig = out.join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig())?;
        println!("\n{count} pods of {bytes} bytes, {} changes per second for {} s\n", args.rate, args.seconds);
        println!("| program | first output | complete | processor | memory | load | memory after | delay |");
        println!("|---|---|---|---|---|---|---|---|");
        for program in Program::all(args, &kubeconfig, *count) {
            match measure(&program, &server, args, *count, &out).await {
                Ok(measurement) => println!("| {} | {} |", program.name, measurement.cells()),
                Err(error) => failed.push(format!("{} with {count} pods: {error}", program.name)),
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// Measures one program.
async fn measure(
    program: &Program,
    server: &Arc<ApiServer>,
    args: &Args,
    count: usize,
    home: &Path,
) -> Result<Measurement, RunError> {
    let mut process = TerminalProcess::start(&program.command, home)?;
    let complete = tokio::task::block_in_place(|| process.wait_for(&program.complete(), COMPLETE_TIMEOUT))?;
    let at_start = process.usage()?;
    sleep(SETTLE_TIME).await;
    process.discard_output();
    let settled = process.usage()?;

    let (changes_started, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let changes = tokio::spawn(change_pods(Arc::clone(server), count, args.rate, Arc::clone(&stop)));
    let mut delays = Vec::new();
    while changes_started.elapsed() < Duration::from_secs(args.seconds.into()) {
        let reason = format!("Probe{:04}", fastrand::u32(..10_000));
        process.discard_output();
        let written = Instant::now();
        pods::change_first(server, &reason).map_err(|status| status.to_string())?;
        let shown = tokio::task::block_in_place(|| process.wait_for(&program.change(&reason), CHANGE_TIMEOUT))?;
        delays.push(shown.saturating_duration_since(written));
        sleep(DELAY_PERIOD).await;
    }
    let after = process.usage()?;
    let changing = changes_started.elapsed();
    stop.store(true, Ordering::Relaxed);
    let written = changes.await??;
    delays.sort_unstable();
    Ok(Measurement {
        first_output: process.first_output().unwrap_or_default(),
        complete: complete.saturating_duration_since(process.started()),
        at_start,
        settled,
        after,
        changing,
        written,
        delays,
    })
}

/// Changes pods until `stop`. Returns the number of changes.
async fn change_pods(server: Arc<ApiServer>, count: usize, rate: u32, stop: Arc<AtomicBool>) -> Result<u32, RunError> {
    let mut groups = interval(Duration::from_secs(1) / GROUPS_PER_SECOND);
    groups.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        groups.tick().await;
        for _ in 0..rate / GROUPS_PER_SECOND {
            written += 1;
            pods::change(&server, count, written).map_err(|status| status.to_string())?;
        }
    }
    Ok(written)
}

impl Measurement {
    /// Returns the cells of a row.
    fn cells(&self) -> String {
        let load = (self.after.processor - self.settled.processor) / self.changing.as_secs_f64();
        let median = self.delays.get(self.delays.len() / 2).copied().unwrap_or_default();
        let maximum = self.delays.last().copied().unwrap_or_default();
        let rate = f64::from(self.written) / self.changing.as_secs_f64();
        let mut cells = format!(
            "{} | {} | {:.2} s | {} | {:.1} %",
            seconds(self.first_output),
            seconds(self.complete),
            self.at_start.processor,
            megabytes(self.settled.memory),
            load * 100.0,
        );
        // A server that cannot write as fast as requested would flatter the program.
        let _ = write!(cells, " ({rate:.0}/s) | {}", megabytes(self.after.memory));
        let _ = write!(cells, " | {} ({})", seconds(median), seconds(maximum));
        cells
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1e6)
}
