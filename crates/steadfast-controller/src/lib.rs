//! Controllers, leader election, sharding and event recording on top of Steadfast's caches. A reconcile never acts on a
//! stale cache.
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
//! | module | contents |
//! |---|---|
//! | `controller` | settings of a controller, and its start |
//! | `controller::source`, `controller::changes` | sources of keys; filters for relevant changes |
//! | `controller::worker_pool`, `controller::stall_detector`, `controller::hot_loop` | workers that run reconciles; detection of blocking reconciles; delay for keys that requeue at once |
//! | `controller::write_tracker` | writes that must be visible in the caches before the next reconcile of a key |
//! | `controller::requeue_all` | requeue of all keys if the changed keys are unknown |
//! | `controller::primary` | scope of a controller's own objects, and their possible keys |
//! | `controller::declared` | caches that a controller declares, and their limits for delaying its start |
//! | `controller::when_stale` | behaviour while caches are in doubt |
//! | `controller::staleness_gate` | pauses reconciles while caches are in doubt |
//! | `conflict` | retries of updates after a conflict |
//! | `finalizer` | cleanup before an object is deleted |
//! | `panics` | messages of caught panics |
//! | `workqueue` | queue of keys; each key is processed by one worker at a time |
//! | `workqueue::schedule` | ready, delayed and running keys, without a clock |
//! | `workqueue::order` | order of ready keys: priorities, and fairness among groups |
//! | `workqueue::retries` | backoff per key, and rate limit for all keys |
//! | `workqueue::stats` | counters under client-go's names |
//! | `election` | leader election by a lease |
//! | `election::machine` | state machine of one candidate, without I/O or a clock |
//! | `election::record`, `election::timing` | contents of a lease; durations and their checks |
//! | `election::task`, `election::leases`, `election::state` | background task of a candidate, its requests, its published state |
//! | `election::previous_holder` | time until earlier holders of a coordinated lease must have stopped |
//! | `election::candidate`, `election::registration` | versions of a candidate for a coordinator; its `LeaseCandidate` object |
//! | `election::trouble` | reasons why a candidate cannot use its lease, with the missing permission |
//! | `election::breach` | injected faults for tests; empty without the feature `breach` |
//! | `election::requests` | requests about leases, each with a timeout |
//! | `election::sharding` | distribution of keys among replicas: one lease each, and hand-overs without overlap |
//! | `sharding::membership`, `rendezvous` | one member's view of its group, without I/O or a clock; owner of a key |
//! | `sharding::member`, `group`, `state` | background task of a member, its requests about the other members, its published state |
//! | `sharding::gains` | gained keys, withheld until the caches contain the writes of earlier owners |
//! | `sharding::breach` | injected faults for tests; empty without the feature `breach` |
//! | `events` | event recorder: counts, combines, limits and sends events |
//! | [`subject`] | subjects of events |
//! | `events::correlate` | choice of requests, without I/O or a clock |
//! | `events::series`, `key` | one event and its count; identity and similarity of events |
//! | `events::similar`, `allowance`, `pacer` | combined events, limit per object, pauses after failures |
//! | `events::shared`, `sender`, `request` | state shared by recorders and the sender task; one request and its response |

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
mod workqueue;

pub use conflict::retry_on_conflict;
#[cfg(feature = "metrics")]
pub use controller::ControllerMetrics;
pub use controller::{
    Action, Changes, Controller, ControllerDiagnostic, ControllerStats, RunError, RunningController, Source,
    SourceError, Stopped, WhenStale, back_off,
};
#[cfg(feature = "metrics")]
pub use election::ElectionMetrics;
pub use election::{
    Candidate, CoordinatedElectionBuilder, ElectionError, ElectionTrouble, KeyGuard, Leader, LeaderElection,
    LeaderElectionBuilder, Sharding, ShardingBuilder,
};
#[cfg(feature = "breach")]
#[doc(hidden)]
pub use election::{ElectionBreach, ShardingBreach};
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
