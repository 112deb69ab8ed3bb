//! Drops of user code's values.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value that may hold user objects, and catches panics of their `Drop`.
pub fn drop_contained<T>(dropped: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(dropped))).is_err() {
        tracing::error!("dropping an object or a handler panicked");
    }
}
