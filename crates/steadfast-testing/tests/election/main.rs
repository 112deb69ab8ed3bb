//! Leader election on the embedded server, in virtual time: what a leader's client does, random histories whose every write is
//! judged, also where a coordinator says who leads that judges badly, and what those find where a part of it is missing. And three
//! processes on a real API server.

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
