//! Injected faults.

mod active_faults;
mod interception;
mod log;
mod rules;

pub(crate) use active_faults::{ActiveFaults, ReplicaFaults};
pub(crate) use interception::Interception;
pub use interception::{InterceptAction, RequestStage};
pub(crate) use log::FaultLog;
pub use log::FaultRecord;
pub use rules::{BodyCorruption, InjectedResponse, ObjectCorruption, RequestRule, TooLargeVersionForm};
pub(crate) use rules::{RuleEffect, Rules};
