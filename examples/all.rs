//! Runs every example, so that a change that breaks one is detected: `cargo test -p steadfast-examples`.
//!
//! Each example is a program (`cargo run -p steadfast-examples --bin cache_by_node`) and a part of this test. Therefore
//! its `main` is `pub(crate)`.

#![cfg(test)]

mod cache_by_node;
mod custom_resource;
mod from_kube_runtime;
#[path = "operator/main.rs"]
mod operator;
#[path = "pool/main.rs"]
mod pool;
mod readyz;
mod test_with_a_cut;
mod two_clusters;

use std::sync::mpsc;
use std::time::Duration;

/// Result of an example.
type ExampleResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Runs an example with a timeout of two minutes. It normally takes less than a second.
fn run(example: fn() -> ExampleResult) -> ExampleResult {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(example()));
    ended.recv_timeout(Duration::from_secs(120))?
}

#[test]
fn cache_by_node() -> ExampleResult {
    run(cache_by_node::main)
}

#[test]
fn readyz() -> ExampleResult {
    run(readyz::main)
}

#[test]
fn custom_resource() -> ExampleResult {
    run(custom_resource::main)
}

#[test]
fn two_clusters() -> ExampleResult {
    run(two_clusters::main)
}

#[test]
fn test_with_a_cut() -> ExampleResult {
    run(test_with_a_cut::main)
}

#[test]
fn from_kube_runtime() -> ExampleResult {
    run(from_kube_runtime::main)
}

#[test]
fn operator() -> ExampleResult {
    run(operator::main)
}

#[test]
fn pool() -> ExampleResult {
    run(pool::main)
}
