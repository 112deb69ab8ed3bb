//! Shared parts of the programs with one controller each: their arguments, their reconciles, and their output.
//!
//! Each controller is a separate program, so that it contains no code of another library. Most memory of
//! such a program is pages of its own file, and a user's program contains only one of these libraries.

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
