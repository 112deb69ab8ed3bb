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
//! # Types
//!
//! | task | types |
//! |---|---|
//! | connect to one API server | [`Connection`]; the builder and kubeconfigs are in [`connection`], timeouts in [`transport`] |
//! | create informers | [`InformerFactory`], [`InformerBuilder`], [`Scope`], [`ReflectorSettings`] |
//! | read a cache | [`Informer`], [`Lister`], [`Index`], [`Snapshot`], [`Object`], [`ObjectKey`], [`parse_selector`] |
//! | receive changes | [`Event`], [`HandlerBuilder`], [`Handler`], [`AsyncHandler`], [`Registration`]; as a stream [`watch`] and [`Watch`] |
//! | check freshness | [`Freshness`], [`Doubt`], [`FactoryFreshness`], [`Diagnostic`] |
//! | wait for own writes | [`WriteRecording`], [`Writes`], [`Informer::wait_for`], [`InformerFactory::wait_for_writes`] |
//! | reduce memory | [`Lazy`], [`FieldPath`], [`Memory`] |
//! | list and watch without a cache | [`list`], [`List`], [`watch_from`], [`Changes`], [`WatchEvent`], [`StreamError`] |
//! | keep caches across restarts | `Checkpoint`, and for handlers that acknowledge `DurableBuilder`, `DurableEvent` (feature `checkpoint`) |
//! | handle errors | [`InformerError`], [`HandlerError`], [`SyncTimeout`], [`NotSynced`], [`WaitError`], [`UndecodableObject`], [`DecodeError`] |
//! | export metrics | [`metrics`] (feature `metrics`) |
//! | control clock, threads and sockets | [`environment`]: own threads by default, or the current runtime for tests in virtual time |
//!
//! `informer_with`, `builder_with`, `watch_with`, `list_with` and `watch_from_with` take a [`DynamicType`], for kinds
//! without a Rust type.
//!
//! # Features
//!
//! | feature | default | content |
//! |---|---|---|
//! | `ring` | yes | TLS by `ring` |
//! | `aws-lc-rs` | no | TLS by `aws-lc-rs`, which takes precedence over `ring` |
//! | `metrics` | no | Prometheus metrics |
//! | `checkpoint` | no | caches that survive a restart, and handlers that acknowledge events |
//! | `latest` | no | the newest version of the Kubernetes types |
//!
//! A program selects one version of the Kubernetes types, by `latest` or by a feature of [`k8s_openapi`].
//!
//! # Guides
//!
//! - [Guide](https://github.com/steadfast-rs/steadfast/blob/main/docs/guide.md) for users of client-go and kube-rs
//! - [Contract](https://github.com/steadfast-rs/steadfast/blob/main/docs/contract.md): the guarantees, which a separate
//!   checker verifies
//! - [Operations](https://github.com/steadfast-rs/steadfast/blob/main/docs/operations.md): freshness, metrics, alerts
//! - [Glossary](https://github.com/steadfast-rs/steadfast/blob/main/docs/glossary.md) of the terms that are specific to
//!   this library
//! - [Examples](https://github.com/steadfast-rs/steadfast/tree/main/examples), which need no cluster
//!
//! The crate `steadfast-controller` adds controllers, leader election and an event recorder. The crate
//! `steadfast-testing` runs informers on an embedded API server.

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Debug` of errors as their message. If `main` returns an error, Rust prints its `Debug` output.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

#[cfg_attr(not(feature = "checkpoint"), path = "cache_storage/disabled.rs")]
mod cache_storage;
mod catalog;
#[cfg(feature = "checkpoint")]
mod checkpoint;
pub mod connection;
mod decoded_forms;
mod driver;
#[cfg_attr(not(feature = "checkpoint"), path = "durable/disabled.rs")]
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
mod informer_settings;
mod lister;
mod memory;
pub mod metrics;
mod multi_namespace;
mod owner;
mod probes;
mod readiness;
mod recent_objects;
mod registration;
mod resource;
mod responses;
mod runner;
mod scope;
mod shared;
mod stream;
mod subscription;
pub mod transport;
mod uncached;
#[doc(hidden)]
pub mod unstable;
mod until;
mod version_waits;
mod write_waits;
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
    CheckpointUnsupported, HandlerError, InformerError, NotSynced, SettingMismatch, SyncTimeout, UndecodableObject,
    WaitError,
};
pub use factory::{InformerBuilder, InformerFactory};
pub use handler::{AsyncHandler, Call, Handler};
pub use handler_stats::HandlerStats;
pub use informer::{CacheId, Informer};
pub use lister::{Index, Lister};
pub use memory::Memory;
pub use multi_namespace::{MultiNamespaceIndex, MultiNamespaceInformer, MultiNamespaceLister};
pub use readiness::FactoryFreshness;
pub use registration::{HandlerBuilder, Registration};
pub use resource::DynamicType;
pub use scope::Scope;
pub use shared::Undelivered;
pub use steadfast_core::backoff::BackoffSettings;
pub use steadfast_core::decode::{Cacheable, DecodeError, Encoding};
#[cfg(feature = "fault-injection")]
#[doc(hidden)]
pub use steadfast_core::fault_injection::InjectedFault;
pub use steadfast_core::freshness::Polled;
pub use steadfast_core::record::Identity;
pub use steadfast_core::reflector::{Diagnostic, ReflectorSettings, RelistCause, Severity};
pub use steadfast_core::selector::{SelectorError, parse_selector};
pub use steadfast_core::store::{IndexSnapshot, Lookup, Snapshot};
pub use steadfast_core::{
    Certainty, DeleteReason, Doubt, Entry, Event, FieldPath, Freshness, InvalidKey, KeySet, Lazy, Object, ObjectKey,
    ResourceVersion, Uid,
};
pub use stream::Watch;
pub use uncached::{Changes, List, StreamError, WatchEvent, list, list_with, watch_from, watch_from_with};
pub use writes::Writes;
pub use writes::recording::WriteRecording;

/// Returns a stream of the events of `K` in `scope`, from a watch of its own.
///
/// The stream needs no factory and no informer handle.
///
/// # Errors
///
/// Returns an error if `scope` names a namespace and `K` is cluster-scoped.
pub fn watch<K>(connection: &Connection, scope: Scope) -> Result<Watch<K>, InformerError>
where
    K: Cacheable,
    DynamicType<K>: Default,
{
    watch_with(connection, &DynamicType::<K>::default(), scope)
}

/// Returns a stream of the events of the resource that `kind` describes in `scope`, from a watch of its own.
///
/// # Errors
///
/// Returns an error if `scope` names a namespace and the resource is cluster-scoped.
pub fn watch_with<K: Cacheable>(
    connection: &Connection,
    kind: &DynamicType<K>,
    scope: Scope,
) -> Result<Watch<K>, InformerError> {
    let factory = InformerFactory::new(connection);
    let builder = factory.builder_with::<K>(kind, scope);
    builder.check()?;
    Ok(Watch::new(builder.launch()))
}
