//! Where messages go, of one kind yet: a stream, to which each change is delivered at least once.

pub mod exec;
mod open;
pub mod stdout;
mod stream;
mod unopened;
pub mod webhook;

pub use stream::{Delivering, Stream};
