//! Injected faults.

mod conditions;
mod handle;
mod interception;
mod log;
mod rules;

pub(crate) use conditions::{Condition, Conditions};
pub use handle::Faults;
pub(crate) use interception::Interception;
pub use interception::{Fate, Moment};
pub(crate) use log::FaultLog;
pub use log::FaultRecord;
pub use rules::{Answer, Corruption, RequestRule, Spoiling, TooLarge};
pub(crate) use rules::{Rules, Ruling};
