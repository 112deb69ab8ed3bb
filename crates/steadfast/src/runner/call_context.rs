//! Detection of code that runs within a call of a handler, so that a wait for its calls does not wait for itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

thread_local! {
    /// Handlers whose calls are running on this thread, innermost last.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Scope guard of a call on this thread.
pub(super) struct CallContext(());

/// Enters a call of `handler` on this thread.
pub(super) fn enter(handler: usize) -> CallContext {
    CALLS.with_borrow_mut(|calls| calls.push(handler));
    CallContext(())
}

impl Drop for CallContext {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(Vec::pop);
    }
}

/// Runs an async call of `handler`. The thread is inside the call only during a poll.
pub(super) async fn run<T>(handler: usize, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    poll_fn(|context| {
        let _inside = enter(handler);
        call.as_mut().poll(context)
    })
    .await
}

/// Returns true if this thread is inside a call of `handler`.
pub(super) fn is_in_call_of(handler: usize) -> bool {
    CALLS.with_borrow(|calls| calls.contains(&handler))
}
