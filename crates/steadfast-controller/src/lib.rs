//! Controllers on Steadfast's caches: what is called for each object until the world is as the object says, and cannot act on
//! a view that is stale.
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
//!     // Make the world as `deployment` says.
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
//! | room | what it is |
//! |---|---|
//! | `controller` | what is chosen of a controller, and how it is run |
//! | `controller::source`, `controller::changes` | what leads to calls, and which changes count |
//! | `controller::crew`, `controller::pulse`, `controller::spins` | those who make the calls; whether a call gives its thread back, or wants to be called again at once |
//! | `controller::sights` | what the next call of a key has to see, and waits for |
//! | `controller::all` | calls for all there is, where it is not known what has changed |
//! | `controller::primary` | the scope of a controller's own objects: which keys they can have |
//! | `controller::declared` | the caches that a controller declares, and how long each may delay its start |
//! | `controller::when_stale` | what is chosen of calls while caches are in doubt |
//! | `controller::gate` | whether anything may be called, while caches are in doubt |
//! | `conflict` | updates that are repeated after a conflict |
//! | `finalizer` | what is to be done before an object is gone |
//! | `panics` | what is left of a panic |
//! | `workqueue` | which keys are to be worked on, one call of each at a time |
//! | `workqueue::schedule` | what is ready, delayed and worked on, without a clock |
//! | `workqueue::order` | who is next among those that are ready: priorities, and fairness among groups |
//! | `workqueue::retries` | how long a key waits that failed, and all that fail together |
//! | `workqueue::figures` | what is counted, under client-go's names |
//! | `election` | who of several processes acts: the holder of a lease, for as long as it is held and no longer |
//! | `election::candidacy` | one candidate's view of the lease, without I/O or a clock |
//! | `election::record`, `election::timing` | what is written into a lease; how long it lasts, and how much of it is used |
//! | `election::campaign`, `election::leases`, `election::office` | a candidate at work, its requests, what it tells |
//! | `election::succession` | of a lease that a coordinator gives: who held it before us, and until when they may act |
//! | `election::candidate`, `election::registration` | what a coordinator knows of a candidate; that it is there, and answers |
//! | `election::trouble` | why a candidate cannot use its lease, and which permission is missing |
//! | `election::breach` | deliberate breaches of the rules, for tests; empty without the feature `breach` |
//! | `election::requests` | how a request about leases is made: within its time |
//! | `election::shares` | which of several processes acts on which key: a lease each, and hand-overs without overlap |
//! | `shares::membership`, `rendezvous` | one member's view of its group, without I/O or a clock; whose a key is |
//! | `shares::member`, `group`, `office` | a member at work, its requests about the others, what it tells |
//! | `shares::gains` | which of its own keys are given out: once caches have what others had written to them |
//! | `shares::breach` | deliberate breaches of the protocol, for tests; empty without the feature `breach` |
//! | `events` | events recorded about objects: counted, combined, limited, sent by a task |
//! | [`subject`] | what an event can be about |
//! | `events::correlate` | which requests that takes, without I/O and without a clock |
//! | `events::series`, `key` | one event and how often it was recorded; which are the same, which are similar |
//! | `events::similar`, `allowance`, `pace` | what is combined, how many there may be about one object, when all wait |
//! | `events::shared`, `sender`, `request` | what those who record share with the task that sends; a request and its answer |

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Debug` of errors as their message: Rust prints an error that `main` returns by `Debug`.
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
    Candidate, CoordinatedElectionBuilder, ElectionError, ElectionTrouble, Held, Leader, LeaderElection,
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
