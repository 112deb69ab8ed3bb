//! Caches that survive a kill of their program: the state with which the next run starts, and its requests to the
//! server.
//!
//! A kill is simulated by a copy of the file for the next run. Later actions of the old run have no effect.

mod durable;
mod durable_histories;
mod files;
mod full;
mod histories;
mod judge;
mod killed;
mod life;
mod refusals;
mod restarts;
mod server;
mod victim;
