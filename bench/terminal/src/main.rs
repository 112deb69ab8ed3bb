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

mod args;
mod pods;
mod process;
mod program;
mod run;
mod run_error;

use std::process::ExitCode;

use args::Args;
use clap::Parser;

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
