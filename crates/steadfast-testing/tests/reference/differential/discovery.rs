//! Requests without objects.

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::Step;

/// Adds requests for discovery and for the state of the server.
pub fn discovery(builder: &mut ScriptBuilder) {
    let (option, path) = builder.rng.pick(&[
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
    builder.push(Step::new("discovery", "GET", path.to_owned()).label(option));
}
