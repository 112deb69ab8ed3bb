//! Informer logic without I/O. This crate is the internal part of `steadfast` and not a separate library.
//!
//! **Only the items that `steadfast` re-exports are stable**, under the names in its `docs/api.md`. All other items may
//! change in any release. A program that depends on this crate directly must pin its exact version.
//!
//! This crate opens no socket, reads no clock, spawns no task and draws no random number. Time, randomness and received
//! bytes are arguments; decisions are return values. Tests can therefore run millions of histories in one thread. The
//! `steadfast` crate adds the I/O.
//!
//! # Modules
//!
//! | task | modules |
//! |---|---|
//! | read responses | [`frame`], [`decode`], [`protobuf`], [`lazy`], [`mod@path`] |
//! | decide about lists and watches | [`reflector`], [`backoff`], [`freshness`] |
//! | store objects | [`store`], [`object`], [`slots`], [`ordmap`], [`keyset`], [`selector`] |
//! | derive and deliver changes | [`event`], [`filter`], [`queue`], [`outbox`] |
//! | survive a restart | [`checkpoint`] |
//! | basic types | [`key`], [`uid`], [`version`], [`record`], [`time`], [`random`], [`hash`], [`cause`] |
//! | faults for tests | [`fault_injection`], which does nothing without the feature `fault-injection` |
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `latest` | no | the newest version of the Kubernetes types |
//!
//! # Guides
//!
//! - [Public API](https://github.com/steadfast-rs/steadfast/blob/main/docs/api.md): the names that `steadfast` re-exports
//! - [Architecture](https://github.com/steadfast-rs/steadfast/blob/main/docs/architecture.md): modules, their inputs and outputs, and the reasons for their design

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
pub mod cause;
pub mod checkpoint;
pub mod decode;
pub mod event;
pub mod fault_injection;
pub mod filter;
mod footprint;
pub mod frame;
pub mod freshness;
pub mod hash;
pub mod key;
pub mod keyset;
pub mod lazy;
pub mod object;
pub mod on_demand;
pub mod ordmap;
pub mod outbox;
pub mod path;
pub mod protobuf;
pub mod queue;
pub mod random;
pub mod record;
pub mod reflector;
mod scan;
pub mod selector;
mod short;
pub mod slots;
pub mod store;
mod text;
pub mod time;
pub mod uid;
pub mod version;

pub use decode::{Cacheable, Encoding, RawObject};
pub use event::{Certainty, DeleteReason, Event};
pub use freshness::{Doubt, Freshness};
pub use key::{InvalidKey, ObjectKey};
pub use keyset::KeySet;
pub use lazy::Lazy;
pub use object::{Entry, Object, WithSize};
pub use path::FieldPath;
pub use time::Instant;
pub use uid::Uid;
pub use version::ResourceVersion;
