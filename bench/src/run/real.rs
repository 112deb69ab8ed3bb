//! Rounds with the real API server. The measured delays include the server's own processing, as in a real cluster.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::sleep;

use super::client_variant::{self, Resource};
use super::machine::RunEnvironment;
use super::process::{Process, run_command};
use super::report;
use super::request::RunArgs;
use super::results::{PartResults, Results};
use super::session::Session;
use super::workspace::Workspace;
use crate::BenchError;

/// Maximum number of writes. With fewer objects, the number of objects is the maximum.
const MAX_WRITES: usize = 1_000;
const WRITES_PER_SECOND: usize = 200;
/// Time for a filled server to settle.
const SERVER_SETTLE_TIME: Duration = Duration::from_secs(5);

/// Fills a real server with generated objects, and runs all clients in turn, once per round.
pub(super) async fn run(args: &RunArgs, workspace: &Workspace, results: &mut Results) -> Result<(), BenchError> {
    let program = program(workspace).await?;
    let folder = workspace.out.join("reference");
    // Data of an interrupted run would make the first writes fail.
    let _ = std::fs::remove_dir_all(&folder);
    let mut command = Command::new(&program);
    command
        .arg("-while-stdin")
        .arg("-dir")
        .arg(&folder)
        .stderr(std::fs::File::create(workspace.out.join("reference.log"))?);
    workspace.say("starting the real API server");
    let mut server = Process::start(command)?;
    let ready = server.next_line().await?;
    let kubeconfig =
        PathBuf::from(ready.strip_prefix("ready ").ok_or_else(|| format!("the reference printed {ready}"))?);
    for resource in ["pods", "widgets"] {
        workspace.say(&format!("writing {} {resource} to the server", args.real_size));
        let mut fill = Command::new(&workspace.programs.go);
        fill.arg("fill").arg(format!("-kubeconfig={}", kubeconfig.display())).arg(format!("-resource={resource}"));
        fill.arg(format!("-count={}", args.real_size)).arg(format!("-seed={}", workspace.seed));
        run_command(fill, "filling the real API server").await?;
    }
    sleep(SERVER_SETTLE_TIME).await;
    let mut part_results = PartResults::new(RunEnvironment::now());
    let mut variants = client_variant::select_clients(args.only.as_deref(), args.quick, args.earlier.is_some());
    // The variants without `managedFields` are not measured here. With a real server, the size of the cached objects
    // has little effect on the results.
    variants.retain(|variant| !variant.name.contains("no managedFields"));
    for round in 0..args.real_rounds {
        for step in 0..variants.len() {
            // Each round starts with another client, so that no client always runs on a cold server.
            let variant = variants[(step + round) % variants.len()];
            workspace.say(&format!("real API server, round {} of {}: {}", round + 1, args.real_rounds, variant.name));
            let server_cpu_before = processor_time(server.id())?;
            let client = Process::start(variant.command(&workspace.programs, &kubeconfig, args.real_size)?)?;
            let session = Session { variant, size: args.real_size, client, part_results: &mut part_results };
            let run = RealServerRun { session, server: server.id(), workspace, kubeconfig: &kubeconfig };
            if let Err(error) = run.run(server_cpu_before).await {
                workspace.say(&format!("{}: {error}", variant.name));
                part_results.add_failure(variant.name, args.real_size, &error.to_string());
            }
            results.real = Some(part_results.clone());
            report::save_partial(results, &workspace.out)?;
        }
    }
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

struct RealServerRun<'a> {
    session: Session<'a>,
    server: u32,
    workspace: &'a Workspace,
    kubeconfig: &'a Path,
}

