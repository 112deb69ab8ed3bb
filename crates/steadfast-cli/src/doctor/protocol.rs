//! Check `protocol`: HTTP/2, or HTTP/1.1 with a connection for each watch.

use steadfast::transport::Protocol;

use super::context::CheckContext;
use super::finding::Finding;

/// Name of the check.
pub(super) const CHECK: &str = "protocol";

/// Reports the protocol of the open connections.
pub(super) fn check(context: &CheckContext) -> Vec<Finding> {
    let server = context.connection.server();
    let protocol = context.connection.connections().iter().find_map(|connection| connection.protocol);
    vec![match protocol {
        Some(Protocol::Http2) => Finding::ok(CHECK, server, "HTTP/2: all watches share a connection"),
        // Without TLS no protocol is negotiated, and the check of certificates reports a server on another machine.
        Some(Protocol::Http1) if !context.is_tls() => {
            Finding::ok(CHECK, server, "HTTP/1.1: without TLS, each watch needs its own connection")
        }
        Some(_) => Finding::warning(
            CHECK,
            server,
            "the server negotiates HTTP/1.1 only",
            "each watch needs its own connection, and a dead connection is not detected by pings",
            "let the proxy or load balancer before the API server forward TLS unchanged, or enable HTTP/2 on it",
        ),
        None => Finding::not_checked(CHECK, server, "no connection is open"),
    }]
}
