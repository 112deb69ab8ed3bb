//! Caches that survive a kill of their program: the state with which the next run starts, and its requests to the
//! server.
//!
//! A kill is simulated by a copy of the checkpoint file. The next run uses the copy, so later actions of the old run
//! have no effect on it.

mod controllers;
mod delivery_check;
mod durable;
mod durable_histories;
mod files;
mod full_disk;
mod histories;
mod killed;
mod killed_process;
mod position;
mod program_run;
mod rejections;
mod restarts;
mod server;
