//! A long list in a process with little more memory than its cache: checks that the process syncs and relists.
//!
//! The client runs twice. The first run has no limit, and measures the memory after the sync. A control group limits
//! the second run to 1.2 times that memory plus 32 MB. If the client exceeds the limit, the kernel kills it, and the
//! test fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

use super::client_variant::{self, ClientVariant};
use super::number::format_number;
use super::process::{Process, send_control};
use super::workspace::Workspace;
use crate::BenchError;

/// Settings of the list and of the client.
#[derive(clap::Args)]
pub(crate) struct LimitedArgs {
    /// Number of objects; the default is 1 GB of JSON
    #[arg(long, default_value_t = 120_000)]
    objects: usize,
    /// Client, by its name in the tables
    #[arg(long, default_value = "steadfast, lazy, JSON, streamed")]
    client: String,
    /// Seed of the generated data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of the data
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Limit for the second run, as a factor on the memory after the sync.
const MEMORY_LIMIT_FACTOR: f64 = 1.2;
/// Bytes that are added to the limit.
const MEMORY_LIMIT_EXTRA_BYTES: f64 = 32e6;

/// One in this number of objects changes before the relist.
const OBJECTS_PER_CHANGED_OBJECT: usize = 100;

/// Time for memory to settle before a measurement.
const MEMORY_SETTLE_TIME: Duration = Duration::from_secs(5);

/// Returns an error if the limited client does not sync or does not relist.
pub(crate) async fn run(args: LimitedArgs) -> Result<(), BenchError> {
    let workspace = Workspace::prepare(&args.out, args.seed, None).await?;
    let variant = client_variant::client_named(&args.client)?;
    let data = workspace.generate(args.objects).await?;
    let kubeconfig = workspace.out.join("kubeconfig-limited");
    let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
    let mut run =
        MemoryRun { workspace: &workspace, variant, objects: args.objects, kubeconfig: &kubeconfig, address: &address };

    let settled_bytes = run.run_client(None).await?;
    // A fifth more covers the fragmentation of the allocator, and the fixed part covers the program itself.
    let limit_bytes = settled_bytes * MEMORY_LIMIT_FACTOR + MEMORY_LIMIT_EXTRA_BYTES;
    workspace.say(&format!(
        "without a limit: {} MB after the sync; now limited to {} MB",
        format_number(settled_bytes / 1e6),
        format_number(limit_bytes / 1e6)
    ));
    let group = ControlGroup::create(limit_bytes as u64)?;
    let limited_bytes = run.run_client(Some(&group)).await?;
    workspace.say(&format!(
        "passed: {} objects synced and relisted within {} MB; {} MB after the sync, at most {} MB by the kernel's count",
        format_number(args.objects as f64),
        format_number(limit_bytes / 1e6),
        format_number(limited_bytes / 1e6),
        format_number(group.peak()? / 1e6)
    ));
    Ok(())
}

struct MemoryRun<'a> {
    workspace: &'a Workspace,
    variant: &'static ClientVariant,
    objects: usize,
    kubeconfig: &'a Path,
    address: &'a str,
}

impl MemoryRun<'_> {
    /// Runs a client that syncs, is compared with the server, relists and is compared again. Returns its memory after
    /// the sync.
    async fn run_client(&mut self, group: Option<&ControlGroup>) -> Result<f64, BenchError> {
        let command = self.variant.command(&self.workspace.programs, self.kubeconfig, self.objects)?;
        let command = match group {
            Some(group) => group.confine(&command),
            None => command,
        };
        let mut client = Process::start(command)?;
        let synced = client.expect_response("synced").await?;
        self.workspace.say(&format!(
            "{}: synced in {:.1} s",
            self.variant.name,
            synced["seconds"].as_f64().unwrap_or(f64::NAN)
        ));
        sleep(MEMORY_SETTLE_TIME).await;
        // The limit of the second run derives from this settled value, not from the peak of the sync.
        let settled_bytes =
            client.request("memory").await?["resident"].as_f64().ok_or("the client did not report its memory")?;
        self.compare(&mut client).await?;
        let version =
            send_control(self.address, &format!("expire {}", self.objects.div_ceil(OBJECTS_PER_CHANGED_OBJECT)))
                .await?;
        client.request(&format!("reached {version}")).await?;
        self.compare(&mut client).await?;
        let peak = client.request("memory").await?["peak"].as_f64().ok_or("the client did not report its peak")?;
        self.workspace.say(&format!(
            "relisted; {} MB before, at most {} MB",
            format_number(settled_bytes / 1e6),
            format_number(peak / 1e6)
        ));
        Ok(settled_bytes)
    }

    async fn compare(&self, client: &mut Process) -> Result<(), BenchError> {
        match client.compare_with_server(self.address).await? {
            None => Ok(()),
            Some(objects) => Err(format!("FAILED. The {objects} objects of the cache differ from the server's").into()),
        }
    }
}

/// Control group with a memory limit, removed on drop.
struct ControlGroup {
    folder: PathBuf,
    files: &'static CgroupFiles,
}

/// File names in one hierarchy of control groups.
struct CgroupFiles {
    root: &'static str,
    /// File that exists if the kernel has mounted this hierarchy.
    marker: &'static str,
    limit: &'static str,
    peak: &'static str,
}

/// Hierarchies of control groups, version 2 before version 1.
const HIERARCHIES: [CgroupFiles; 2] = [
    CgroupFiles { root: "/sys/fs/cgroup", marker: "cgroup.controllers", limit: "memory.max", peak: "memory.peak" },
    CgroupFiles {
        root: "/sys/fs/cgroup/memory",
        marker: "memory.limit_in_bytes",
        limit: "memory.limit_in_bytes",
        peak: "memory.max_usage_in_bytes",
    },
];

impl ControlGroup {
    fn create(limit: u64) -> Result<Self, BenchError> {
        let name = format!("steadfast-bench-{}", std::process::id());
        for files in &HIERARCHIES {
            let root = Path::new(files.root);
            if !root.join(files.marker).exists() || std::fs::create_dir(root.join(&name)).is_err() {
                continue;
            }
            let group = Self { folder: root.join(&name), files };
            // If the kernel did not create this file, the write would create an ordinary file, which limits nothing.
            let file = group.folder.join(files.limit);
            if file.exists() && std::fs::write(file, limit.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err("only root may create a control group with a memory limit; run this as root".into())
    }

    /// Returns `command`, modified to run in this group.
    fn confine(&self, command: &Command) -> Command {
        let command = command.as_std();
        let mut confined = Command::new("sh");
        // The shell moves itself into the group before it executes the client, so that no allocation escapes the limit.
        confined.arg("-c").arg("echo $$ >\"$0\" && exec \"$@\"").arg(self.folder.join("cgroup.procs"));
        confined.arg(command.get_program()).args(command.get_args());
        confined
    }

    /// Returns the peak memory of the group.
    fn peak(&self) -> Result<f64, BenchError> {
        Ok(std::fs::read_to_string(self.folder.join(self.files.peak))?.trim().parse()?)
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The client may still be ending. A remaining group is empty and harmless.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
