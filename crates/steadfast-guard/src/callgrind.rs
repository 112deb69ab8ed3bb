//! Measurement of one stage under valgrind's callgrind.

use std::path::Path;
use std::process::Command;

use crate::figures::{Figures, GuardError, StageReport};

/// Pattern that matches the name of the counted function, mangled or not.
const COUNTED: &str = "*steadfast_guard_counted*";

/// Measures a stage. Returns the instruction set that valgrind reported to the stage, and the costs of the
/// stage.
pub(crate) fn count(stage: &str) -> Result<(String, Figures), GuardError> {
    let profile = std::env::temp_dir().join(format!("steadfast-guard-{}", std::process::id()));
    let result = run_callgrind(stage, &profile);
    // Removed even after an error, since the temporary folder is shared.
    let _ = std::fs::remove_file(&profile);
    result.map_err(|error| format!("{stage}: {error}").into())
}

fn run_callgrind(stage: &str, profile: &Path) -> Result<(String, Figures), GuardError> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--dump-instr=no", "--dump-line=no"])
        // Collection starts off, and toggles at the entry and the exit of the counted function.
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["stage", stage])
        // Environment variables move the stack, which changes how memory is copied.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; install valgrind"))?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let report: StageReport = serde_json::from_slice(&output.stdout)?;
    let instructions = total(&std::fs::read_to_string(profile)?).ok_or("the profile of callgrind has no total")?;
    // The pattern matches no function if the compiler has inlined or renamed it. A zero would pass as an improvement.
    if report.units == 0 || instructions == 0 {
        return Err("callgrind counted no instructions".into());
    }
    // Rounded, so that noise below the precision does not change the file of the baseline.
    let each = |sum: f64, places: f64| (sum / report.units as f64 * places).round() / places;
    let figures = Figures {
        instructions: each(instructions as f64, 1.0),
        allocations: each(report.allocations as f64, 1_000.0),
        bytes: each(report.bytes as f64, 1.0),
    };
    Ok((report.processor, figures))
}

/// Parses the number of instructions from a profile of callgrind.
fn total(profile: &str) -> Option<u64> {
    // The total is at the end of the profile.
    profile.lines().rev().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_parsed_from_profile() {
        assert_eq!(total("events: Ir\nsummary: 12\n\nfn=(1) main\n0 12\n\ntotals: 12\n"), Some(12));
        assert_eq!(total("events: Ir\nfn=(1) main\n"), None);
    }
}
