//! The HTTP API: from a request to its answer.
//!
//! | modules | what they are about |
//! |---|---|
//! | `serve` | the way of every request: who it is from, what it is for, which fault has its way with it |
//! | `discovery`, `openapi`, `reviews` | what is answered without an object |
//! | `streaming` | what goes on as WebSocket |
//! | `write`, `scale` | writes |
//! | `subresources` | evictions, bindings and logs of pods, tokens of service accounts |
//! | `list`, `watch`, `read` | reads |
//! | `route`, `target`, `options`, `token`, `payload` | what a request says |
//! | `exchange`, `answer`, `body`, `corruption` | a request under way, and its answer |
//! | `rendering`, `tables`, `negotiate`, `encode` | the forms of objects |
//!
//! Imports go downwards.

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
