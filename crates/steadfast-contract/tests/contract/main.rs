//! Tests of the checker, on traces that keep the contract and traces that violate one clause.

mod c01_to_c03;
mod c04_to_c08;
mod c09_to_c12;
mod model;
mod random;
mod reports;
mod scenario;
