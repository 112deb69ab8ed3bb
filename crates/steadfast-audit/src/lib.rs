//! Audits the watches of Kubernetes API servers, for programs that do not use Steadfast.
//!
//! An audit watches the metadata of some resources on each endpoint, and compares the watches with each other, with
//! short new watches, and with periodic lists. It keeps a hash and a version of each object, and no objects.
//!
//! | item | content |
//! |---|---|
//! | [`Auditor`] | the checks as a state machine, without I/O and clock |
//! | [`Audit`] | runs an auditor on connections |
//! | [`AuditFinding`] | start or end of a finding; one sentence |
//! | [`AuditStats`] | values for metrics |
//!
//! [The documentation](https://github.com/steadfast-rs/steadfast/blob/main/docs/audit.md) describes each finding.

mod auditor;
mod change_log;
mod endpoint_state;
mod finding;
mod listing;
mod message;
mod resource_state;
mod runner;
mod schedule;
mod settings;
mod stats;
mod stream;
mod version_table;
mod wire;

pub use auditor::Auditor;
pub use finding::{AuditFinding, AuditFindingKind, AuditFindingState, AuditSubject};
pub use message::{AuditFailure, AuditInput, AuditOutput, AuditQuery, AuditRecord, AuditReply, ObservedObject};
pub use runner::{Audit, AuditEndpoint, AuditResource};
pub use settings::AuditSettings;
pub use stats::{AuditStats, EndpointStats, StreamStats};
pub use stream::{DELAY_BUCKETS, DelayHistogram};
