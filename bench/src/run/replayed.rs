//! The rounds with the replaying server.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::sleep;

use super::client_variant::{self, ClientVariant};
use super::machine::{RunEnvironment, available_memory};
use super::number::format_number;
use super::process::{Process, send_control};
use super::report;
use super::request::RunArgs;
use super::results::{PartResults, Results};
use super::session::Session;
use super::workspace::Workspace;
use crate::BenchError;

/// Number of the changes for the measurement of the latency.
const LATENCY_CHANGES: usize = 3_000;
const LATENCY_CHANGES_PER_SECOND: usize = 1_000;
/// Rate of the changes during reads.
const READ_WRITES_PER_SECOND: usize = 20_000;
/// Duration of the reads.
const READ_SECONDS: usize = 2;
/// One of this number of objects changes before a relist.
const OBJECTS_PER_CHANGED_OBJECT: usize = 100;
/// Number of objects from which on there are fewer rounds.
const LARGE_SIZE: usize = 100_000;
/// A client that takes longer than this at a large size runs only once.
const SLOW_RUN: Duration = Duration::from_mins(1);

/// Runs all clients in turn at each size, once per round. Each round starts with another client.
pub(super) async fn run(args: &RunArgs, workspace: &Workspace, results: &mut Results) -> Result<(), BenchError> {
    let max_size = args.sizes.iter().copied().max().ok_or("name at least one size")?;
    let data = workspace.generate(max_size).await?;
    let mut part_results = PartResults::new(RunEnvironment::now());
    let variants = client_variant::select_clients(args.only.as_deref(), args.quick, args.earlier.is_some());
    for &size in &args.sizes {
        let rounds = if size < LARGE_SIZE { args.rounds } else { args.large_rounds };
        let plan = Plan { size, rounds, events: if size == max_size { args.events } else { 0 } };
        plan.run(&variants, &data, workspace, (&mut part_results, results)).await?;
    }
    Ok(())
}

/// Measurements at one size.
struct Plan {
    size: usize,
    rounds: usize,
    /// Number of events after the sync. With 0, only the sync is measured.
    events: usize,
}

impl Plan {
    async fn run(
        &self,
        variants: &[&'static ClientVariant],
        data: &Path,
        workspace: &Workspace,
        (part_results, results): (&mut PartResults, &mut Results),
    ) -> Result<(), BenchError> {
        let kubeconfig = workspace.out.join("kubeconfig-replayed");
        let (_server, address) = Process::serve(self.size, data, &kubeconfig).await?;
        let mut slow_clients = Vec::new();
        for round in 0..self.rounds {
            for step in 0..variants.len() {
                let variant = variants[(step + round) % variants.len()];
                // A slow client ran once at this size, and would multiply the duration of the run.
                if slow_clients.contains(&variant.name) {
                    continue;
                }
                let size = format_number(self.size as f64);
                workspace.say(&format!(
                    "{size} objects replayed, round {} of {}: {}",
                    round + 1,
                    self.rounds,
                    variant.name
                ));
                if let Some(reason) = too_large(part_results, variant, self.size) {
                    part_results.add_failure(variant.name, self.size, &reason);
                    continue;
                }
                let started = Instant::now();
                let client = Process::start(variant.command(&workspace.programs, &kubeconfig, self.size)?)?;
                let session = Session { variant, size: self.size, client, part_results };
                let result = ReplayedRun { session, address: &address }.run(self.events).await;
                // Remaining changes of an interrupted measurement would disturb the next client.
                send_control(&address, "halt").await?;
                if let Err(error) = result {
                    // A failed client must not discard the figures of the others, and its failure must be reported.
                    workspace.say(&format!("{}: {error}", variant.name));
                    part_results.add_failure(variant.name, self.size, &error.to_string());
                }
                results.replayed = Some(part_results.clone());
                report::save_partial(results, &workspace.out)?;
                if self.size >= LARGE_SIZE && started.elapsed() > SLOW_RUN {
                    slow_clients.push(variant.name);
                }
            }
        }
        Ok(())
    }
}

/// Returns the reason to skip a client at `size`: by its memory with fewer objects, it would exceed the available
/// memory.
fn too_large(part_results: &PartResults, variant: &ClientVariant, size: usize) -> Option<String> {
    // With few objects, most of the memory is that of the program itself.
    let (_, kilobytes) = part_results
        .median_below_size(variant.name, "resident, peak of the sync", size)
        .filter(|(smaller_size, _)| *smaller_size >= 10_000)?;
    let (needed, free) = (kilobytes * 1e3 * size as f64, available_memory()? as f64);
    (needed > free)
        .then(|| format!("it needs about {:.1} GB, but only {:.1} GB are available", needed / 1e9, free / 1e9))
}

struct ReplayedRun<'a> {
    session: Session<'a>,
    address: &'a str,
}

