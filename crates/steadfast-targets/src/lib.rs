//! Mirrors: keep entries of an external system, such as a load balancer, registry or DNS zone, equal to a desired
//! state.
//!
//! A *mirror* receives the desired state as a whole, whenever it changes, instead of single events. It reads the target
//! at its start, after each change and at an interval, and applies the missing steps. So missed events, lost responses
//! and manual changes do not leave the target wrong. This crate does not depend on Kubernetes.
//!
//! ```no_run
//! # use std::{collections::BTreeMap, path::Path};
//! use steadfast_targets::haproxy::{Haproxy, Server};
//! use steadfast_targets::{DesiredState, MirrorMemory, Mirror, MirrorSettings};
//!
//! # async fn example(
//! #     entries: BTreeMap<String, Server>,
//! #     informer_is_stale: bool,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let target = Haproxy::new(Path::new("/run/haproxy/admin.sock"), "web", "sf-")?;
//! let mirror = Mirror::start("web", target, MirrorSettings::default(), MirrorMemory::open(Path::new("mirrors.json"))?);
//! // Call this with the whole desired state whenever that state changes.
//! let doubt = informer_is_stale.then(|| "the cache is stale".into());
//! mirror.set_desired(DesiredState { doubt, ..DesiredState::new(entries) });
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | describe the desired entries | [`DesiredState`], [`CompetingEntry`], [`Origin`], [`ObjectId`], [`UncertainOrigins`], [`ExistenceCheck`] |
//! | run a mirror | [`Mirror`], [`MirrorSettings`], [`MirrorMemory`] |
//! | observe a mirror | [`MirrorStatus`], [`MirrorState`], [`SkipReason`], [`LocationConflict`], [`EntryLoss`] |
//! | limit and approve removals | [`Limits`], [`ApprovalRequest`], [`UnknownApproval`] |
//! | preview and simulate | [`preview()`], [`Preview`], [`DryRun`] |
//! | write only as the leader | [`TermGate`], [`TermKeeper`], [`Term`], [`UnlimitedTerm`], [`WritePermit`], [`TermEnded`], [`AwakeTime`] |
//! | implement a target | [`Target`], [`EntryValue`], [`ActualState`], [`Step`], [`ClaimResult`] |
//!
//! Targets:
//!
//! | module | target |
//! |---|---|
//! | [`haproxy`] | servers of a backend of HAProxy, by its runtime socket |
//! | [`dns`] | names of a zone, by dynamic update |
//! | [`etcd`] | keys under a prefix of etcd, with a lease |
//! | [`nftables`] | backends behind one address, in the kernel |
//! | [`registry`] | items of a registry with an HTTP API: `GET`, `PUT`, `DELETE` |
//! | `ipvs` | real servers behind a virtual service of IPVS (LVS), by netlink; only on Linux |
//!
//! This crate has no Cargo features.
//!
//! # Guides
//!
//! - [Mirrors](https://github.com/steadfast-rs/steadfast/blob/main/docs/mirrors.md): behaviour, guard and targets
//! - [Cookbook](https://github.com/steadfast-rs/steadfast/blob/main/docs/cookbook.md): mirrors of a Kubernetes cluster,
//!   by configuration alone

/// Implements `Debug` of errors as their message, because Rust uses `Debug` to print an error that `main` returns.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

mod attempts;
mod awake_time;
mod batches;
mod bounded_name;
mod dry_run;
mod entry;
mod exchange;
mod guard;
mod location_claims;
mod mirror;
mod mirror_memory;
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

pub use awake_time::AwakeTime;
pub use dry_run::DryRun;
pub use entry::{ActualState, CompetingEntry, DesiredState, EntryValue, Step, Target};
pub use guard::{ApprovalRequest, Limits, UnknownApproval};
pub use location_claims::LocationConflict;
pub use mirror::Mirror;
pub use mirror_memory::MirrorMemory;
pub use origin::{ExistenceCheck, ObjectId, Origin, UncertainOrigins};
pub use owner::{ClaimResult, OWNER_EXPIRES_SECS};
pub use plan::SkipReason;
pub use preview::{Preview, preview};
pub use settings::MirrorSettings;
pub use status::{EntryLoss, MirrorState, MirrorStatus};
pub use term::{Term, TermEnded, TermGate, TermKeeper, UnlimitedTerm, WritePermit};
