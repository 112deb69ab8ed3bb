//! Check `endpoints`: compares the versions of all API servers that the address leads to, and reports those that lag.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use steadfast::Connection;
use steadfast::unstable::catalog::ServedResource;
use steadfast::unstable::proxy_name;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::context::CheckContext;
use super::finding::Finding;
use super::history::current_version;
use super::requests::{RequestError, get, get_json};
use super::streamed_lists::NO_OBJECT;
use crate::server_address::{direct_to, resolve, url_of};

/// Name of the check.
pub(super) const CHECK: &str = "endpoints";

/// Maximum time for a TCP connection to an endpoint. Endpoints inside of the cluster are often unreachable.
const REACH_DEADLINE: Duration = Duration::from_millis(700);

/// Maximum wait for an API server to reach a version. The server itself waits for 3 s.
const VERSION_DEADLINE: Duration = Duration::from_secs(5);

/// Maximum number of compared API servers.
const MAX_ENDPOINTS: usize = 9;

const REMEDY: &str = "check this API server and its connection to etcd, and remove it from the load balancer until it \
                      follows; `steadfast watch` reports such a server as stale";

/// Compares the API servers: the addresses of the name, and the endpoints of the service `kubernetes`.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let server = context.connection.server();
    let resource = context.first_resource();
    if proxy_name(&context.config).is_some() {
        return vec![Finding::not_checked(CHECK, server, "the server is behind a proxy")];
    }
    let (host, port) = context.host_and_port();
    let mut addresses = resolve(&host, port).await.unwrap_or_default();
    // The addresses in objects of the cluster receive credentials only if their certificate proves the server.
    if context.is_tls() && !context.config.accept_invalid_certs {
        addresses.extend(published(context).await);
    }
    addresses.sort();
    addresses.dedup();
    addresses.truncate(MAX_ENDPOINTS);
    let reachable = join_all(addresses.iter().map(async |address| is_reachable(*address).await.then_some(*address)));
    let reachable: Vec<SocketAddr> = reachable.await.into_iter().flatten().collect();
    if reachable.len() < 2 {
        let message = format!(
            "{} of {} addresses can be reached from here, nothing to compare",
            reachable.len(),
            addresses.len()
        );
        return vec![Finding::ok(CHECK, server, message)];
    }
    let before = match current_version(context, resource).await {
        Ok(version) => version,
        Err(error) => return vec![Finding::not_checked(CHECK, server, error)],
    };
    join_all(reachable.into_iter().map(|address| compare(context, resource, address, &before))).await
}

/// Returns the endpoints of the service `kubernetes`: the addresses of the API servers.
async fn published(context: &CheckContext) -> Vec<SocketAddr> {
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes&limit=16";
    // Without the permission, only the addresses of the name are compared.
    let slices = get_json(&context.connection, path).await.unwrap_or_default();
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for slice in list(&slices, "items") {
        let ports: Vec<u16> =
            list(&slice, "ports").iter().filter_map(|port| u16::try_from(port["port"].as_u64()?).ok()).collect();
        for endpoint in list(&slice, "endpoints") {
            let addresses = list(&endpoint, "addresses");
            let addresses = addresses.iter().filter_map(|address| address.as_str()?.parse::<IpAddr>().ok());
            found.extend(addresses.flat_map(|address| ports.iter().map(move |port| SocketAddr::new(address, *port))));
        }
    }
    found
}

async fn is_reachable(address: SocketAddr) -> bool {
    matches!(timeout(REACH_DEADLINE, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Requests from the API server at `address` a list that is at least as new as `version`.
async fn compare(context: &CheckContext, resource: &ServedResource, address: SocketAddr, version: &str) -> Finding {
    let connection = match connect(context, address).await {
        Ok(connection) => connection,
        Err(reason) => return Finding::not_checked(CHECK, address, reason),
    };
    let path = format!(
        "{}?fieldSelector=metadata.name%3D{NO_OBJECT}&resourceVersion={version}&resourceVersionMatch=NotOlderThan",
        context.path(resource)
    );
    // A list without a limit comes from the watch cache, which the informers of this API server read.
    let reply = get(&connection, &path, VERSION_DEADLINE).await;
    match reply.and_then(|reply| reply.json()) {
        Ok(list) => {
            let reached = list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
            Finding::ok(CHECK, address, format!("has reached version {version} of {resource} (its version: {reached})"))
        }
        Err(error @ (RequestError::Deadline(_) | RequestError::Status(504, _))) => Finding::failure(
            CHECK,
            address,
            format!("this API server has not reached version {version} of {resource}, which another one has: {error}"),
            "informers that connect to this API server show old data",
            REMEDY,
        ),
        Err(error) => Finding::not_checked(CHECK, address, error),
    }
}

/// Connects to one API server, with the credentials and the certificate name of the configured server.
async fn connect(context: &CheckContext, address: SocketAddr) -> Result<Connection, String> {
    let mut config = context.config.clone();
    let url = url_of(address, &config.cluster_url)?;
    direct_to(&mut config, url);
    super::connect(config).await
}
