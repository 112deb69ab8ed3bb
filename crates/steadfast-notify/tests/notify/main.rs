//! What the crate promises, from outside.

mod configuration;
mod delivery;
#[cfg(unix)]
mod exec;
mod folder;
mod mirrors;
mod outbox;
mod rules;
mod schema;
mod webhook;
