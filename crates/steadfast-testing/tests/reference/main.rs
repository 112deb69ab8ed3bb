//! What only a real kube-apiserver, or its flags, can show, judged by the checker with a history from the etcd itself. What any
//! server can be made to show is told by the suite.
//!
//! Where the reference is not built this is skipped, and says so; see `docs/development/testing.md`.

mod aggregated;
mod compressed;
mod differences;
mod events;
mod ground;
mod hardships;
mod limits;
mod objects;
mod protobuf;
mod unread;
