//! Resources that a process has used.

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

use super::controller_under_test::BenchError;

/// Returns the processor time of this process in seconds.
///
/// # Errors
///
/// Returns an error if the system does not report the time.
pub fn processor_time() -> Result<f64, BenchError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Returns the number of context switches of this process so far: each time a thread slept, or was interrupted for another
/// thread.
///
/// # Errors
///
/// Returns an error if the system does not report this number.
pub fn context_switches() -> Result<i64, BenchError> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok(usage.voluntary_context_switches() + usage.involuntary_context_switches())
}

/// Returns the current and the maximum resident memory in bytes. `own` is the part without mapped files, such as the
/// program itself.
///
/// # Errors
///
/// Returns an error if the system does not report the memory.
pub fn memory() -> Result<Value, BenchError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let figure = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    let (resident, own, peak) = (figure("VmRSS:"), figure("RssAnon:"), figure("VmHWM:"));
    Ok(json!({ "phase": "memory", "resident": resident, "own": own, "peak": peak }))
}
