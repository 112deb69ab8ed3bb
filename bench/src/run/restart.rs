//! Measures the restart of a killed program: the time until its cache is complete, and the cost for the server. The
//! server still has the version that the program reached before.
//!
//! Steadfast starts from its checkpoint. The other libraries list. Objects change while the program is down. The
//! program has caught up when its handler has received the last of these changes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::client_variant::{self, ClientVariant, Library};
use super::number::format_number;
use super::process::{Process, send_control};
use super::workspace::Workspace;
use crate::BenchError;

/// Number of objects and of restarts.
#[derive(clap::Args)]
pub(crate) struct RestartArgs {
    /// Number of objects
    #[arg(long, default_value_t = 100_000)]
    objects: usize,
    /// Number of changed objects while the program is down
    #[arg(long, default_value_t = 1_000)]
    changes: usize,
    /// Number of restarts of each client; the figures are medians
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the data
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// For each library, the settings with the fastest first list. Steadfast also runs with JSON, because kube-runtime has
/// no other encoding.
const CLIENTS: [&str; 5] = [
    "steadfast, lazy, protobuf, streamed",
    "steadfast, lazy, JSON, streamed",
    "kube-runtime, JSON, streamed",
    "client-go, protobuf, list",
    "client-go, protobuf, streamed",
];

/// Wait before each restart, in which the server detects the end of the previous client.
const CLIENT_EXIT_DELAY: Duration = Duration::from_secs(1);

/// Result of one restart.
#[derive(Default)]
struct Restart {
    /// Seconds from the start of the process until readers have all objects.
    readable_seconds: f64,
    /// Seconds from the start of the process until its handler has received the last change.
    caught_up_seconds: f64,
    /// Number of lists that the server sent.
    lists: f64,
    /// Megabytes that the server wrote, before compression and TLS.
    sent_megabytes: f64,
    /// Processor time of the server, in seconds.
    server_cpu_seconds: f64,
    /// Processor time of the program until it had caught up, in seconds.
    program_cpu_seconds: f64,
}

/// Restarts each client in turn, and prints a table of the medians.
pub(crate) async fn run(args: RestartArgs) -> Result<(), BenchError> {
    if args.rounds == 0 || args.changes == 0 {
        return Err("--rounds and --changes must be at least 1".into());
    }
    let workspace = Workspace::prepare(&args.out, args.seed, None).await?;
    let data = workspace.generate(args.objects).await?;
    let mut rows = Vec::new();
    for name in CLIENTS {
        let variant = client_variant::client_named(name)?;
        // Each client has its own server, so that the changes of one client do not affect the next.
        let kubeconfig = workspace.out.join("kubeconfig-restart");
        let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
        let run =
            RestartRun { args: &args, workspace: &workspace, variant, kubeconfig: &kubeconfig, address: &address };
        rows.push((name, run.restarts().await?));
    }
    println!(
        "| {} objects | readable (s) | caught up (s) | lists | sent (MB) | server, processor (s) | program, processor (s) |",
        format_number(args.objects as f64)
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, restarts) in rows {
        let median = |field: fn(&Restart) -> f64| {
            let mut values: Vec<f64> = restarts.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            format_number(values[values.len() / 2])
        };
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            median(|restart| restart.readable_seconds),
            median(|restart| restart.caught_up_seconds),
            median(|restart| restart.lists),
            median(|restart| restart.sent_megabytes),
            median(|restart| restart.server_cpu_seconds),
            median(|restart| restart.program_cpu_seconds)
        );
    }
    Ok(())
}

struct RestartRun<'a> {
    args: &'a RestartArgs,
    workspace: &'a Workspace,
    variant: &'static ClientVariant,
    kubeconfig: &'a Path,
    address: &'a str,
}

impl RestartRun<'_> {
    /// Starts the client once, and then kills and restarts it the requested number of times.
    async fn restarts(&self) -> Result<Vec<Restart>, BenchError> {
        let checkpoint = self.workspace.out.join("restart.checkpoint");
        for name in ["restart.checkpoint", "restart.checkpoint.lock"] {
            // A checkpoint of an earlier run would turn the first run into a restart.
            match std::fs::remove_file(self.workspace.out.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let (mut first, _) = self.start_client(&checkpoint).await?;
        if self.has_checkpoint() {
            let written = first.request("checkpointed").await?["bytes"].as_f64().unwrap_or(f64::NAN);
            self.workspace.say(&format!("{}: {} MB written", self.variant.name, format_number(written / 1e6)));
        }
        // The drop kills the process, as a crash would. The checkpoint must survive that.
        drop(first);
        let mut restarts = Vec::new();
        for _ in 0..self.args.rounds {
            restarts.push(self.restart(&checkpoint).await?);
        }
        Ok(restarts)
    }

    async fn restart(&self, checkpoint: &Path) -> Result<Restart, BenchError> {
        sleep(CLIENT_EXIT_DELAY).await;
        // The changes happen while no client runs. A resumed watch must deliver exactly these.
        let version = send_control(self.address, &format!("burst {}", self.args.changes)).await?;
        // The totals are read after the changes, so that the changes themselves are not part of the cost.
        let before = self.server_totals().await?;
        let started = Instant::now();
        let (mut client, readable_seconds) = self.start_client(checkpoint).await?;
        client.request(&format!("reached {version}")).await?;
        let caught_up_seconds = started.elapsed().as_secs_f64();
        let program_cpu_seconds = client.request("processor").await?["seconds"]
            .as_f64()
            .ok_or("the client did not report its processor time")?;
        let after = self.server_totals().await?;
        // A client that requests no list could have missed changes.
        if self.variant.library == Library::Steadfast && client.compare_with_server(self.address).await?.is_some() {
            return Err(format!("FAILED. {}: the cache differs from the server", self.variant.name).into());
        }
        let restart = Restart {
            readable_seconds,
            caught_up_seconds,
            lists: after[0] - before[0],
            sent_megabytes: (after[1] - before[1]) / 1e6,
            server_cpu_seconds: (after[2] - before[2]) / 1e6,
            program_cpu_seconds,
        };
        self.workspace.say(&format!(
            "{}: readable after {} s, caught up after {} s, {} lists",
            self.variant.name,
            format_number(restart.readable_seconds),
            format_number(restart.caught_up_seconds),
            restart.lists
        ));
        Ok(restart)
    }

    /// Returns `true` if the client writes a checkpoint, which only Steadfast supports.
    fn has_checkpoint(&self) -> bool {
        self.variant.library == Library::Steadfast
    }

    /// Starts a client and waits until it has synced. Returns the client, and the seconds until its cache was readable.
    async fn start_client(&self, checkpoint: &Path) -> Result<(Process, f64), BenchError> {
        let mut command = self.variant.command(&self.workspace.programs, self.kubeconfig, self.args.objects)?;
        if self.has_checkpoint() {
            command.arg("--checkpoint").arg(checkpoint);
        }
        let started = Instant::now();
        let mut client = Process::start(command)?;
        // Other libraries can be read only after the sync.
        client.expect_response(if self.has_checkpoint() { "readable" } else { "synced" }).await?;
        let readable_seconds = started.elapsed().as_secs_f64();
        if self.has_checkpoint() {
            client.expect_response("synced").await?;
        }
        Ok((client, readable_seconds))
    }

    /// Returns the totals of the server: lists, bytes, microseconds.
    async fn server_totals(&self) -> Result<[f64; 3], BenchError> {
        let mut totals = [0.0; 3];
        for (value, word) in totals.iter_mut().zip(["lists", "bytes", "processor"]) {
            *value = send_control(self.address, word).await? as f64;
        }
        Ok(totals)
    }
}
