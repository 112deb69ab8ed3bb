//! Reflector: scripts, random servers, proofs of freshness, objects without a version.

mod freshness;
mod model;
mod monitor;
mod proofs;
mod relisting;
mod scripts;
mod unversioned;
