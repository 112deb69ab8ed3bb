//! Connections that recover, in virtual time: moving watches, repeated GOAWAYs, a thousand watches, and a restart under
//! five hundred informers. The module `broken` runs scenarios with injected faults in the library, and each fault must
//! fail its scenario.

mod broken;
mod fixture;
mod hanging;
mod lagging;
mod many_watches;
mod moving;
mod restart;
mod silence;
mod storm;
mod unread;
