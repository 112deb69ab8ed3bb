//! Tests of the public interface.

mod configuration;
mod constants;
mod delivery;
#[cfg(unix)]
mod exec;
mod folder;
mod mirrors;
mod outbox;
mod pauses;
mod per_sink;
mod receiver;
mod rechecks;
mod recipes;
mod requests;
mod rules;
mod schema;
mod supervision;
mod tenants;
mod webhook;
