//! The transport: requests, limits, health, deadlines, errors, and the end of it all.
//!
//! What is about time runs in virtual time over pipes in memory; what is about sockets and TLS, over TCP.

mod deadlines;
mod draining;
mod errors;
mod health;
mod hostile;
mod limits;
mod patience;
mod reaching;
mod requests;
mod retries;
mod slow;
mod streams;
mod teardown;
mod world;
mod writes;
