//! The built program, as its users run it.

mod bad_input;
mod endpoint;
mod lab;
mod notify;
mod run;
mod secrets;
mod serve;
mod watch;
