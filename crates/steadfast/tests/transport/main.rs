//! Transport tests: requests, limits, health checks, deadlines, errors and teardown.
//!
//! Timing tests use virtual time over in-memory pipes. Socket and TLS tests use TCP.

mod busy_retry;
mod deadlines;
mod draining;
mod errors;
mod fixture;
mod health;
mod limits;
mod protocol_violations;
mod reaching;
mod requests;
mod retries;
mod runtimes;
mod slow;
mod streams;
mod teardown;
mod writes;
