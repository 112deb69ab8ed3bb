//! Tests of the public interface.

mod configuration;
mod constants;
mod dead_letters;
mod delivery;
#[cfg(unix)]
mod exec;
mod folder;
mod mirrors;
mod pauses;
mod per_sink;
mod receiver;
mod rechecks;
mod recipes;
mod redrive;
mod requests;
mod rules;
mod schema;
mod sink_queue;
mod supervision;
mod tenants;
mod webhook;
