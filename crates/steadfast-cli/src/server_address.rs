//! Addresses of a server, and connections to one of them.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::Uri;
use kube::Config;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// Deadline of a name resolution.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(3);

/// Maximum number of addresses of a name.
const MAX_ADDRESSES: usize = 16;

/// Returns host and port of `url`.
pub(crate) fn host_and_port(url: &Uri) -> (String, u16) {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let default = if url.scheme_str() == Some("https") { 443 } else { 80 };
    (host, url.port_u16().unwrap_or(default))
}

/// Returns the addresses of `host`.
///
/// # Errors
///
/// Returns the reason if no address exists, or if the resolution exceeds its deadline.
pub(crate) async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let found = timeout(RESOLVE_DEADLINE, lookup_host((host, port))).await;
    let found = found.map_err(|_| format!("no result within {} s", RESOLVE_DEADLINE.as_secs()))?;
    let mut addresses: Vec<SocketAddr> = found.map_err(|error| error.to_string())?.take(MAX_ADDRESSES).collect();
    addresses.dedup();
    if addresses.is_empty() { Err("the name has no address".to_owned()) } else { Ok(addresses) }
}

/// Returns the URL of `address`, with the scheme and the path of `server`.
pub(crate) fn url_of(address: SocketAddr, server: &Uri) -> Result<Uri, String> {
    let scheme = server.scheme_str().unwrap_or("https");
    format!("{scheme}://{address}{}", server.path()).parse().map_err(|_| "the address is not valid".to_owned())
}

/// Directs `config` to another address of its server. The certificate is still verified for the configured name.
pub(crate) fn direct_to(config: &mut Config, url: Uri) {
    let (name, _) = host_and_port(&config.cluster_url);
    config.tls_server_name.get_or_insert(name);
    config.cluster_url = url;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirected_connection_keeps_certificate_name() {
        let mut config = Config::new("https://api.example.test/clusters/a".parse().expect("a URL"));
        let url = url_of("[fd00::1]:6443".parse().expect("an address"), &config.cluster_url).expect("a URL");
        direct_to(&mut config, url);
        assert_eq!(config.cluster_url, "https://[fd00::1]:6443/clusters/a");
        assert_eq!(config.tls_server_name.as_deref(), Some("api.example.test"));
        assert_eq!(host_and_port(&config.cluster_url), ("fd00::1".to_owned(), 6443));
        direct_to(&mut config, "https://10.0.0.2:6443".parse().expect("a URL"));
        assert_eq!(config.tls_server_name.as_deref(), Some("api.example.test"));
    }
}
