//! HTTP API: from a request to its response.
//!
//! | modules | content |
//! |---|---|
//! | `serve` | entry point of all requests, and the faults that apply to requests and responses |
//! | `dispatch` | dispatch of requests to their handlers |
//! | `access`, `injected` | rejection of requests, and responses that faults dictate |
//! | `discovery`, `openapi`, `reviews` | requests without an object |
//! | `streaming` | requests that switch to WebSocket |
//! | `write`, `scale` | writes |
//! | `subresources` | evictions, bindings and logs of pods, tokens of service accounts |
//! | `list`, `watch`, `read` | reads |
//! | `context`, `credentials` | the parsed request, without its body |
//! | `route`, `target`, `options`, `token`, `payload` | parsed parts of a request |
//! | `exchange`, `response`, `body`, `corruption` | a request in progress, and its response |
//! | `rendering`, `tables`, `negotiate`, `namespace_versions` | the forms and versions of objects |
//!
//! Modules import only from their own row or from rows below.

mod access;
mod body;
mod context;
mod corruption;
mod credentials;
mod discovery;
mod dispatch;
mod exchange;
mod injected;
mod list;
mod namespace_versions;
mod negotiate;
#[cfg(not(feature = "openapi"))]
mod no_openapi;
#[cfg(not(feature = "exec"))]
mod no_streaming;
#[cfg(not(feature = "tables"))]
mod no_tables;
#[cfg(feature = "openapi")]
mod openapi;
mod options;
mod payload;
mod read;
mod rendering;
mod response;
mod reviews;
mod route;
mod scale;
mod serve;
#[cfg(feature = "exec")]
mod streaming;
mod subresources;
#[cfg(feature = "tables")]
mod tables;
mod target;
mod token;
mod watch;
mod write;

#[cfg(not(feature = "openapi"))]
use no_openapi as openapi;
#[cfg(not(feature = "exec"))]
use no_streaming as streaming;
#[cfg(not(feature = "tables"))]
use no_tables as tables;
pub(crate) use serve::serve;
pub(crate) use streaming::Sessions;
#[cfg(all(feature = "crd", feature = "tables"))]
pub use tables::{KubectlColumn, KubectlColumns};
