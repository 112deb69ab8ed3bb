//! Source of I/O events and timers that one thread at a time drives.

/// Runtime of sockets and timers.
///
/// Dropping a reactor is not enough to end it: see [`shut_down`](Self::shut_down).
pub trait Reactor: Send + Sync + Sized + 'static {
    /// Handle for threads that do not drive the reactor.
    type Handle: ReactorHandle;

    /// Returns a handle of this reactor.
    fn handle(&self) -> Self::Handle;

    /// Serves sockets and timers on this thread until [`interrupt`](ReactorHandle::interrupt) is called. Returns
    /// immediately if it was called since the last return.
    fn serve_until_interrupted(&self);

    /// Serves ready sockets and expired timers once, without sleeping.
    fn serve_ready(&self);

    /// Closes all sockets and drops the reactor's tasks. Returns without waiting for other threads.
    fn shut_down(self);
}

/// Access to a reactor from any thread.
pub trait ReactorHandle: Send + Sync + 'static {
    /// Lets the thread inside [`Reactor::serve_until_interrupted`] return, or the next thread that calls it.
    fn interrupt(&self);

    /// Runs `poll` on this thread, with this reactor as the current one of sockets and timers.
    fn enter<T>(&self, poll: impl FnOnce() -> T) -> T;
}
