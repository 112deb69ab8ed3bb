//! Environment of a run: processor, kernel, versions, command.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::number::format_number;

/// Machine, versions and command of a measurement.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct RunEnvironment {
    pub(super) day: String,
    pub(super) machine: String,
    pub(super) versions: String,
    pub(super) command: String,
}

impl RunEnvironment {
    /// Returns the machine, the versions and the command of this run.
    pub(super) fn now() -> Self {
        let command: Vec<String> = std::env::args().skip(1).collect();
        Self {
            day: today(),
            machine: machine(),
            versions: versions(),
            command: format!(
                "cargo run {}--manifest-path bench/Cargo.toml -- {}",
                if cfg!(debug_assertions) { "" } else { "--release " },
                command.join(" ")
            ),
        }
    }
}

/// Returns the memory that is available for programs in bytes, or `None` if the kernel does not report it.
pub(super) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// Returns the date, as `2026-11-21`.
fn today() -> String {
    Timestamp::now().to_string().split('T').next().unwrap_or_default().to_owned()
}

/// Describes the processor, the memory, the kernel, and the time of a page fault.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let meminfo = read("/proc/meminfo");
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kilobytes: u64 = total.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let page_fault = format_number(page_fault_seconds() * 1e6);
    format!(
        "{cores} × {model}, {} GB, Linux {}; {page_fault} µs for a page fault of 4 KB",
        kilobytes >> 20,
        kernel.trim()
    )
}

/// Returns the time of the first access to a page of 4 KB in seconds, averaged over many pages.
///
/// On virtual machines, page faults are most of the cost of large allocations, and their time differs tenfold between
/// machines.
fn page_fault_seconds() -> f64 {
    const PAGE: usize = 4096;
    const PAGES: usize = 1 << 16;
    // The memory is zeroed lazily, so that the kernel provides each page on its first access.
    let mut memory = vec![0u8; PAGE * PAGES];
    let started = Instant::now();
    for page in memory.chunks_mut(PAGE) {
        // Without `black_box`, the compiler could remove the write.
        *black_box(&mut page[0]) = 1;
    }
    started.elapsed().as_secs_f64() / PAGES as f64
}

/// Returns the versions of the compared libraries and of the compilers.
fn versions() -> String {
    let locked = |name: &str| {
        // The lock file has the measured version, while the manifest has a range.
        let lock = include_str!("../../Cargo.lock");
        let from = lock.split_once(&format!("name = \"{name}\"\nversion = \""));
        from.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown").to_owned()
    };
    let module = include_str!("../../go/go.mod");
    let client_go = module.lines().find_map(|line| line.trim().strip_prefix("k8s.io/client-go v")).unwrap_or("unknown");
    let output_of = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().to_owned()
    };
    format!(
        "Steadfast {} at {}, kube-runtime {}, client-go {client_go}; {}, {}",
        locked("steadfast"),
        output_of("git", &["rev-parse", "--short", "HEAD"]),
        locked("kube-runtime"),
        output_of("rustc", &["--version"]),
        output_of("go", &["version"]).trim_start_matches("go version "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_all_libraries_are_found() {
        let versions = versions();
        assert!(!versions.contains("unknown"), "{versions}");
    }
}
