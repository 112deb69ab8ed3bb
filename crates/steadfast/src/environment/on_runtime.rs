//! Environment whose sockets and tasks belong to a runtime of the program.

use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use steadfast_core::Instant;
use tokio::runtime::Handle;

use super::{Environment, SharedEnvironment, Socket, Task};

/// Environment of a connection on a runtime of the program.
///
/// Clocks, timers, random numbers, name resolution and threads are those of the base environment, so that a deadline
/// does not depend on the runtime's timer.
pub(crate) struct OnRuntime {
    base: SharedEnvironment,
    runtime: Handle,
}

impl OnRuntime {
    /// Creates the environment for connections on `runtime`.
    pub(crate) fn new(base: SharedEnvironment, runtime: Handle) -> Self {
        Self { base, runtime }
    }
}

impl Environment for OnRuntime {
    fn now(&self) -> Instant {
        self.base.now()
    }

    fn boot_time(&self) -> Instant {
        self.base.boot_time()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.base.sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Task {
        let running = self.runtime.spawn(task).abort_handle();
        Task::new(move || running.abort())
    }

    fn spawn_user_task(&self, task: BoxFuture<'static, ()>) -> Task {
        self.spawn(task)
    }

    fn enter(&self, action: &mut dyn FnMut()) {
        let _current = self.runtime.enter();
        action();
    }

    fn run_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        self.base.run_blocking(job);
    }

    fn random(&self) -> u64 {
        self.base.random()
    }

    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        self.base.resolve(host, port)
    }

    fn dial(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        self.base.dial_here(address)
    }

    fn dial_here(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Socket>>> {
        self.base.dial_here(address)
    }
}
