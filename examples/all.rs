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
type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Runs an example with a timeout of two minutes. It normally takes less than a second.
fn run(example: fn() -> Ended) -> Ended {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || done.send(example()));
    ended.recv_timeout(Duration::from_secs(120))?
}

#[test]
fn cache_by_node() -> Ended {
    run(cache_by_node::main)
}

#[test]
fn readyz() -> Ended {
    run(readyz::main)
}

#[test]
fn custom_resource() -> Ended {
    run(custom_resource::main)
}

#[test]
fn two_clusters() -> Ended {
    run(two_clusters::main)
}

#[test]
fn test_with_a_cut() -> Ended {
    run(test_with_a_cut::main)
}

#[test]
fn from_kube_runtime() -> Ended {
    run(from_kube_runtime::main)
}

#[test]
fn operator() -> Ended {
    run(operator::main)
}

#[test]
fn pool() -> Ended {
    run(pool::main)
}
