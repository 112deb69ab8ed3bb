//! The program on a real kube-apiserver.
//!
//! If the reference is not built, the tests report this and are skipped; see `docs/development/testing.md`.

#[path = "../../src/changes/apply.rs"]
mod apply;
mod audit;
mod changes;
mod custom_kinds;
mod doctor;
mod misbehaving_proxy;
mod transitions;
mod watch;
