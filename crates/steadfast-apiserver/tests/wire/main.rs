//! HTTP interface of the embedded server, as clients see it.

mod discovery;
mod ending;
mod faults;
mod listing;
mod managers;
mod protobuf;
mod replicas;
mod snapshots;
mod support;
mod transport;
mod watching;
mod writing;
