//! Mirrors: keep entries of an external system, such as a load balancer, registry or DNS zone, equal to a desired state.
//!
//! A *mirror* receives the desired state as a whole, whenever it changes, instead of single events. It reads the target at its
//! start, after each change and at an interval, and applies the missing steps. So missed events, lost responses and manual
//! changes do not leave the target wrong. This crate does not depend on Kubernetes.
//!
//! ```no_run
//! # use std::{collections::BTreeMap, path::Path};
//! use steadfast_outside::haproxy::{Haproxy, Server};
//! use steadfast_outside::{DesiredState, Memory, Mirror, Settings};
//!
//! # async fn example(entries: BTreeMap<String, Server>, informer_is_stale: bool) -> Result<(), Box<dyn std::error::Error>> {
//! let target = Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-")?;
//! let mirror = Mirror::start("web", target, Settings::default(), Memory::open(Path::new("mirrors.json"))?);
//! // Whenever it changes, as a whole.
//! mirror.want(DesiredState { doubt: informer_is_stale.then(|| "the cache is stale".into()), ..DesiredState::certain(entries) });
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `entry` | entries of a target, the desired and actual state, and the steps between them |
//! | `origin` | the object, rule and group that an entry comes from, and what is uncertain about them |
//! | `claims` | which group owns a location that several groups claim |
//! | `plan` | the steps from the actual to the desired state, and the reasons for skipped entries |
//! | `guard` | how much capacity a group may lose, and which removals were approved |
//! | `attempts` | backoff of single entries |
//! | `mirror_record`, `memory` | state that survives restarts, in a file |
//! | `mirror`, `settings`, `status` | one mirror: desired state in, status out |
//! | `term` | permission to write: of several replicas only the leader has it, until the end of its term |
//! | `mirror_task` | the task of a mirror: read, plan, apply, read again |
//! | `preview` | a preview of a mirror's next steps |
//! | `dry_run` | dry-run target |
//! | `step_runner` | independent steps run concurrently, each with its own deadline |
//! | `bounded_name` | names for keys of any form, within the limits of a target |
//! | `batches` | batches of changes; a rejected batch is split until only the invalid changes are left out |
//! | `rotation` | the order of equivalent servers: the last server that responded comes first |
//! | `owner` | ownership records: which process maintains the entries of a mark |
//! | `exchange` | one request over a connection of its own |
//! | `ipvs` | the real servers behind a virtual service of IPVS (LVS), by netlink; on Linux |
//! | `dns` | the names of a zone, by dynamic update |
//! | `etcd` | keys under a prefix of etcd, with a lease |
//! | `registry` | the items of a registry with an HTTP API: `GET`, `PUT`, `DELETE` |
//! | `nftables` | the backends behind one address, by the kernel |
//! | `haproxy` | the servers of a backend of HAProxy, by its runtime socket |

mod attempts;
mod batches;
mod bounded_name;
mod claims;
mod dry_run;
mod entry;
mod exchange;
mod guard;
mod memory;
mod mirror;
mod mirror_record;
mod mirror_task;
mod origin;
mod owner;
mod plan;
mod preview;
mod rotation;
mod settings;
mod status;
mod step_runner;
mod term;

pub mod dns;
pub mod etcd;
pub mod haproxy;
#[cfg(target_os = "linux")]
pub mod ipvs;
pub mod nftables;
pub mod registry;

pub use claims::Conflict;
pub use dry_run::DryRun;
pub use entry::{ActualState, CompetingEntry, DesiredState, Step, Target, Value};
pub use guard::{ApprovalRequest, Limits, UnknownApproval};
pub use memory::Memory;
pub use mirror::Mirror;
pub use origin::{Doubts, ExistenceCheck, ObjectId, Origin};
pub use owner::{Claim, OWNER_EXPIRES_SECS};
pub use plan::SkipReason;
pub use preview::{Preview, preview};
pub use settings::Settings;
pub use status::{Loss, State, Status};
pub use term::{Permit, Term, TermEnded, TermGate, TermKeeper};
