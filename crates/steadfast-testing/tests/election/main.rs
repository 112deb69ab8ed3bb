//! Leader election on the embedded server, in virtual time. The tests cover the client of a leader, and random
//! histories with a check of every write. In some histories, a coordinator makes harmful decisions. Further histories
//! prove that the checks detect each missing protection. One test runs three processes on a real API server.

mod coordinated;
mod coordinator;
mod histories;
mod judge;
mod leaders;
mod mishaps;
mod process;
mod program;
mod real;
mod schemes;
mod shares;
mod story;
mod takeovers;
mod way;
