//! What is left of a panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a panic says, where it is text.
pub(crate) fn told(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    // It may be of a type of the user's own, and panic in its turn.
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text.unwrap_or_else(|| "without a message".to_owned())
}
