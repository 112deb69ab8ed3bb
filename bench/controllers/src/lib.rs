//! Shared parts of the benchmark programs for controllers: arguments, reconciles and output. Each program has one
//! controller.
//!
//! Each controller is a separate program, so that it contains no code of another library, like the program of a user.
//! This affects the measured memory: most memory of such a program consists of pages of its executable file.

mod controller_under_test;
mod quantiles;
mod run;
mod usage;
mod work;
mod writing;

pub use controller_under_test::{BenchError, ControllerUnderTest};
pub use run::run;
pub use usage::{context_switches, memory, processor_time};
pub use work::Work;