impl ReplayedRun<'_> {
    async fn run(mut self, events: usize) -> Result<(), BenchError> {
        if !self.session.record_sync().await? {
            return Ok(());
        }
        self.session.record_memory().await?;
        if events == 0 {
            return Ok(());
        }
        let burst = self.run_command(&format!("burst {events}")).await?;
        let seconds = burst["seconds"].as_f64().unwrap_or(f64::NAN);
        self.session.record("events", "per second", &Value::from(events as f64 / seconds));
        let micros_per_event = burst["cpu"].as_f64().unwrap_or(f64::NAN) / events as f64 * 1e6;
        self.session.record("CPU time per event", "µs", &Value::from(micros_per_event));
        let memory = self.session.client.request("memory").await?;
        let after = self.session.per_object(&memory["resident"]);
        self.session.record("resident, after the events", "KB per object", &after);
        let latency = self.run_command(&format!("paced {LATENCY_CHANGES} {LATENCY_CHANGES_PER_SECOND}")).await?;
        self.session.record("write to handler, p50", "µs", &latency["p50_us"]);
        self.session.record("write to handler, p99", "µs", &latency["p99_us"]);
        self.relist().await?;
        // The reads come last, because a client that cannot keep up with the writes lags for a long time.
        self.measure_reads().await
    }

    /// Measures a relist and its peak memory.
    async fn relist(&mut self) -> Result<(), BenchError> {
        sleep(Duration::from_secs(1)).await;
        self.session.client.request("reset-peak").await?;
        let before = self.session.client.request("memory").await?["resident"].as_f64().unwrap_or(f64::NAN);
        // Some libraries need a second copy of all objects for a relist. Without this check, the kernel would kill
        // the client.
        if available_memory().is_some_and(|free| before * 1.2 > free as f64) {
            return Err(format!(
                "no relist: {:.1} GB are in use, and there is not enough memory for a second copy",
                before / 1e9
            )
            .into());
        }
        let relist =
            self.run_command(&format!("expire {}", self.session.size.div_ceil(OBJECTS_PER_CHANGED_OBJECT))).await?;
        self.session.record("relist, CPU time", "s", &relist["cpu"]);
        let peak = self.session.client.request("memory").await?["peak"].as_f64().unwrap_or(f64::NAN);
        self.session.record("relist, peak relative to memory before", "times", &Value::from(peak / before));
        Ok(())
    }

    /// Measures reads during writes.
    async fn measure_reads(&mut self) -> Result<(), BenchError> {
        let (rate, seconds) = (READ_WRITES_PER_SECOND, READ_SECONDS);
        // The writes outlast the reads by far. The `halt` command at the end of the session stops the writes.
        send_control(self.address, &format!("paced {} {rate}", rate * (seconds + 30))).await?;
        let reads = self.session.client.request(&format!("reads {seconds}")).await?;
        for (name, unit, key) in [
            ("reads during writes", "per second", "per_second"),
            ("get by names, p50", "ns", "get_p50_ns"),
            ("get by names, p99", "ns", "get_p99_ns"),
            ("get by key, p50", "ns", "get_by_key_p50_ns"),
            ("get by key, p99", "ns", "get_by_key_p99_ns"),
            ("list a namespace, p50", "µs", "list_p50_us"),
            ("list a namespace, p99", "µs", "list_p99_us"),
        ] {
            self.session.record(name, unit, &reads[key]);
        }
        if reads["found"] == true { Ok(()) } else { Err("an existing object was not found".into()) }
    }

    /// Sends `line` to the server, and waits until the client has seen all resulting events.
    async fn run_command(&mut self, line: &str) -> Result<Value, BenchError> {
        let command = line.split(' ').next().unwrap_or(line);
        let count: u64 = line.split(' ').nth(1).unwrap_or_default().parse()?;
        // An empty burst changes nothing and returns the current version.
        let final_version = send_control(self.address, "burst 0").await? + count;
        self.session.client.send(&format!("until {final_version}")).await?;
        // The client must count from before the first event.
        self.session.client.expect_response("armed").await?;
        let actual_version = send_control(self.address, line).await?;
        if actual_version != final_version {
            return Err(format!("after {command} the version is {actual_version}, not {final_version}").into());
        }
        self.session.client.expect_response("until").await
    }
}
