//! HTTP API: from a request to its response.
//!
//! | modules | content |
//! |---|---|
//! | `serve` | processing of every request: its user, its target, and the faults that apply to it |
//! | `discovery`, `openapi`, `reviews` | requests without an object |
//! | `streaming` | requests that switch to WebSocket |
//! | `write`, `scale` | writes |
//! | `subresources` | evictions, bindings and logs of pods, tokens of service accounts |
//! | `list`, `watch`, `read` | reads |
//! | `route`, `target`, `options`, `token`, `payload` | parsed parts of a request |
//! | `exchange`, `answer`, `body`, `corruption` | a request in progress, and its response |
//! | `rendering`, `tables`, `negotiate`, `encode` | the forms of objects |
//!
//! Imports point downwards.

mod answer;
mod body;
mod corruption;
mod counters;
mod discovery;
pub(crate) mod encode;
mod exchange;
mod list;
mod negotiate;
mod openapi;
mod options;
mod payload;
mod read;
mod rendering;
mod reviews;
mod route;
mod scale;
mod serve;
mod streaming;
mod subresources;
mod tables;
mod target;
mod token;
mod watch;
mod write;

pub(crate) use serve::serve;
pub(crate) use streaming::Sessions;
