//! What the programs with one controller each have in common: what is asked of them, what their calls do, and what they
//! answer.
//!
//! Each is a program of its own, so that none has another's code in it: what a program takes up is mostly its own pages, and a
//! user has one of these libraries and not both.

mod answers;
mod contestant;
mod run;
mod usage;
mod work;
mod writing;

pub use contestant::{Contestant, Trouble};
pub use run::run;
pub use usage::{memory, processor_time};
pub use work::Work;
