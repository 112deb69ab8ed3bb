//! What a stage costs, and on what that depends.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// What went wrong, for people.
pub(crate) type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// What a stage costs for one object or event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// Instructions that the processor has executed.
    pub(crate) instructions: f64,
    /// Allocations, those that only grow another counted too.
    pub(crate) allocations: f64,
    /// The bytes allocated.
    pub(crate) bytes: f64,
}

/// On what the instructions of the same source depend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// It decides which instructions there are.
    pub(crate) compiler: String,
    /// It brings the allocator, and the functions that copy and compare memory.
    pub(crate) libc: String,
    /// Which instructions it has, as valgrind shows it to programs: functions are chosen by that.
    pub(crate) processor: String,
}

impl Machine {
    /// This one; what its processor is only the stages can say, for valgrind shows them one of its own.
    pub(crate) fn here() -> Result<Self, Trouble> {
        let told = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
        let libc = told.map_err(|error| format!("getconf, which tells the version of libc: {error}"))?;
        Ok(Self {
            compiler: env!("COMPILER").to_owned(),
            libc: String::from_utf8_lossy(&libc.stdout).trim().to_owned(),
            processor: String::new(),
        })
    }
}

/// The processor as this process sees it.
pub(crate) fn processor() -> String {
    #[cfg(target_arch = "x86_64")]
    let extensions = if std::arch::is_x86_feature_detected!("avx2") { " with AVX2" } else { " without AVX2" };
    #[cfg(not(target_arch = "x86_64"))]
    let extensions = "";
    format!("{}{extensions}", std::env::consts::ARCH)
}

/// What a stage says of itself when it is done; its instructions are counted from outside.
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    /// How many objects or events it has taken.
    pub(crate) units: usize,
    pub(crate) allocations: usize,
    pub(crate) bytes: usize,
    pub(crate) processor: String,
}
