//! Reactor over a current-thread runtime of tokio.

use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

use crate::reactor::{Reactor, ReactorHandle};

/// Runtime of tokio with I/O and timers, which any thread can drive.
#[derive(Debug)]
pub struct TokioReactor {
    runtime: Runtime,
    interrupt: Arc<Notify>,
}

/// Handle of a [`TokioReactor`].
#[derive(Debug)]
pub struct TokioHandle {
    runtime: Handle,
    interrupt: Arc<Notify>,
}

impl TokioReactor {
    /// Creates a runtime without threads.
    ///
    /// # Errors
    ///
    /// Returns an error if the operating system cannot create the file descriptors of the runtime.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { runtime, interrupt: Arc::default() })
    }
}

impl TokioHandle {
    /// Returns the handle of tokio, to spawn tasks that must not block.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Reactor for TokioReactor {
    type Handle = TokioHandle;

    fn handle(&self) -> TokioHandle {
        TokioHandle { runtime: self.runtime.handle().clone(), interrupt: self.interrupt.clone() }
    }

    fn serve_until_interrupted(&self) {
        self.runtime.block_on(self.interrupt.notified());
    }

    fn serve_ready(&self) {
        self.runtime.block_on(tokio::task::yield_now());
    }

    fn shut_down(self) {
        // Waiting for threads that resolve names could take long.
        self.runtime.shutdown_background();
    }
}

impl ReactorHandle for TokioHandle {
    fn interrupt(&self) {
        self.interrupt.notify_one();
    }

    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T {
        let _current = self.runtime.enter();
        poll()
    }
}
