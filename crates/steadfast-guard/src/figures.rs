//! Costs of a stage, and the machine that determines them.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// Error of any kind, for display.
pub(crate) type GuardError = Box<dyn std::error::Error + Send + Sync>;

/// Costs of a stage per object or event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Number of executed instructions.
    pub(crate) instructions: f64,
    /// Number of allocations, including reallocations.
    pub(crate) allocations: f64,
    /// Number of allocated bytes.
    pub(crate) bytes: f64,
}

/// Properties of a machine that affect the number of instructions of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Compiler. Generates the instructions.
    pub(crate) compiler: String,
    /// C library. Provides the allocator, and the functions that copy and compare memory.
    pub(crate) libc: String,
    /// Instruction set of the processor, as valgrind reports it to programs. libc selects its functions by this
    /// instruction set.
    pub(crate) processor: String,
}

impl Machine {
    /// Describes this machine, without the processor. Valgrind emulates a processor, so each stage reports the one that
    /// it saw.
    pub(crate) fn here() -> Result<Self, GuardError> {
        // The version of glibc determines its allocator and its memory functions.
        let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let libc = output.map_err(|error| format!("cannot run getconf for the version of libc: {error}"))?;
        Ok(Self {
            compiler: env!("COMPILER").to_owned(),
            libc: String::from_utf8_lossy(&libc.stdout).trim().to_owned(),
            processor: String::new(),
        })
    }
}

/// Returns the processor visible to this process.
pub(crate) fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    let extensions = if std::arch::is_x86_feature_detected!("avx2") { " with AVX2" } else { " without AVX2" };
    #[cfg(not(target_arch = "x86_64"))]
    let extensions = "";
    format!("{}{extensions}", std::env::consts::ARCH)
}

/// Report of a finished stage. Callgrind counts the instructions.
#[derive(Serialize, Deserialize)]
pub(crate) struct StageReport {
    /// Number of processed objects or events.
    pub(crate) units: usize,
    pub(crate) allocations: usize,
    pub(crate) bytes: usize,
    pub(crate) processor: String,
}
