//! Shared parts of the benchmark programs for controllers: arguments, reconciles and output. Each program has one
//! controller.
//!
//! A separate program for each controller contains no code of another library, like the program of a user. This matters
//! for the memory, since most memory of such a program is pages of its own file.

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
