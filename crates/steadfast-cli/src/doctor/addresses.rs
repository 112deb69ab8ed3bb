//! Check `reachability`: resolves the name of the server, and connects to each of its addresses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use steadfast::unstable::proxy_name;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::context::CheckContext;
use super::finding::Finding;
use crate::server_address::resolve;

/// Name of the check.
pub(super) const CHECK: &str = "reachability";

/// Deadline of a connection to one address.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// Duration above which a name resolution or a connection is reported as slow.
const SLOW_THRESHOLD: Duration = Duration::from_secs(1);

/// Checks the name and all addresses of the server.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let (host, port) = context.host_and_port();
    let server = format!("{host}:{port}");
    if let Some(proxy) = proxy_name(&context.config) {
        // The proxy resolves the name, so the addresses that this machine resolves have no effect.
        let message = format!("the proxy {proxy} connects to the server, so its addresses are not visible from here");
        return vec![Finding::ok(CHECK, server, message)];
    }
    let started = Instant::now();
    let addresses = match resolve(&host, port).await {
        Ok(addresses) => addresses,
        Err(reason) => {
            return vec![Finding::failure(
                CHECK,
                server,
                format!("the name {host} cannot be resolved: {reason}"),
                "without an address, no request reaches the server",
                "correct the server's URL in the kubeconfig, or the DNS server of this machine",
            )];
        }
    };
    let mut findings = Vec::new();
    if started.elapsed() > SLOW_THRESHOLD {
        findings.push(Finding::warning(
            CHECK,
            &server,
            format!("resolving the name {host} took {}", duration_text(started.elapsed())),
            "each reconnect waits for the name resolution",
            "check the DNS servers of this machine, for example with `getent hosts`",
        ));
    }
    let results = join_all(addresses.iter().map(|address| dial(*address))).await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    for (address, result) in addresses.iter().zip(results) {
        findings.push(match result {
            Ok(time) if time > SLOW_THRESHOLD => Finding::warning(
                CHECK,
                address,
                format!("a TCP connection took {}", duration_text(time)),
                "each reconnect takes as long, and the cache is stale until then",
                "check the network path to this address: packet loss, overloaded firewalls or load balancers",
            ),
            Ok(time) => Finding::ok(CHECK, address, format!("TCP connection in {}", duration_text(time))),
            Err(reason) if failed == addresses.len() => Finding::failure(
                CHECK,
                address,
                format!("no TCP connection: {reason}"),
                "no request reaches the server",
                "check that the API server runs, and that routes, firewalls and the VPN permit this address and port",
            ),
            Err(reason) => Finding::warning(
                CHECK,
                address,
                format!("no TCP connection: {reason}; other addresses of {host} respond"),
                "a client that tries this address first loses time at each reconnect, or fails",
                "remove this address from DNS, or repair the API server or load balancer behind it",
            ),
        });
    }
    findings
}

async fn dial(address: SocketAddr) -> Result<Duration, String> {
    let started = Instant::now();
    match timeout(CONNECT_DEADLINE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(started.elapsed()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {} s", CONNECT_DEADLINE.as_secs())),
    }
}

fn duration_text(time: Duration) -> String {
    if time < SLOW_THRESHOLD {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}
