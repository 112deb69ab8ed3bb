//! User code that is slow, hangs or panics does not affect other handlers (C8). The tests run in real time, on threads.

mod clients;
mod handlers;
mod user_code;
