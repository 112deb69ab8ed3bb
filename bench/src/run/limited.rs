//! A long list in a process that is granted little more than what it keeps: whether it syncs, and relists.
//!
//! The client runs twice: free, to learn what it keeps once all has settled, then in a control group of the kernel's that
//! grants a fifth more than that and 32 MB. Where it asks for more, the kernel ends it, and this fails.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

use super::contestant::{self, Contestant};
use super::number::number;
use super::place::Place;
use super::process::{Process, control};
use crate::Trouble;

/// Which list, for whom.
#[derive(clap::Args)]
pub(crate) struct LimitedArgs {
    /// How many objects there are: by default 1 GB of JSON.
    #[arg(long, default_value_t = 120_000)]
    objects: usize,
    /// Who is the client, by the name in the tables.
    #[arg(long, default_value = "steadfast, lazy, JSON, streamed")]
    contestant: String,
    /// What decides the generated data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the data go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// What is granted: this part of what is kept, and so many bytes.
const GRANTED: (f64, f64) = (1.2, 32e6);

/// One object in so many has changed when the list is asked for again.
const RELISTED: usize = 100;

/// How long memory may settle before it is measured.
const SETTLE: Duration = Duration::from_secs(5);

/// Fails where a client that may keep no more than it needs does not sync, or does not relist.
pub(crate) async fn run(args: LimitedArgs) -> Result<(), Trouble> {
    let place = Place::prepare(&args.out, args.seed, None).await?;
    let contestant = contestant::named(&args.contestant)?;
    let data = place.generate(args.objects).await?;
    let kubeconfig = place.out.join("kubeconfig-limited");
    let (_server, address) = Process::serve(args.objects, &data, &kubeconfig).await?;
    let mut run = Run { place: &place, contestant, objects: args.objects, kubeconfig: &kubeconfig, address: &address };

    let kept = run.session(None).await?;
    let limit = kept * GRANTED.0 + GRANTED.1;
    place.say(&format!("free: {} MB are kept; now with {} MB", number(kept / 1e6), number(limit / 1e6)));
    let group = Group::create(limit as u64)?;
    let limited = run.session(Some(&group)).await?;
    place.say(&format!(
        "passed: {} objects synced and relisted within {} MB; {} MB kept, {} MB at most by the kernel's count",
        number(args.objects as f64),
        number(limit / 1e6),
        number(limited / 1e6),
        number(group.most()? / 1e6)
    ));
    Ok(())
}

struct Run<'a> {
    place: &'a Place,
    contestant: &'static Contestant,
    objects: usize,
    kubeconfig: &'a Path,
    address: &'a str,
}

impl Run<'_> {
    /// A client that syncs, is compared with the server, relists and is compared again; tells what it keeps after the sync.
    async fn session(&mut self, group: Option<&Group>) -> Result<f64, Trouble> {
        let command = self.contestant.command(&self.place.programs, self.kubeconfig, self.objects)?;
        let command = match group {
            Some(group) => group.confine(&command),
            None => command,
        };
        let mut client = Process::start(command)?;
        let synced = client.answer("synced").await?;
        self.place.say(&format!(
            "{}: synced in {:.1} s",
            self.contestant.name,
            synced["seconds"].as_f64().unwrap_or(f64::NAN)
        ));
        sleep(SETTLE).await;
        let kept = client.ask("memory").await?["resident"].as_f64().ok_or("no memory was told")?;
        self.compare(&mut client).await?;
        let version = control(self.address, &format!("expire {}", self.objects.div_ceil(RELISTED))).await?;
        client.ask(&format!("reached {version}")).await?;
        self.compare(&mut client).await?;
        let peak = client.ask("memory").await?["peak"].as_f64().ok_or("no peak was told")?;
        self.place.say(&format!("relisted; {} MB kept before, {} MB at most", number(kept / 1e6), number(peak / 1e6)));
        Ok(kept)
    }

    async fn compare(&self, client: &mut Process) -> Result<(), Trouble> {
        match client.strays(self.address).await? {
            None => Ok(()),
            Some(objects) => Err(format!("FAILED. The {objects} objects of the cache are not the server's").into()),
        }
    }
}

/// A control group that grants so much memory; gone with this.
struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// What a hierarchy calls its files.
struct Files {
    root: &'static str,
    /// What is there where the kernel has this hierarchy at that place.
    sign: &'static str,
    limit: &'static str,
    most: &'static str,
}

/// The second version of control groups, and the first.
const HIERARCHIES: [Files; 2] = [
    Files { root: "/sys/fs/cgroup", sign: "cgroup.controllers", limit: "memory.max", most: "memory.peak" },
    Files {
        root: "/sys/fs/cgroup/memory",
        sign: "memory.limit_in_bytes",
        limit: "memory.limit_in_bytes",
        most: "memory.max_usage_in_bytes",
    },
];

impl Group {
    fn create(limit: u64) -> Result<Self, Trouble> {
        let name = format!("steadfast-bench-{}", std::process::id());
        for files in &HIERARCHIES {
            let root = Path::new(files.root);
            if !root.join(files.sign).exists() || std::fs::create_dir(root.join(&name)).is_err() {
                continue;
            }
            let group = Self { folder: root.join(&name), files };
            // The kernel has made the file: one that it has not would limit nothing.
            let file = group.folder.join(files.limit);
            if file.exists() && std::fs::write(file, limit.to_string()).is_ok() {
                return Ok(group);
            }
        }
        Err("the kernel lets nobody but root make a control group with a limit of memory: run this as root".into())
    }

    /// `command`, to be run in this group.
    fn confine(&self, command: &Command) -> Command {
        let command = command.as_std();
        let mut confined = Command::new("sh");
        confined.arg("-c").arg("echo $$ >\"$0\" && exec \"$@\"").arg(self.folder.join("cgroup.procs"));
        confined.arg(command.get_program()).args(command.get_args());
        confined
    }

    /// The most that the group has used.
    fn most(&self) -> Result<f64, Trouble> {
        Ok(std::fs::read_to_string(self.folder.join(self.files.most))?.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The client may be about to end; a group that stays is empty, and harms nobody.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
