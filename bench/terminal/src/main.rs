//! Comparison of `steadfast watch`, `steadfast top`, `kubectl get --watch` and k9s, on the same pods and the same
//! changes, one after the other. Each program runs on a pseudo-terminal.
//!
//! The figures of a program, in columns:
//!
//! | column | meaning |
//! |---|---|
//! | first output | time from the start until the program writes its first byte |
//! | complete | time from the start until it shows that all pods are loaded |
//! | processor | time of the program's threads from the start until then |
//! | memory | resident memory when the changes start |
//! | load | processor time per second while pods change, as a fraction of a core |
//! | memory after | resident memory after these changes |
//! | delay | median and maximum time from a write to its text on the terminal, while pods change |

mod pods;
mod process;
mod program;
mod run;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Compares terminal programs on many pods that change; from the repository's root, with `script` of util-linux
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Numbers of pods
    #[arg(long, value_delimiter = ',', default_values_t = [14_000, 100_000])]
    pods: Vec<usize>,
    /// Changes per second
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Duration of the changes, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u32,
    /// Path of `steadfast`, built by `cargo build --release -p steadfast-cli`
    #[arg(long, default_value = "target/release/steadfast")]
    steadfast: PathBuf,
    /// Path of kubectl
    #[arg(long, default_value = "kubectl")]
    kubectl: PathBuf,
    /// Path of k9s, which is left out by default
    #[arg(long)]
    k9s: Option<PathBuf>,
    /// Folder for the kubeconfig and for the configuration of the programs
    #[arg(long, default_value = "target/bench-terminal")]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run::run(&Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steadfast-bench-terminal: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Any error of a run.
type RunError = Box<dyn Error + Send + Sync>;
