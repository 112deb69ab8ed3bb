//! Requests without objects.

use crate::differential::generate::Plot;
use crate::differential::script::Step;

/// Adds requests for discovery and for the state of the server.
pub fn discovery(plot: &mut Plot) {
    let (option, path) = plot.chance.pick(&[
        ("group", "/apis/differential.steadfast.dev"),
        ("resources", "/apis/differential.steadfast.dev/v1"),
        ("group", "/apis/coordination.k8s.io"),
        ("resources", "/apis/coordination.k8s.io/v1"),
        ("resources", "/apis/coordination.k8s.io/v1/"),
        ("versions", "/api"),
        ("health", "/healthz"),
        ("health", "/readyz"),
        ("health", "/livez"),
    ]);
    plot.push(Step::new("discovery", "GET", path.to_owned()).with(option));
}
