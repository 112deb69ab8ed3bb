//! Where time, threads, randomness and sockets come from.
//!
//! Everything in this library that would touch the machine asks an [`Environment`]. Production code runs
//! on [`Threads`](crate::environment::threads::Threads); tests run the same code on one thread in virtual
//! time, over sockets in memory.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

mod blocking;
mod helpers;
pub mod local;
mod random;
mod relay;
mod tcp;
pub mod threads;

pub use blocking::BlockingThreads;
pub use helpers::{Help, Helpers};
pub use steadfast_core::Instant;

/// Time, threads, randomness and sockets, as one value.
pub trait Environment: Send + Sync + 'static {
    /// The present moment on this environment's monotonic clock.
    fn now(&self) -> Instant;

    /// The present moment on a clock that goes on while the machine is suspended, where there is one; else [`now`](Self::now).
    ///
    /// Its zero is another one than that of `now`, and timers do not follow it. Whoever may act until some moment asks it when
    /// acting.
    fn boot_time(&self) -> Instant {
        self.now()
    }

    /// A future that is ready at `at`, at once if that has passed.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;

    /// Runs `task` where connections are served; it must not hold up its thread.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task;

    /// Runs `task`, within which code of the user's runs: it may take its time or block, and delays nobody else.
    fn spawn_foreign(&self, task: BoxFuture<'static, ()>) -> Task;

    /// Runs `action` at once, on this thread, with the async runtime of this environment as the current one.
    fn enter(&self, action: &mut dyn FnMut());

    /// Runs `job`, which may block, on a thread of its own choosing where it delays nobody.
    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>);

    /// Who helps where much work waits that needs nothing but a processor; nobody, unless the environment says otherwise.
    fn helpers(&self) -> Helpers {
        Helpers::default()
    }

    /// Has one of the helpers call `help` until it answers that nothing is left to do, or drops it where none is free.
    ///
    /// It is not asked to hurry: whoever asks does the work itself that nobody has come to.
    fn help(&self, help: Help) {
        drop(help);
    }

    /// A random number, uniform over all of `u64`.
    fn random(&self) -> u64;

    /// The addresses of `host`, a name or an address without brackets, the one to prefer first.
    ///
    /// # Errors
    ///
    /// What the resolver said, without the name.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

    /// Opens a byte stream to one address; whoever asks sets the deadline.
    ///
    /// # Errors
    ///
    /// What the network said, without the address.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>>;
}

/// An environment shared by everything that runs in it.
pub type SharedEnvironment = Arc<dyn Environment>;

/// A byte stream to a server: TCP, or a pipe in memory.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// The address at the other end, for messages.
    fn peer(&self) -> String;

    /// From now on the peer may take its time to read what is written, for as long as it acknowledges; or may not, and is
    /// given up as one that has vanished.
    ///
    /// Nothing happens where nobody would give it up.
    fn allow_slow_peer(&self, allowed: bool) {
        let _ = allowed;
    }

    /// From now on nothing that is written reaches the peer more than `limit` later, whatever becomes of this program, and
    /// nothing that lies here unsent does once this is dropped.
    ///
    /// Nothing happens where what is written is there at once.
    fn limit_lateness(&self, limit: Duration) {
        let _ = limit;
    }
}

/// A task that was spawned; dropping this lets it go on.
pub struct Task {
    abort: Box<dyn Fn() + Send + Sync>,
}

impl Task {
    /// A task that `abort` ends.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self { abort: Box::new(abort) }
    }

    /// Ends the task at its next await; nothing happens if it has ended.
    pub fn abort(&self) {
        (self.abort)();
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}
