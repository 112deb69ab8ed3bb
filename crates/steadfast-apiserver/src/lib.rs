//! An embedded Kubernetes API server for tests: one history, several replicas, real HTTP, faults on demand.

mod builder;
mod clock;
mod cluster;
mod direct;
mod faults;
mod http;
mod kubeconfig;
mod net;
mod random;
mod records;
mod resources;
mod selector;
mod server;
mod signal;
mod status;
mod storage;
mod streams;

pub use builder::{ApiServerBuilder, StartError};
pub use faults::{Answer, Corruption, FaultRecord, Faults, RequestRule};
pub use net::{Dialer, LinkEnd, MemoryStream};
pub use records::{RequestCounts, RequestRecord, Verb};
pub use resources::{GroupResource, ResourceDeclaration};
pub use server::{ApiServer, ConnectionRecord};
pub use status::Status;
pub use storage::{Change, History};
