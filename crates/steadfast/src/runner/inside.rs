//! Whether code runs within a call of a handler, so that a wait for the end of its calls does not wait for itself.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

thread_local! {
    /// The calls that this thread is in, by their handlers, the innermost last.
    static CALLS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Lasts as long as this thread is in a call.
pub(super) struct Inside(());

/// This thread enters a call of `handler`.
pub(super) fn enter(handler: usize) -> Inside {
    CALLS.with_borrow_mut(|calls| calls.push(handler));
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        CALLS.with_borrow_mut(Vec::pop);
    }
}

/// Runs a call of `handler` that waits in between: this thread is in it only while it is polled.
pub(super) async fn run<T>(handler: usize, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    poll_fn(|context| {
        let _inside = enter(handler);
        call.as_mut().poll(context)
    })
    .await
}

/// Whether this thread is in a call of `handler`.
pub(super) fn is_in_call_of(handler: usize) -> bool {
    CALLS.with_borrow(|calls| calls.contains(&handler))
}
