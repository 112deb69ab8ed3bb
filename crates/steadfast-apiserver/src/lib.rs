//! Embedded Kubernetes API server for tests, with one history, several replicas, real HTTP and injected faults.
//!
//! ```
//! use serde_json::json;
//! use steadfast_apiserver::ApiServer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::start().await?;
//! server.create(&json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"},
//! }))?;
//! println!("URL for clients: {}, kubeconfig:\n{}", server.url(0), server.kubeconfig());
//!
//! server.faults().cut();
//! server.delete_named("configmaps", "default", "a")?;
//! server.compact();
//! server.faults().expire_events();
//! server.faults().heal();
//!
//! // The actual changes, to check the client against.
//! assert_eq!(server.history().changes_of("", "configmaps").count(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Access
//! Over sockets, each replica listens on a port of 127.0.0.1, with or without TLS, for HTTP/1.1 and HTTP/2. In memory
//! ([`ApiServerBuilder::in_memory`]), [`ApiServer::connect`] and [`Dialer`] open pipes. All timers use tokio's clock.
//! Under `tokio::time::pause` an hour therefore passes immediately, and runs with the same seed are equal. A server
//! runs on the runtime that started it and ends when its handle is dropped.
//!
//! # Writes that bypass the API
//! [`ApiServer::create`], [`replace`](ApiServer::replace), [`merge_patch`](ApiServer::merge_patch) and
//! [`delete`](ApiServer::delete) change the history immediately, independent of faults of the network.
//!
//! # Checks of a client
//! [`ApiServer::history`] contains every change. [`requests`](ApiServer::requests) and
//! [`connections`](ApiServer::connections) contain the client's actions, [`fault_log`](ApiServer::fault_log) contains
//! the injected faults. Their times are relative to the server's start, like [`ApiServer::elapsed`].
//!
//! # Types
//!
//! | task | types |
//! |---|---|
//! | configure and start a server | [`ApiServer`], [`ApiServerBuilder`], [`ResourceDeclaration`], [`StartError`] |
//! | connect in memory or with certificates | [`Dialer`], [`MemoryStream`], [`ClientIdentity`], [`Port`] |
//! | switch faults of replicas | [`Faults`], [`FaultRecord`], [`LinkEnd`] |
//! | replace or corrupt selected responses | [`RequestRule`], [`InjectedResponse`], [`InterceptAction`], [`RequestStage`], [`BodyCorruption`], [`ObjectCorruption`], [`TooLargeVersionForm`] |
//! | check a client against the server | [`History`], [`Change`], [`GroupResource`], [`RequestRecord`], [`RequestCounts`], [`ConnectionRecord`], [`Verb`] |
//! | continue after a restart | [`Snapshot`], [`SnapshotError`] |
//! | report errors like the Kubernetes API | [`Status`] |
//! | encode built-in types | [`protobuf`] |
//! | simulate controllers, a scheduler and nodes | `World` (feature `world`) |
//! | read fields of an object as kubectl does | `JsonPath` (feature `crd`), `KubectlColumns` and `KubectlColumn` (features `crd` and `tables`) |
//!
//! This crate shares no code with the library under test.
//!
//! # Cargo features
//!
//! The default has everything that a test of an informer needs: resources, writes, lists, pages, streamed lists,
//! watches, declared custom resources, both encodings, and faults. A request for a missing feature receives a status
//! that names the feature.
//!
//! | feature | adds | without the feature |
//! |---|---|---|
//! | `apply` | server-side apply and `managedFields` | `415`; objects have no `managedFields` |
//! | `cel` | validation rules of custom resources (`x-kubernetes-validations`); includes `crd` | rules are not evaluated; a definition with rules returns a warning |
//! | `crd` | `CustomResourceDefinition`s: their resources, schemas, defaults, conversion, columns and status | `404`; declared resources ([`ResourceDeclaration`]) accept any fields |
//! | `exec` | `exec`, `attach` and `portforward` of pods, watches over WebSocket | `501` |
//! | `openapi` | `OpenAPI` documents, for `kubectl explain` and `kubectl apply` | the list of documents is empty |
//! | `tables` | tables, for `kubectl get` | lists of objects |
//! | `world` | simulated controllers, scheduler and nodes (`World`): deployments get pods, and pods become ready | objects have no controllers |
//! | `yaml` | server-side apply of YAML; includes `apply` | JSON only |
//! | `full` | all of them | |
//!
//! # Guides
//!
//! - [Embedded server](https://github.com/steadfast-rs/steadfast/blob/main/docs/embedded-server.md): behaviour, and differences from a real API server
//! - [Testing](https://github.com/steadfast-rs/steadfast/blob/main/docs/testing.md) of your own informers and controllers

#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, reason = "parts that only serve a feature which is not enabled stay, so that few places differ")
)]

/// Implements `Debug` of errors as their message: if `main` returns an error, Rust prints its `Debug` output.
macro_rules! debug_as_message {
    ($($error:ty),+ $(,)?) => {$(
        impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

#[cfg(feature = "apply")]
mod apply;
mod backend;
mod builder;
mod clock;
mod cluster;
mod conditions;
mod connections;
mod direct;
mod documents;
mod encode;
mod error;
mod fault_handle;
mod faults;
mod field_violation;
mod go;
mod group_resource;
mod http;
mod int_or_percent;
mod issued_tokens;
#[cfg(feature = "crd")]
mod jsonpath;
mod kubeconfig;
mod merging;
mod metadata;
mod namespaces;
mod naming;
mod net;
#[cfg(not(feature = "apply"))]
mod no_apply;
pub mod protobuf;
mod random;
mod records;
mod resources;
#[cfg(feature = "crd")]
mod schema;
mod selector;
mod server;
mod signal;
mod snapshot;
mod status;
mod storage;
mod streams;
mod types;
#[cfg(feature = "world")]
mod world;
mod write_scope;

#[cfg(not(feature = "apply"))]
use no_apply as apply;

pub use builder::ApiServerBuilder;
pub use connections::{Dialer, MemoryStream};
pub use error::StartError;
pub use fault_handle::Faults;
pub use faults::{
    BodyCorruption, FaultRecord, InjectedResponse, InterceptAction, ObjectCorruption, RequestRule, RequestStage,
    TooLargeVersionForm,
};
pub use group_resource::GroupResource;
#[cfg(all(feature = "crd", feature = "tables"))]
pub use http::{KubectlColumn, KubectlColumns};
#[cfg(feature = "crd")]
pub use jsonpath::JsonPath;
pub use net::{ClientIdentity, LinkEnd, Port};
pub use records::{RequestCounts, RequestRecord, Verb};
pub use resources::ResourceDeclaration;
pub use server::{ApiServer, ConnectionRecord};
pub use snapshot::{Snapshot, SnapshotError};
pub use status::Status;
pub use storage::{Change, History};
#[cfg(feature = "world")]
pub use world::World;
