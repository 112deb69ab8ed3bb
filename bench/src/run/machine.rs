//! What it ran on: processor, kernel, versions, command.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::number::number;

/// Where, with what and by which command something was measured.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Setting {
    pub(super) day: String,
    pub(super) machine: String,
    pub(super) versions: String,
    pub(super) command: String,
}

impl Setting {
    /// That of this run.
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

/// What is free for programs, in bytes; nothing is known where the kernel does not say.
pub(super) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// The day, as `2026-11-21`.
fn today() -> String {
    Timestamp::now().to_string().split('T').next().unwrap_or_default().to_owned()
}

/// The processor, the memory and the kernel, as they call themselves.
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
    let page = number(page() * 1e6);
    format!("{cores} × {model}, {} GB, Linux {}; {page} µs to be given a page of 4 KB", kilobytes >> 20, kernel.trim())
}

/// How long it takes to touch a page of 4 KB for the first time, in seconds, where many are touched one after the other.
///
/// On virtual machines that is most of what large objects cost, and differs tenfold from one to the other.
fn page() -> f64 {
    const PAGE: usize = 4096;
    const PAGES: usize = 1 << 16;
    // Zeroed, so that the kernel has nothing to do for it before it is touched.
    let mut memory = vec![0u8; PAGE * PAGES];
    let begun = Instant::now();
    for page in memory.chunks_mut(PAGE) {
        *black_box(&mut page[0]) = 1;
    }
    begun.elapsed().as_secs_f64() / PAGES as f64
}

/// The libraries that are compared, and what compiled them.
fn versions() -> String {
    let locked = |name: &str| {
        let lock = include_str!("../../Cargo.lock");
        let from = lock.split_once(&format!("name = \"{name}\"\nversion = \""));
        from.and_then(|(_, rest)| rest.split('"').next()).unwrap_or("unknown").to_owned()
    };
    let module = include_str!("../../go/go.mod");
    let client_go = module.lines().find_map(|line| line.trim().strip_prefix("k8s.io/client-go v")).unwrap_or("unknown");
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        output.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().to_owned()
    };
    format!(
        "Steadfast {} at {}, kube-runtime {}, client-go {client_go}; {}, {}",
        locked("steadfast"),
        said("git", &["rev-parse", "--short", "HEAD"]),
        locked("kube-runtime"),
        said("rustc", &["--version"]),
        said("go", &["version"]).trim_start_matches("go version "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_all_three_are_known() {
        let versions = versions();
        assert!(!versions.contains("unknown"), "{versions}");
    }
}
