//! The HTTP API: from a request to its answer.

mod answer;
mod body;
mod corruption;
mod deletions;
mod discovery;
mod duplicates;
pub(crate) mod encode;
mod list;
mod negotiate;
mod openapi;
mod options;
mod protobuf;
mod read;
mod rendering;
mod reviews;
mod route;
mod scale;
mod serve;
mod streaming;
mod tables;
mod token;
mod watch;
mod write;

pub(crate) use serve::serve;
pub(crate) use streaming::Sessions;
