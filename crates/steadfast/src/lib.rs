//! Kubernetes informers that are never silently stale.
//!
//! ```no_run
//! use std::time::Duration;
//! use k8s_openapi::api::core::v1::Pod;
//! use kube::ResourceExt;
//! use steadfast::{Connection, Event, InformerFactory, Scope};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Connection::infer().await?;
//! let informers = InformerFactory::new(&connection);
//! let pods = informers.informer::<Pod>(Scope::all().labels("app=web"))?;
//!
//! pods.on_event(|event| match event {
//!     Event::Added { object: pod, .. } => println!("+ {}", pod.name_any()),
//!     Event::Updated { new: pod, .. } => println!("~ {}", pod.name_any()),
//!     Event::Deleted { last: pod, certainty, .. } => println!("- {} ({certainty})", pod.name_any()),
//!     Event::Resynced { .. } => {}
//! })?;
//!
//! informers.wait_for_sync(Duration::from_secs(30)).await?;
//! let lister = pods.lister()?;
//! let web = lister.get("default", "web-0")?;
//! println!("{}: {}", web.is_some(), pods.freshness());
//! # Ok(())
//! # }
//! ```
//!
//! | room | what it is |
//! |---|---|
//! | [`environment`] | time, threads, randomness, sockets: everything of the machine, as one value |
//! | [`transport`] | HTTP/2 and HTTP/1.1 connections, their health, their pool |
//! | [`connection`] | one server: the pool, authentication, `kube::Client` |
//! | `factory` | informers, shared by all who ask for the same |
//! | `informer`, `until`, `lister`, `stream`, `readiness` | what users hold |
//! | `writes`, `catching_up` | what was written through a client, and waits for caches that have it; `milestones` wakes those |
//! | `uncached` | lists and changes straight from the server, for those who keep what they need themselves |
//! | `driver`, `answers` | one informer at work: bytes in, the reflector of `steadfast-core` asked, the store changed |
//! | `checkpoint`, `keepsake` | caches that survive their program's death, in a file (feature `checkpoint`) |
//! | `durable` | handlers that acknowledge what they have done, and are told until then (feature `checkpoint`) |
//! | [`metrics`] | what all of these count, as a scrape of Prometheus reads them (feature `metrics`) |
//! | `shared`, `runner`, `handler` | the store and those who are notified of its changes, each by a queue of its own |

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

mod answers;
mod catching_up;
#[cfg(feature = "checkpoint")]
mod checkpoint;
mod choices;
pub mod connection;
mod driver;
#[cfg(feature = "checkpoint")]
mod durable;
pub mod environment;
mod error;
mod factory;
mod handler;
mod handler_counts;
mod informer;
#[cfg(feature = "checkpoint")]
mod keepsake;
mod lister;
mod memory;
pub mod metrics;
mod milestones;
mod ordinals;
mod owner;
mod probes;
mod readiness;
mod registration;
mod resource;
mod roster;
mod runner;
mod scope;
mod screen;
mod shared;
mod stream;
pub mod transport;
mod uncached;
#[doc(hidden)]
pub mod unstable;
mod until;
mod wishes;
mod writes;

/// The Kubernetes types that informers are made for; a program has to enable a feature of it, such as `latest`.
pub use k8s_openapi;
/// The client library whose types this one speaks: a program has to use the same one.
pub use kube;

#[cfg(feature = "checkpoint")]
pub use checkpoint::{Checkpoint, CheckpointCounts, CheckpointError};
pub use connection::Connection;
#[cfg(feature = "checkpoint")]
pub use durable::{DurableBuilder, DurableCounts, DurablePosition, DurableRegistration, Told};
pub use error::{Difference, HandlerError, InformerError, NotSynced, SyncTimeout, Unkept, Unknown, WaitError};
pub use factory::{InformerBuilder, InformerFactory};
pub use handler::{AsyncHandler, Call, Handler};
pub use handler_counts::HandlerCounts;
pub use informer::{CacheId, Informer};
pub use lister::{Index, Lister};
pub use memory::Memory;
pub use readiness::FactoryFreshness;
pub use registration::{HandlerBuilder, Registration};
pub use resource::DynamicType;
pub use scope::Scope;
pub use shared::Undelivered;
pub use steadfast_core::backoff::BackoffSettings;
#[cfg(feature = "breach")]
#[doc(hidden)]
pub use steadfast_core::breach::Breach;
pub use steadfast_core::decode::{DecodeError, Encoding, Kept};
pub use steadfast_core::freshness::Polled;
pub use steadfast_core::record::Identity;
pub use steadfast_core::reflector::{Gravity, Note, ReflectorSettings};
pub use steadfast_core::selector::{SelectorError, parse_selector};
pub use steadfast_core::store::{IndexSnapshot, Lookup, Snapshot};
pub use steadfast_core::{
    Certainty, DeleteReason, Doubt, Entry, Event, FieldPath, Freshness, InvalidKey, KeySet, Lazy, Object, ObjectKey,
    ResourceVersion, Uid,
};
pub use stream::Watch;
pub use uncached::{Change, Changes, List, StreamError, list, list_with, watch_from, watch_from_with};
pub use writes::Writes;
pub use writes::recording::Recording;

/// The events of `K` in `scope` as a stream, by a watch of its own, and nothing else to hold.
///
/// # Errors
///
/// Where a namespace is given for what is in none.
pub fn watch<K>(connection: &Connection, scope: Scope) -> Result<Watch<K>, InformerError>
where
    K: Kept,
    DynamicType<K>: Default,
{
    watch_with(connection, &DynamicType::<K>::default(), scope)
}

/// The events of the resource that `kind` describes in `scope` as a stream, by a watch of its own.
///
/// # Errors
///
/// Where a namespace is given for what is in none.
pub fn watch_with<K: Kept>(
    connection: &Connection,
    kind: &DynamicType<K>,
    scope: Scope,
) -> Result<Watch<K>, InformerError> {
    let factory = InformerFactory::new(connection);
    let builder = factory.build_with::<K>(kind, scope);
    builder.check()?;
    Ok(Watch::new(builder.launch()))
}
