//! What a process has used so far.

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use super::contestant::Trouble;

/// What this process has used of the processors, in seconds.
///
/// # Errors
///
/// The system does not tell.
pub fn processor_time() -> Result<f64, Trouble> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// What is resident now and was at most, in bytes; `own` is the part of it that is no file, as the program itself is.
///
/// # Errors
///
/// The system does not tell.
pub fn memory() -> Result<Value, Trouble> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let (resident, own, peak) = (figure("VmRSS:"), figure("RssAnon:"), figure("VmHWM:"));
    Ok(json!({ "phase": "memory", "resident": resident, "own": own, "peak": peak }))
}
