//! The whole run: builds the Go half, generates the data, runs the rounds, writes what came of them.

mod contestant;
mod outcome;
mod picture;
mod process;
mod replayed;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::process::Command;

use crate::Trouble;
use outcome::Outcomes;

/// What is run, and how much of it.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// How many objects there are, for each size.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    sizes: Vec<usize>,
    /// How often each is run; the figures are medians.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many events follow each other as fast as they can, at the largest size.
    #[arg(long, default_value_t = 100_000)]
    events: usize,
    /// Only contestants whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// What decides the generated data.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where data and results go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

/// Runs everything; from the repository's root.
pub(crate) async fn run(args: RunArgs) -> Result<(), Trouble> {
    let begun = Instant::now();
    std::fs::create_dir_all(&args.out)?;
    let out = args.out.canonicalize()?;
    let go = out.join("bench-go");
    build_go(&go).await?;
    let count = args.sizes.iter().copied().max().ok_or("name at least one size")?;
    let data = generate(&go, &out, count, args.seed).await?;
    let mut outcomes = Outcomes::new(outcome::machine());
    for &size in &args.sizes {
        let events = if size == count { args.events } else { 0 };
        let plan = replayed::Plan { size, rounds: args.rounds, events, only: args.only.as_deref() };
        replayed::run(&plan, &out, &data, &go, &mut outcomes).await?;
        // What is there is kept, should a later size fail.
        outcomes.write(&out)?;
    }
    table::print(&outcomes);
    picture::draw(&outcomes, &out)?;
    println!("\nin {} s; everything is in {}", begun.elapsed().as_secs(), args.out.display());
    Ok(())
}

async fn build_go(program: &Path) -> Result<(), Trouble> {
    let mut build = Command::new("go");
    build.args(["build", "-C", "bench/go", "-o"]).arg(program).arg(".");
    succeed(build, "building bench/go (it needs Go)").await
}

/// The data; generated again only where there is not enough of it.
async fn generate(go: &Path, out: &Path, count: usize, seed: u64) -> Result<PathBuf, Trouble> {
    let data = out.join(format!("data-{seed}-{count}"));
    if !data.join("complete").exists() {
        println!("generating {count} pods, twice…");
        let mut generate = Command::new(go);
        generate.args(["generate", "-count", &count.to_string(), "-seed", &seed.to_string(), "-out"]).arg(&data);
        succeed(generate, "generating the data").await?;
        std::fs::write(data.join("complete"), "")?;
    }
    Ok(data)
}

async fn succeed(mut command: Command, what: &str) -> Result<(), Trouble> {
    let status = command.status().await.map_err(|error| format!("{what}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{what}: {status}").into()) }
}
