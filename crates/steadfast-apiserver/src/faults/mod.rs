//! Injected faults.

mod interception;
mod log;
mod replica_faults;
mod rules;

pub(crate) use interception::Interception;
pub use interception::{InterceptAction, RequestStage};
pub(crate) use log::FaultLog;
pub use log::FaultRecord;
pub(crate) use replica_faults::{ReplicaFaults, SharedReplicaFaults};
pub use rules::{BodyCorruption, InjectedResponse, ObjectCorruption, RequestRule, TooLargeVersionForm};
pub(crate) use rules::{RuleEffect, Rules};
