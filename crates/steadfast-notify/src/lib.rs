//! Sends messages about changes in Kubernetes clusters, and keeps external systems in sync with the clusters.
//! Configured rules control both.
//!
//! A configuration lists resources, conditions and messages in CEL, and sinks. A [`Plan`] is a checked configuration.
//! An [`Engine`] runs a plan. The caller passes [changes](change::ObjectChange) with stable IDs, and the engine
//! evaluates the rules. The engine delivers the resulting messages at least once, and in order for each object. The
//! engine notifies the caller when all messages of a change are delivered or [dead letters](dead_letter::DeadLetters).
//!
//! # Types
//!
//! | step | types |
//! |---|---|
//! | read and check a configuration | [`config::Config`], [`Plan`], [`problem::Problems`], [`InspectionFindings`], [`reach()`] |
//! | check fields against a cluster | [`Schemas`], [`TypedResource`] |
//! | watch the resources of rules | [`RuleSource`], [`ClusterInformers`], [`RuleSubscription`], [`LookupSnapshot`] |
//! | evaluate rules | [`change::ObjectChange`], [`rule::RuleOutcome`], [`message::Message`], [`explain::explain`] |
//! | deliver messages | [`Engine`], [`MessageSinks`], [`sink::MessageSink`], [`delivery_outcome::DeliveryOutcome`], [`sink_queue::SinkQueue`] |
//! | observe deliveries | [`engine_event::EngineEvent`], [`EngineStats`], [`SinkStats`] |
//! | repeat abandoned deliveries | [`dead_letter::DeadLetters`], [`redrive()`] |
//! | keep external systems equal to rules | [`SupervisedMirror`], [`MirrorContext`], [`MirrorInput`], [`MirrorSinkStatus`], [`Approvals`] |
//! | preview a mirror | [`preview_mirrors`], [`MirrorPreview`] |
//! | survive restarts | [`state_folder::StateFolder`], [`MirrorMemory`] |
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
//! - [Mirrors](https://github.com/steadfast-rs/steadfast/blob/main/docs/mirrors.md): external systems that are kept
//!   equal to rules
//! - [Cookbook](https://github.com/steadfast-rs/steadfast/blob/main/docs/cookbook.md) and
//!   [recipes](https://github.com/steadfast-rs/steadfast/blob/main/docs/notify-recipes.md) with complete files

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
pub mod delivery_outcome;
mod document;
mod earlier_writes;
mod endpoints;
mod engine;
pub mod engine_event;
mod entry_fields;
mod event_subject;
pub mod explain;
mod expression;
mod fields;
mod follow;
mod inspect;
mod instants;
mod key_locks;
mod last_results;
mod lookups;
pub mod message;
mod mirror;
mod namespace_failures;
mod namespace_share;
mod object_state;
mod offload;
mod parked;
mod path;
mod plan;
mod private_file;
pub mod problem;
mod reach;
mod recheck;
mod redrive;
mod replication;
pub mod rule;
mod rule_source;
mod secret;
mod server;
mod short_hash;
pub mod sink;
mod sink_health;
pub mod sink_queue;
pub mod state_folder;
mod supervise;
mod template;
#[doc(hidden)]
pub mod validity;
mod wake;
mod watermark;
mod worker;

pub use engine::{Engine, EngineStats, MessageSinks};
pub use fields::{Schemas, TypedResource};
pub use follow::{RuleSubscription, forget_unlisted};
pub use inspect::InspectionFindings;
pub use lookups::{LookupSnapshot, lookup_snapshot};
pub use mirror::{
    Approvals, DryRunCallback, MAX_LISTED, MirrorContext, MirrorFeed, MirrorInput, MirrorInputSource, MirrorPreview,
    MirrorSinkStatus, OpenedMirrors, SupervisedMirror, preview_mirrors,
};
pub use plan::{DEFAULT_CLUSTER, Plan};
pub use reach::reach;
pub use redrive::{RedriveReport, redrive};
pub use replication::{Replication, SettledVersions, subscription_name, subscription_owner};
pub use rule_source::{ClusterInformers, LookupResource, RuleSource};
pub use state_folder::StateFolder;
pub use steadfast_targets::{ApprovalRequest, MirrorMemory, MirrorState, Term, TermGate, TermKeeper, UnlimitedTerm};
pub use supervise::{Supervised, Supervisor};
pub use watermark::forget_watermarks;
pub use worker::SinkStats;
