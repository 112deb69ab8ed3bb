//! Behaviour that only a real kube-apiserver or its flags can show. The checker uses a history from the etcd itself.
//! The tests in `tests/suite` cover behaviour that any server can show.
//!
//! Without the reference, the tests are skipped with a message; see `docs/development/testing.md`.

mod aggregated;
mod builtin_types;
mod compressed;
mod differences;
mod differential;
mod events;
mod informer_isolation;
mod limits;
mod objects;
mod protobuf;
mod protobuf_types;
mod support;
mod unread;
