//! The user's code that takes its time, hangs or panics disturbs nobody else (C8): in real time, on threads.

mod handlers;
mod own_code;
