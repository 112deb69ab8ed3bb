//! Caches that survive their program's death: what the next life of it begins with, and what it asks of the server.
//!
//! A program dies by having its file copied, as it is at that moment, for the next life: whatever the old one does after that,
//! nobody sees.

mod durable;
mod files;
mod full;
mod histories;
mod judge;
mod killed;
mod life;
mod refusals;
mod restarts;
mod server;
mod told;
mod victim;
