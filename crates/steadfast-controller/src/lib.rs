//! What controllers are made of: a workqueue so far.
//!
//! ```no_run
//! use steadfast::{Connection, Event, InformerFactory, ObjectKey, Scope};
//! use steadfast_controller::{Priority, Workqueue};
//! # use k8s_openapi::api::core::v1::Pod;
//! # async fn reconcile(_: &ObjectKey) -> Result<(), std::io::Error> { Ok(()) }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Connection::infer().await?;
//! let queue = Workqueue::<ObjectKey>::new(connection.environment().clone());
//!
//! let informers = InformerFactory::new(&connection);
//! let pods = informers.informer::<Pod>(Scope::all())?;
//! let changed = queue.clone();
//! pods.on_event(move |event| {
//!     let priority = match &event {
//!         Event::Added { initial: true, .. } | Event::Resynced { .. } => Priority::LOW,
//!         _ => Priority::NORMAL,
//!     };
//!     changed.add_with(event.object().key().clone(), priority);
//! })?;
//!
//! while let Some(pod) = queue.next().await {
//!     match reconcile(&pod).await {
//!         Ok(()) => pod.finish(),
//!         Err(_) => {
//!             pod.retry();
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | `workqueue` | which keys are to be worked on, one call of each at a time |
//! | `workqueue::schedule` | what is ready, delayed and worked on, without a clock |
//! | `workqueue::order` | who is next among those that are ready: priorities, and fairness among groups |
//! | `workqueue::retries` | how long a key waits that failed, and all that fail together |
//! | `workqueue::figures` | what is counted, under client-go's names |

mod controller;
mod workqueue;

pub use controller::{
    Action, Changes, Controller, ControllerFigures, ControllerNote, RunError, RunningController, Source, SourceError,
    Stopped, WhenStale, back_off,
};
#[cfg(feature = "metrics")]
pub use workqueue::WorkqueueMetrics;
pub use workqueue::{
    Durations, NotDrained, Priority, RateLimit, RetrySettings, Work, Workqueue, WorkqueueBuilder, WorkqueueFigures,
};
