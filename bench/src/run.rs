//! The whole run: builds the Go programs, generates the data, runs the parts, and writes the results.

mod client_variant;
mod faults;
mod limited;
mod machine;
mod number;
mod patterns;
mod picture;
mod process;
mod real;
mod replayed;
mod report;
mod request;
mod restart;
mod results;
mod session;
mod soak;
mod tables;
mod workspace;

use crate::BenchError;
use request::Part;
use results::Results;
use workspace::Workspace;

pub(crate) use limited::{LimitedArgs, run as limited};
pub(crate) use patterns::{PatternsArgs, run as patterns};
pub(crate) use report::{ReportArgs, run as report};
pub(crate) use request::RunArgs;
pub(crate) use restart::{RestartArgs, run as restart};
pub(crate) use soak::{SoakArgs, run as soak};

/// Runs the parts, from the repository's root.
pub(crate) async fn run(mut args: RunArgs) -> Result<(), BenchError> {
    if args.quick {
        (args.sizes, args.rounds, args.events) = (vec![1_000], 1, 5_000);
        (args.real_size, args.real_rounds) = (200, 1);
        // Three faults: one of a connection, one of a deletion, and one of a rejected resource.
        if args.faults.is_empty() {
            args.faults = ["F3", "F13", "F23"].map(str::to_owned).to_vec();
        }
    }
    let workspace = Workspace::prepare(&args.out, args.seed, args.earlier.clone()).await?;
    // The file keeps the results of parts that are not in this run.
    let mut results = Results::read(&workspace.out)?;
    let mut failures = Vec::new();
    for part in &args.parts {
        let result = match part {
            Part::Replayed => replayed::run(&args, &workspace, &mut results).await,
            Part::Real => real::run(&args, &workspace, &mut results).await,
            Part::Faults => faults::run(&args, &workspace, &mut results).await,
        };
        if let Err(error) = result {
            // A failed part must not discard the results of the others.
            workspace.say(&format!("not measured: {error}"));
            failures.push(error.to_string());
        }
        results.write(&workspace.out)?;
    }
    report::write(&results, &workspace.out, &args.write)?;
    workspace.say(&format!("everything is in {}", args.out.display()));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}