impl RealServerRun<'_> {
    /// Runs the measurements. `server_cpu_before` is the server's processor time before the client started.
    async fn run(mut self, server_cpu_before: f64) -> Result<(), BenchError> {
        let has_cache = self.session.record_sync().await?;
        // The time is read immediately, because the server's background work would add to it.
        let server_cpu = processor_time(self.server)? - server_cpu_before;
        self.session.record("sync, server's CPU time", "s", &Value::from(server_cpu));
        if !has_cache {
            return Ok(());
        }
        self.session.record_memory().await?;
        let (count, rate) = (MAX_WRITES.min(self.session.size), WRITES_PER_SECOND);
        let mut writer = self.writer(count)?;
        // The writer opens its connections before the measurement starts.
        if writer.next_line().await? != "ready" {
            return Err("the writer is not ready".into());
        }
        let server_cpu_before = processor_time(self.server)?;
        // The counters are reset before the first write.
        self.session.client.request("arm").await?;
        writer.send("go").await?;
        let writer_result = writer.expect_response("stamped").await?;
        let version = writer_result["version"].as_str().ok_or("the writer did not return a version")?;
        let client_result = self.session.client.request(&format!("reached {version}")).await?;
        let server_cpu = processor_time(self.server)? - server_cpu_before;
        let micros_per_write = |seconds: f64| Value::from(seconds / count as f64 * 1e6);
        self.session.record(
            "CPU time per event",
            "µs",
            &micros_per_write(client_result["cpu"].as_f64().unwrap_or(f64::NAN)),
        );
        self.session.record("server's CPU time per write", "µs", &micros_per_write(server_cpu));
        self.session.record("write to handler, p50", "µs", &client_result["p50_us"]);
        self.session.record("write to handler, p99", "µs", &client_result["p99_us"]);
        let writer_seconds = writer_result["seconds"].as_f64().unwrap_or(f64::NAN);
        if writer_seconds > 1.5 * count as f64 / rate as f64 {
            self.workspace.say(&format!(
                "the server took {writer_seconds:.1} s for {count} writes, so their rate was below {rate} a second"
            ));
        }
        Ok(())
    }

    fn writer(&self, count: usize) -> Result<Process, BenchError> {
        let mut writer_command = Command::new(&self.workspace.programs.go);
        let resource = if self.session.variant.resource == Resource::Widgets { "widgets" } else { "pods" };
        writer_command
            .arg("stamp")
            .arg(format!("-kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("-resource={resource}"));
        writer_command.arg(format!("-objects={}", self.session.size)).arg(format!("-seed={}", self.workspace.seed));
        writer_command.arg(format!("-count={count}")).arg(format!("-rate={WRITES_PER_SECOND}"));
        Process::start(writer_command)
    }
}

/// Returns the path of the program that runs the real API server: the value of `STEADFAST_REFERENCE`, or the output of
/// `conformance/reference/build`, which is run if necessary.
async fn program(workspace: &Workspace) -> Result<PathBuf, BenchError> {
    if let Some(program) = steadfast_testing::reference::program("STEADFAST_REFERENCE", "reference")? {
        return Ok(program);
    }
    let built = Path::new("target/reference/reference");
    if built.is_file() {
        return Ok(built.canonicalize()?);
    }
    workspace.say("building the real API server, which takes some minutes; set STEADFAST_REFERENCE to use another one");
    let output = Command::new("conformance/reference/build").stderr(Stdio::inherit()).output().await?;
    let folder = String::from_utf8(output.stdout)?;
    let program = Path::new(folder.trim()).join("reference");
    if output.status.success() && program.is_file() {
        Ok(program)
    } else {
        Err("conformance/reference/build failed".into())
    }
}

/// Returns the processor time of a process in seconds.
fn processor_time(process: u32) -> Result<f64, BenchError> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is a name in parentheses with any content.
    let fields: Vec<&str> = stat.rsplit_once(')').ok_or("the statistics are malformed")?.1.split_whitespace().collect();
    let field = |index: usize| {
        fields.get(index).and_then(|field| field.parse::<f64>().ok()).ok_or("the processor time is missing")
    };
    let ticks = sysconf(SysconfVar::CLK_TCK)?.ok_or("the kernel does not report the duration of a tick")?;
    // Fields 14 and 15 are user and system time. The fields here start after the second one (proc_pid_stat(5)).
    Ok((field(11)? + field(12)?) / ticks as f64)
}
