//! One stage under valgrind's callgrind.

use std::path::Path;
use std::process::Command;

use crate::figures::{Figures, Told, Trouble};

/// What the name of the function that counts has in it, however it is mangled.
const COUNTED: &str = "*steadfast_guard_counted*";

/// The processor that the stage saw, and what it cost.
pub(crate) fn count(stage: &str) -> Result<(String, Figures), Trouble> {
    let profile = std::env::temp_dir().join(format!("steadfast-guard-{}", std::process::id()));
    let counted = counted(stage, &profile);
    let _ = std::fs::remove_file(&profile);
    counted.map_err(|trouble| format!("{stage}: {trouble}").into())
}

fn counted(stage: &str, profile: &Path) -> Result<(String, Figures), Trouble> {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--dump-instr=no", "--dump-line=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["stage", stage])
        // What is there else moves the stack, and with it how memory is copied.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}; is it installed?"))?;
    if !ran.status.success() {
        return Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()).into());
    }
    let told: Told = serde_json::from_slice(&ran.stdout)?;
    let instructions = total(&std::fs::read_to_string(profile)?).ok_or("callgrind's file has no total")?;
    if told.units == 0 || instructions == 0 {
        return Err("nothing was counted".into());
    }
    let each = |sum: f64, places: f64| (sum / told.units as f64 * places).round() / places;
    let figures = Figures {
        instructions: each(instructions as f64, 1.0),
        allocations: each(told.allocations as f64, 1_000.0),
        bytes: each(told.bytes as f64, 1.0),
    };
    Ok((told.processor, figures))
}

/// The number of instructions in a file of callgrind's.
fn total(profile: &str) -> Option<u64> {
    profile.lines().rev().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_end_of_a_profile() {
        assert_eq!(total("events: Ir\nsummary: 12\n\nfn=(1) main\n0 12\n\ntotals: 12\n"), Some(12));
        assert_eq!(total("events: Ir\nfn=(1) main\n"), None);
    }
}
