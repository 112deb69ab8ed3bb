//! Controllers, leader election, sharding and event recording on top of Steadfast's caches. By default, reconciles
//! pause when a cache that they read has been in doubt for more than 30 s.
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::apps::v1::Deployment;
//! use k8s_openapi::api::core::v1::Pod;
//! use steadfast::{Connection, InformerFactory, Scope};
//! use steadfast_controller::{Action, Controller, back_off};
//!
//! async fn reconcile(deployment: Arc<Deployment>, client: Arc<kube::Client>) -> Result<Action, kube::Error> {
//!     // Create or update the children of `deployment`.
//!     Ok(Action::await_change())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Connection::infer().await?;
//! let informers = InformerFactory::new(&connection);
//! let controller = Controller::<Deployment>::new(&informers, Scope::all())
//!     .owns::<Pod>(Scope::all())
//!     .run(reconcile, back_off, Arc::new(connection.client()))?;
//!
//! tokio::signal::ctrl_c().await?;
//! controller.stop(Duration::from_secs(30)).await;
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | reconcile objects | [`Controller`], [`Action`], [`back_off`], [`RunningController`], [`StopReport`] |
//! | select the changes that trigger reconciles | [`Source`], [`ChangeFilter`] |
//! | decide about stale caches | [`StalePolicy`] |
//! | observe controllers, queues and recorders | [`ControllerDiagnostic`], [`ControllerStats`], [`WorkqueueStats`], [`EventStats`], [`Durations`] |
//! | clean up before a deletion | [`finalizer()`], [`Finalizing`] |
//! | repeat an update after a conflict | [`retry_on_conflict`] |
//! | process keys without a controller | [`Workqueue`], [`Work`], [`Priority`], [`RetrySettings`], [`RateLimit`] |
//! | elect one leader | [`LeaderElection`], [`Leader`], [`CandidateVersions`], [`LeaseError`] |
//! | distribute keys among replicas | [`Sharding`], [`KeyGuard`] |
//! | record events about objects | [`EventRecorder`], [`EventDraft`], [`EventSettings`], [`subject`] |
//! | handle errors | [`RunError`], [`SourceError`], [`FinalizerError`], [`ElectionError`], [`NotDrained`], [`NotSent`], [`InvalidReporter`] |
//! | export metrics | `ControllerMetrics`, `WorkqueueMetrics`, `ElectionMetrics`, `EventMetrics` (feature `metrics`) |
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `metrics` | no | Prometheus metrics |
//! | `latest` | no | the newest version of the Kubernetes types |
//!
//! # Guides
//!
//! - [Controllers](https://github.com/steadfast-rs/steadfast/blob/main/docs/controllers.md): behaviour and settings
//! - [One small controller](https://github.com/steadfast-rs/steadfast/blob/main/docs/guide-controllers.md), ported from
//!   client-go, controller-runtime and kube-runtime
//! - [Operations](https://github.com/steadfast-rs/steadfast/blob/main/docs/operations.md): metrics and alerts
//! - [An operator with its manifests](https://github.com/steadfast-rs/steadfast/tree/main/examples/operator)

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Debug` of errors by their message, because Rust prints an error returned by `main` with `Debug`.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

mod conflict;
mod controller;
mod election;
mod events;
mod finalizer;
mod panics;
mod wall_clock;
mod workqueue;

pub use conflict::retry_on_conflict;
#[cfg(feature = "metrics")]
pub use controller::ControllerMetrics;
pub use controller::{
    Action, ChangeFilter, Controller, ControllerDiagnostic, ControllerStats, RunError, RunningController, Source,
    SourceError, StalePolicy, StopReport, back_off,
};
#[cfg(feature = "metrics")]
pub use election::ElectionMetrics;
pub use election::{
    CandidateVersions, CoordinatedElectionBuilder, ElectionError, KeyGuard, Leader, LeaderElection,
    LeaderElectionBuilder, LeaseError, Sharding, ShardingBuilder,
};
#[cfg(feature = "fault-injection")]
#[doc(hidden)]
pub use election::{InjectedElectionFault, InjectedShardingFault};
#[cfg(feature = "metrics")]
pub use events::EventMetrics;
pub use events::subject;
pub use events::{
    EventDraft, EventRecorder, EventRecorderBuilder, EventSettings, EventStats, EventType, InvalidReporter, NotSent,
};
pub use finalizer::{FinalizerError, Finalizing, finalizer};
#[cfg(feature = "metrics")]
pub use workqueue::WorkqueueMetrics;
pub use workqueue::{
    Durations, NotDrained, Priority, RateLimit, RetrySettings, Work, Workqueue, WorkqueueBuilder, WorkqueueStats,
};
