//! Working folder of a run, and its contents.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::process::Command;

use super::client_variant::Programs;
use super::process::run_command;
use crate::BenchError;

/// Maximum number of generated objects: 1.5 GB.
const MAX_GENERATED_OBJECTS: usize = 100_000;

/// Working folder, and start time of the run.
pub(super) struct Workspace {
    pub(super) started: Instant,
    pub(super) out: PathBuf,
    pub(super) programs: Programs,
    pub(super) seed: u64,
}

impl Workspace {
    /// Creates the folder `out`, and builds the Go programs into it. `earlier` is the benchmark program of an earlier
    /// commit.
    pub(super) async fn prepare(out: &Path, seed: u64, earlier: Option<PathBuf>) -> Result<Self, BenchError> {
        std::fs::create_dir_all(out)?;
        let out = out.canonicalize()?;
        let programs = Programs { current: std::env::current_exe()?, go: out.join("bench-go"), earlier };
        let workspace = Self { started: Instant::now(), out, programs, seed };
        workspace.say("building bench/go");
        let mut build = Command::new("go");
        build.args(["build", "-C", "bench/go", "-o"]).arg(&workspace.programs.go).arg(".");
        run_command(build, "building bench/go (it needs Go)").await?;
        Ok(workspace)
    }

    /// Prints the progress.
    pub(super) fn say(&self, message: &str) {
        let seconds = self.started.elapsed().as_secs();
        eprintln!("[{:2}:{:02}] {message}", seconds / 60, seconds % 60);
    }

    /// Returns the data for `count` objects. Generates the data unless a complete set for this seed and count exists.
    ///
    /// Beyond [`MAX_GENERATED_OBJECTS`], the server repeats the objects under other names.
    pub(super) async fn generate(&self, count: usize) -> Result<PathBuf, BenchError> {
        let count = count.min(MAX_GENERATED_OBJECTS);
        // The name differs from that of the data of an earlier generator version, which may still exist.
        let data = self.out.join(format!("deployments-{}-{count}", self.seed));
        if !data.join("complete").exists() {
            self.say(&format!("generating {count} pods, in two encodings"));
            let mut generate = Command::new(&self.programs.go);
            generate
                .args(["generate", "-count", &count.to_string(), "-seed", &self.seed.to_string(), "-out"])
                .arg(&data);
            run_command(generate, "generating the data").await?;
            std::fs::write(data.join("complete"), "")?;
        }
        Ok(data)
    }
}
