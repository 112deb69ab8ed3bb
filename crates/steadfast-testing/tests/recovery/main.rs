//! Recovery from faults within the bounds of the contract. For each bound, a library with an injected fault must fail.

mod bounds;
mod connections;
mod fallbacks;
mod freshness;
mod injected_faults;
mod restart;
