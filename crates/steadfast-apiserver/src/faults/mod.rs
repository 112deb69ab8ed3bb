//! Injected faults.

mod conditions;
mod interception;
mod log;
mod rules;

pub(crate) use conditions::{Condition, Conditions};
pub(crate) use interception::Interception;
pub use interception::{InterceptAction, RequestStage};
pub(crate) use log::FaultLog;
pub use log::FaultRecord;
pub use rules::{BodyCorruption, InjectedResponse, ObjectCorruption, RequestRule, TooLargeVersionForm};
pub(crate) use rules::{RuleEffect, Rules};
