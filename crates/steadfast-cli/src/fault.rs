//! `steadfast fault`: switches faults of a running `steadfast serve`.
//!
//! | module | responsibility |
//! |---|---|
//! | `spec` | the faults by name, and the syntax that switches a fault |
//! | `control` | the endpoint of `serve` that accepts this syntax, and its client |

pub(crate) mod control;
pub(crate) mod spec;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::FaultArgs;
use crate::connect::{error_detail, files};
use crate::failure::Failure;
use crate::serve::kubeconfig::control_of;
use control::Control;
use spec::{CATALOG, FaultSpec};

/// Switches the faults of the command line, or lists all faults or the active ones.
pub(crate) async fn run(args: FaultArgs) -> Result<ExitCode, Failure> {
    // All faults are validated before the first one is sent: a mistake in the second must not leave the first one
    // active.
    for text in &args.faults {
        text.parse::<FaultSpec>().map_err(Failure::usage)?;
    }
    if args.list {
        print!("{}", catalog_text());
        return Ok(ExitCode::SUCCESS);
    }
    let control = find_control(args.kubeconfig.as_deref(), args.context.as_deref())?;
    if args.faults.is_empty() {
        let active = control.active().await?;
        println!("{}", if active.is_empty() { "no fault is on; --list shows all" } else { active.trim_end() });
        return Ok(ExitCode::SUCCESS);
    }
    // One request per fault, in order. After a failure the printed lines show the faults that are active.
    for text in &args.faults {
        control.switch(text).await?;
        println!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn catalog_text() -> String {
    let width = CATALOG.iter().map(|entry| entry.usage.len()).max().unwrap_or_default();
    CATALOG.iter().fold(String::new(), |mut lines, entry| {
        let _ = writeln!(lines, "{:width$}  {}", entry.usage, entry.effect);
        lines
    })
}

/// Returns a client for the server whose entries `serve` has written to a kubeconfig.
fn find_control(file: Option<&Path>, context: Option<&str>) -> Result<Control, Failure> {
    let files = files(file).map_err(|error| Failure::config(error_detail(error)))?;
    let files = files.paths();
    for file in files {
        // `KUBECONFIG` may list missing files, which kubectl ignores too.
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        if let Some((address, token)) = control_of(&text, context) {
            return Control::new(&address, token)
                .ok_or_else(|| Failure::config(format!("{}: {address:?} is not an address", file.display())));
        }
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    Err(Failure::config(format!(
        "{} has no context of a running `steadfast serve`{}; name its kubeconfig with --kubeconfig",
        files.join(", "),
        context.map(|context| format!(" named {context:?}")).unwrap_or_default()
    )))
}
