//! Handlers that acknowledge what they have done: what they are told is told until then, also by the program's next life.
//!
//! | room | what it is |
//! |---|---|
//! | `told` | what such a handler is given, and what it has done |
//! | `calls` | one handler: what it is owed, its calls, its patience with what fails |
//! | `all` | those of one informer, and those that earlier lives of the program had |
//! | `registration` | how they come to an informer, and go |
//!
//! What is owed after which change is decided in `steadfast_core::debts`; `checkpoint::section` writes it down.

mod all;
mod calls;
mod registration;
mod told;

pub(crate) use all::{Durables, Owed, Refused};
pub(crate) use calls::{Calls, Durable};
pub use registration::{DurableBuilder, DurableRegistration};
pub use told::{DurableCounts, DurablePosition, Told};
