//! Leader election on the embedded server, in virtual time. The tests cover the client of a leader, and random
//! histories with a check of every write. In some histories, a coordinator makes harmful decisions. Further histories
//! prove that the checks detect each missing protection. One test runs three processes on a real API server.

mod coordinated;
mod coordinator;
mod election_scheme;
mod faults;
mod harmful_decisions;
mod histories;
mod leaders;
mod process;
mod processes;
mod program;
mod random_history;
mod sharding;
mod stops;
mod takeovers;
mod write_check;
