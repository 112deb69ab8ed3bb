//! Locks, atomics, threads and the clock of the machine.

use std::{io, thread};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::time::Instant;

/// Starts a detached thread.
///
/// # Errors
///
/// Returns an error if the operating system cannot create the thread.
pub(crate) fn spawn_thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}
