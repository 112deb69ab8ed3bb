//! Runs every example, so that none of them is wrong one day: `cargo test -p steadfast-examples`.
//!
//! They are programs (`cargo run -p steadfast-examples --bin cache_by_node`), and parts of this one test, which is why their
//! `main` is `pub(crate)`.

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

/// How an example ends.
type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Runs an example, which has two minutes; it takes less than a second where nothing is wrong.
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
