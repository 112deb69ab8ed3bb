//! Interface to the machine: time, threads, randomness and sockets.
//!
//! The library accesses the machine only through an [`Environment`]. Production code uses
//! [`ThreadedEnvironment`](crate::environment::threads::ThreadedEnvironment). Tests run the same code on one thread in
//! virtual time, over in-memory sockets.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

mod abort_on_drop;
pub mod local;
mod on_runtime;
mod random;
mod tcp;
pub mod threads;

pub(crate) use abort_on_drop::AbortOnDrop;
pub(crate) use on_runtime::OnRuntime;
pub use steadfast_core::Instant;
pub use steadfast_executor::{BlockingThreads, HelperThreads, HelperWork};

/// Time, threads, randomness and sockets behind one value.
pub trait Environment: Send + Sync + 'static {
    /// Returns the current time of a clock that never goes back.
    ///
    /// The clock must continue while the machine is suspended, if the system has such a clock. Otherwise a cache counts
    /// as fresh after a suspend, although its last proof is old.
    ///
    /// [`ThreadedEnvironment`](threads::ThreadedEnvironment) uses `CLOCK_BOOTTIME` on Linux and Android. On other
    /// systems it uses [`std::time::Instant`], whose clock may stop during a suspend.
    fn now(&self) -> Instant;

    /// Returns the current time of the clock for permissions that expire, such as leases. Defaults to
    /// [`now`](Self::now).
    ///
    /// The zero of this clock may differ from that of `now`, and timers do not use this clock. A caller whose
    /// permission to act expires must check this clock immediately before it acts.
    fn boot_time(&self) -> Instant {
        self.now()
    }

    /// Returns a future that completes at `at`, immediately if `at` has passed.
    ///
    /// The future may complete late, for example after a suspend of the machine, but never early.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;

    /// Spawns `task` on the runtime that serves connections. The task must not block its thread.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task;

    /// Spawns `task`, which runs user code. The task can be slow or block, and delays no other task.
    fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task;

    /// Runs `action` immediately on this thread, with this environment's async runtime as the current one.
    fn enter(&self, action: &mut dyn FnMut());

    /// Runs `job` on a thread where blocking delays no other task.
    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>);

    /// Returns the limits of helper threads for CPU-bound work. Defaults to none.
    fn helper_threads(&self) -> HelperThreads {
        HelperThreads::default()
    }

    /// Calls `work` repeatedly on a helper thread until it returns false. Drops `work` if no helper is free.
    ///
    /// There is no guarantee when the helper starts. The caller must process remaining work itself.
    fn offer_work(&self, work: HelperWork) {
        drop(work);
    }

    /// Returns a random number, uniform over `u64`.
    fn random(&self) -> u64;

    /// Resolves `host`, a name or an address without brackets. The preferred address comes first.
    ///
    /// # Errors
    ///
    /// Returns the error of the resolver, without the name.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

    /// Opens a byte stream to one address. The caller applies a timeout.
    ///
    /// # Errors
    ///
    /// Returns the network error, without the address.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>>;

    /// Opens a byte stream as [`dial`](Self::dial) does, for use on the tokio runtime that polls the returned future.
    ///
    /// The default implementation calls `dial`, for streams that belong to no runtime.
    ///
    /// # Errors
    ///
    /// Returns the network error, without the address.
    fn dial_here(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        self.dial(address)
    }
}

/// A shared environment.
pub type SharedEnvironment = Arc<dyn Environment>;

/// Byte stream to a server: TCP, or an in-memory pipe.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns the address of the peer, for messages.
    fn peer(&self) -> String;

    /// Allows or forbids the peer to read slowly, as long as it acknowledges data. If forbidden, a peer that does not
    /// read is treated as vanished, and the connection fails.
    ///
    /// The default implementation does nothing, for streams without such a timeout.
    fn allow_slow_peer(&self, allowed: bool) {
        let _ = allowed;
    }

    /// Limits how late written data can reach the peer, independent of the state of this process. Unsent data is
    /// discarded when the socket is dropped.
    ///
    /// The default implementation does nothing, for streams that deliver data immediately.
    fn limit_lateness(&self, limit: Duration) {
        let _ = limit;
    }
}

/// A spawned task. Dropping the handle detaches the task.
pub struct Task {
    abort: Box<dyn Fn() + Send + Sync>,
}

impl Task {
    /// Creates a task handle that calls `abort` to end the task.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self { abort: Box::new(abort) }
    }

    /// Aborts the task at its next await point. Does nothing if the task has ended.
    pub fn abort(&self) {
        (self.abort)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}
