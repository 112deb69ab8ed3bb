//! An embedded Kubernetes API server for tests: one history, several replicas, real HTTP, faults on demand.
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
//! println!("a client finds it at {}, or by this kubeconfig:\n{}", server.url(0), server.kubeconfig());
//!
//! server.faults().cut();
//! server.delete_named("configmaps", "default", "a")?;
//! server.compact();
//! server.faults().expire_events();
//! server.faults().heal();
//!
//! // What really happened, to judge a client by.
//! assert_eq!(server.history().of("", "configmaps").count(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # Reaching it
//! Over sockets, each replica listens on a port of 127.0.0.1, with or without TLS, for HTTP/1.1 and HTTP/2. In memory
//! ([`ApiServerBuilder::in_memory`]), [`ApiServer::connect`] and [`Dialer`] open pipes. Everything that takes time takes
//! it from tokio's clock, so that under `tokio::time::pause` an hour passes in no time, and the same seed makes the same
//! run. A server runs on the runtime that started it and ends when its handle is dropped.
//!
//! # Writing past the API
//! [`ApiServer::create`], [`replace`](ApiServer::replace), [`merge_patch`](ApiServer::merge_patch) and
//! [`delete`](ApiServer::delete) change the history at once, whatever fault lies on the network.
//!
//! # Judging a client
//! [`ApiServer::history`] has every change there ever was, [`requests`](ApiServer::requests) and
//! [`connections`](ApiServer::connections) what the client did, [`fault_log`](ApiServer::fault_log) what was done to it.
//! All are dated by [`ApiServer::elapsed`].
//!
//! # The rooms
//! | module | holds |
//! |---|---|
//! | `storage` | the history: log, versions of every object, caches that follow it, the rules of writes |
//! | `resources` | the table of built-in kinds, declared resources, those that definitions define |
//! | `schema` | what is said of the fields of custom resources: pruning, defaults, validation |
//! | `jsonpath` | paths of printer columns, in the dialect of client-go |
//! | `types` | the fields of the built-in types |
//! | `protobuf` | objects of those types in protobuf |
//! | `apply` | server-side apply: who manages which field |
//! | `selector` | label and field selectors |
//! | `http` | from request to answer: routes, options, lists, watches, writes, discovery, the forms of objects |
//! | `net` | connections: sockets or pipes, TLS, and the link that governs each of them |
//! | `faults` | the conditions of the replicas, the rules for false answers, the handle that switches them |
//! | `records` | requests and their counts |
//! | `documents` | encoded documents, kept by path and tag |
//! | `issued` | tokens of service accounts |
//! | `cluster` | what the replicas share |
//! | `namespaces` | takes away the contents of namespaces that end |
//!
//! Imports go downwards: `http` and `net` know `cluster`, `cluster` knows `storage`, `storage` knows `resources`, `resources` knows `schema`. This
//! crate shares no code with the library it tests.

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

mod apply;
mod builder;
mod clock;
mod cluster;
mod direct;
mod documents;
mod error;
mod faults;
mod http;
mod issued;
mod jsonpath;
mod kubeconfig;
mod namespaces;
mod naming;
mod net;
pub mod protobuf;
mod random;
mod records;
mod resources;
mod schema;
mod selector;
mod server;
mod signal;
mod status;
mod storage;
mod streams;
mod types;

pub use builder::ApiServerBuilder;
pub use error::StartError;
pub use faults::{Answer, Corruption, Fate, FaultRecord, Faults, Moment, RequestRule, Spoiling, TooLarge};
pub use net::{ClientIdentity, Dialer, LinkEnd, MemoryStream, Port};
pub use records::{RequestCounts, RequestRecord, Verb};
pub use resources::{GroupResource, ResourceDeclaration};
pub use server::{ApiServer, ConnectionRecord};
pub use status::Status;
pub use storage::{Change, History};
