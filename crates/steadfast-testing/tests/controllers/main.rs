//! Controllers, their events, and sweeps of faults over their requests.

mod controller;
mod events;
mod sweep;
