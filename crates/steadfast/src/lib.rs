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
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | [`environment`] | clock, threads, randomness and sockets of the machine, behind one value |
//! | [`transport`] | HTTP/2 and HTTP/1.1 connections, their health checks and their pool |
//! | [`connection`] | access to one API server: connection pool, authentication, `kube::Client` |
//! | `factory` | informers, shared by all callers that request the same resource and scope |
//! | `informer`, `until`, `lister`, `stream`, `readiness` | handles of an informer: reads, waits, event streams |
//! | `writes`, `catching_up` | record of a client's writes, and waits for caches; `milestones` wakes the waits |
//! | `uncached` | lists and watches without a cache, for callers that store the objects themselves |
//! | `driver`, `responses` | I/O of one informer: responses, the reflector of `steadfast-core`, the store |
//! | `checkpoint`, `cache_storage` | caches in a file, for the next run of the process (feature `checkpoint`) |
//! | `durable` | handlers that acknowledge events, with redelivery until then (feature `checkpoint`) |
//! | [`metrics`] | Prometheus metrics of all modules (feature `metrics`) |
//! | `shared`, `runner`, `handler` | the store, the handlers that receive its changes, and one queue for each handler |

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

#[cfg(feature = "checkpoint")]
mod cache_storage;
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
mod handler_filter;
mod handler_options;
mod handler_registry;
mod handler_stats;
mod id_pool;
mod informer;
mod lister;
mod memory;
pub mod metrics;
mod milestones;
mod owner;
mod probes;
mod readiness;
mod registration;
mod resource;
mod responses;
mod runner;
mod scope;
mod shared;
mod stream;
pub mod transport;
mod uncached;
#[doc(hidden)]
pub mod unstable;
mod until;
mod writes;

/// The Kubernetes types of the informers. The program must enable a version feature of this crate, such as `latest`.
pub use k8s_openapi;
/// The Kubernetes client library used in this crate's API. The program must use the same version.
pub use kube;

#[cfg(feature = "checkpoint")]
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointStats};
pub use connection::Connection;
#[cfg(feature = "checkpoint")]
pub use durable::{DurableBuilder, DurableEvent, DurablePosition, DurableRegistration, DurableStats};
pub use error::{
    CheckpointUnsupported, HandlerError, InformerError, NotSynced, SettingMismatch, SyncTimeout, Unknown, WaitError,
};
pub use factory::{InformerBuilder, InformerFactory};
pub use handler::{AsyncHandler, Call, Handler};
pub use handler_stats::HandlerStats;
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
pub use steadfast_core::reflector::{Diagnostic, ReflectorSettings, Severity};
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

/// Returns a stream of the events of `K` in `scope`, from a watch of its own.
///
/// The stream needs no factory and no informer handle.
///
/// # Errors
///
/// Returns an error if `scope` names a namespace and `K` is cluster-scoped.
pub fn watch<K>(connection: &Connection, scope: Scope) -> Result<Watch<K>, InformerError>
where
    K: Kept,
    DynamicType<K>: Default,
{
    watch_with(connection, &DynamicType::<K>::default(), scope)
}

/// Returns a stream of the events of the resource that `kind` describes in `scope`, from a watch of its own.
///
/// # Errors
///
/// Returns an error if `scope` names a namespace and the resource is cluster-scoped.
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
