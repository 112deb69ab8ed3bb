//! The program on a real kube-apiserver.
//!
//! If the reference is not built, the tests report this and are skipped; see `docs/development/testing.md`.

mod audit;
mod changes;
mod doctor;
mod misbehaving_proxy;
mod watch;
