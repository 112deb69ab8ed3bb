//! Sends messages about changes in Kubernetes clusters, and keeps external systems in sync with the clusters.
//! Configured rules control both.
//!
//! A configuration lists resources, conditions and messages in CEL, and sinks. A [`Plan`] is a checked configuration.
//! An [`Engine`] runs a plan: the caller passes [changes](change::Change) with stable IDs, the engine evaluates the
//! rules and delivers the resulting messages, at least once and in order for each object. The engine notifies the
//! caller when all messages of a change are delivered or [dead letters](dead_letter::DeadLetters).
//!
//! # Types
//!
//! | step | types |
//! |---|---|
//! | read and check a configuration | [`config::Config`], [`Plan`], [`problem::Problems`], [`Findings`], [`reach()`] |
//! | check fields against a cluster | [`Schemas`], [`Typed`] |
//! | watch the resources of rules | [`Source`], [`WatchSpec`], [`RuleSubscription`], [`Lookups`] |
//! | evaluate rules | [`change::Change`], [`rule::Verdict`], [`message::Message`], [`explain::explain`] |
//! | deliver messages | [`Engine`], [`Streams`], [`sink::Stream`], [`outcome::Outcome`], [`outbox::Outbox`] |
//! | observe deliveries | [`engine_event::EngineEvent`], [`EngineStats`], [`SinkStats`] |
//! | repeat abandoned deliveries | [`dead_letter::DeadLetters`], [`redrive()`] |
//! | keep external systems equal to rules | [`MirrorTask`], [`MirrorContext`], [`MirrorView`], [`MirrorStatus`], [`Approvals`] |
//! | preview a mirror | [`preview_mirrors`], [`MirrorPreview`] |
//! | survive restarts | [`state::State`], [`Memory`] |
//! | share work among replicas | [`Replication`], [`TermGate`], [`TermKeeper`] |
//! | restart tasks that end | [`Supervisor`], [`Supervised`] |
//!
//! This crate is the engine behind the command `steadfast notify` of `steadfast-cli`, and its interface changes with
//! that program. Pin the exact version.
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `latest` | no | the newest version of the Kubernetes types |
//!
//! # Guides
//!
//! - [Notify](https://github.com/steadfast-rs/steadfast/blob/main/docs/notify.md): rules, messages and delivery
//! - [Mirrors](https://github.com/steadfast-rs/steadfast/blob/main/docs/mirrors.md): external systems that are kept equal to rules
//! - [Cookbook](https://github.com/steadfast-rs/steadfast/blob/main/docs/cookbook.md) and [recipes](https://github.com/steadfast-rs/steadfast/blob/main/docs/notify-recipes.md) with complete files

/// Implements `Debug` for errors as `Display`. Rust uses `Debug` to print an error that `main` returns.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

mod ack;
pub mod change;
pub mod config;
pub mod dead_letter;
mod document;
mod endpoints;
mod engine;
pub mod engine_event;
pub mod explain;
mod expression;
mod fields;
mod follow;
mod inspect;
mod instants;
mod key_locks;
mod lookups;
pub mod message;
mod mirror;
mod object_state;
mod offload;
pub mod outbox;
pub mod outcome;
mod parked;
mod path;
mod plan;
mod private_file;
pub mod problem;
mod projections;
mod reach;
mod recheck;
mod redrive;
mod replication;
pub mod rule;
mod secret;
mod server;
mod shape;
mod short_hash;
pub mod sink;
mod source;
pub mod state;
mod subject;
mod supervise;
mod template;
mod trouble;
mod wake;
mod watermark;
mod worker;

pub use engine::{Engine, EngineStats, Streams};
pub use fields::{Schemas, Typed};
pub use follow::{RuleSubscription, forget_others};
pub use inspect::Findings;
pub use lookups::{Lookups, look_up};
pub use mirror::{
    Approvals, DryRun, Feed, MAX_LISTED, MirrorContext, MirrorPreview, MirrorStatus, MirrorTask, MirrorView,
    MirrorViewSource, Openings, preview_mirrors,
};
pub use plan::{DEFAULT_CLUSTER, Plan};
pub use reach::reach;
pub use redrive::{Redriven, redrive};
pub use replication::{Replication, SettledVersions, position_name, position_owner};
pub use source::{LookedUp, Source, WatchSpec};
pub use state::State;
pub use steadfast_targets::{ApprovalRequest, Memory, State as MirrorState, Term, TermGate, TermKeeper};
pub use supervise::{Supervised, Supervisor};
pub use watermark::forget_watermarks;
pub use worker::SinkStats;
