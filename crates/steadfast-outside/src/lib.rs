//! The outside, made equal to what a cluster says: entries of a load balancer, of a registry, of a zone.
//!
//! A *mirror* is told what is wanted as a whole, as often as that changes, and not what has happened: it looks at what there is,
//! and does what is missing, at its start, after each change and every so often. So no event that was missed, no answer that was lost
//! and nobody's hand leaves the outside wrong. Nothing in here knows of Kubernetes.
//!
//! ```no_run
//! # use std::{collections::BTreeMap, path::Path};
//! use steadfast_outside::haproxy::{Haproxy, Server};
//! use steadfast_outside::{Memory, Mirror, Settings, Wanted};
//!
//! # async fn example(entries: BTreeMap<String, Server>, informer_is_stale: bool) -> Result<(), Box<dyn std::error::Error>> {
//! let target = Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-")?;
//! let mirror = Mirror::start("web", target, Settings::default(), Memory::open(Path::new("mirrors.json"))?);
//! // Whenever it changes, as a whole.
//! mirror.want(Wanted { doubt: informer_is_stale.then(|| "the cache is stale".into()), ..Wanted::certain(entries) });
//! # Ok(())
//! # }
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `entry` | what lies outside under a name, whose it is, and what is to be done about it |
//! | `origin` | the object, rule and group that an entry comes from, and what is uncertain about them |
//! | `claims` | which group owns a place that several want |
//! | `plan` | the steps from what there is to what is wanted, and the reasons for what has to wait |
//! | `guard` | how much capacity a group may lose, and which removals were approved |
//! | `attempts` | backoff of single entries |
//! | `record`, `memory` | what no restart may forget, in a file |
//! | `mirror`, `settings`, `status` | one mirror: what is wanted goes in, its status comes out |
//! | `term` | permission to write: of several replicas only the leader has it, until the end of its term |
//! | `work` | a mirror at work: looks, plans, acts, looks again |
//! | `preview` | what a mirror would do, for who only wants to see it |
//! | `rehearsal` | a target that is only played |
//! | `lanes` | independent steps run concurrently, each with its own deadline |
//! | `fitted` | names for keys of any form, within the limits of a target |
//! | `batches` | many changes by few messages; a rejected message is split until only the changes at fault are left out |
//! | `rotation` | the order in which equivalent servers are asked: the last one that responded comes first |
//! | `owner` | ownership records: which process maintains the entries of a mark |
//! | `exchange` | one request over a connection of its own |
//! | `ipvs` | the real servers behind a virtual service of IPVS (LVS), by netlink; on Linux |
//! | `dns` | the names of a zone, by dynamic update |
//! | `etcd` | keys under a prefix of etcd, with a lease |
//! | `registry` | the items of a registry that is spoken to by plain HTTP: `GET`, `PUT`, `DELETE` |
//! | `nftables` | the backends behind one address, by the kernel |
//! | `haproxy` | the servers of a backend of HAProxy, by its runtime socket |

mod attempts;
mod batches;
mod claims;
mod entry;
mod exchange;
mod fitted;
mod guard;
mod lanes;
mod memory;
mod mirror;
mod origin;
mod owner;
mod plan;
mod preview;
mod record;
mod rehearsal;
mod rotation;
mod settings;
mod status;
mod term;
mod work;

pub mod dns;
pub mod etcd;
pub mod haproxy;
#[cfg(target_os = "linux")]
pub mod ipvs;
pub mod nftables;
pub mod registry;

pub use claims::Conflict;
pub use entry::{Found, Rival, Step, Target, Value, Wanted};
pub use guard::{Ask, Limits, NoSuchAsk};
pub use memory::Memory;
pub use mirror::Mirror;
pub use origin::{Doubts, Exists, ObjectId, Origin};
pub use owner::{Claim, OWNER_EXPIRES_SECS};
pub use plan::Kept;
pub use preview::{Preview, preview};
pub use rehearsal::Rehearsal;
pub use settings::Settings;
pub use status::{Loss, State, Status};
pub use term::{Permit, Term, TermEnded, TermGate, TermKeeper};
