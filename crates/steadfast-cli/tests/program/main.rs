//! The built program, as its users run it.

mod bad_input;
mod endpoint;
#[cfg(unix)]
mod haproxy;
mod lab;
#[cfg(unix)]
mod mirrors;
mod notify;
#[cfg(unix)]
mod restarts;
mod run;
mod secrets;
mod serve;
mod watch;
