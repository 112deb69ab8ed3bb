//! Connections that heal, in virtual time: watches that move, goodbyes by the hundred, crowds, and a restart under five
//! hundred informers. Each scenario can be told with a library that is broken on purpose, which must fail it (`broken`).

mod broken;
mod crowd;
mod hanging;
mod lagging;
mod moving;
mod restart;
mod silence;
mod storm;
mod unread;
mod world;
