//! Route to the server of a configuration: URL, proxy, TLS.

use std::net::IpAddr;
use std::sync::Arc;

use http::uri::Scheme;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use super::plugin::PluginCredentials;
use super::proxies::ProxyEnvironment;
use super::{ConnectError, identity, tls};
use crate::transport::{HostPort, Proxy, Route};

/// Returns the URL of the server, for messages, without credentials.
pub(super) fn server(config: &kube::Config) -> String {
    let url = config.cluster_url.to_string();
    let shown = match config.cluster_url.authority().map(http::uri::Authority::as_str) {
        Some(authority) => url.replacen(authority, without_credentials(authority), 1),
        None => url,
    };
    shown.trim_end_matches('/').to_owned()
}

fn without_credentials(authority: &str) -> &str {
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

/// Returns the host and port of the server of `config`.
pub(super) fn target(config: &kube::Config) -> Result<HostPort, ConnectError> {
    let url = &config.cluster_url;
    let invalid = |detail: &str| ConnectError::Url { url: server(config), detail: detail.to_owned() };
    let host = url.host().ok_or_else(|| invalid("the URL has no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        Some(scheme) if *scheme == Scheme::HTTP => 80,
        _ => return Err(invalid("the URL does not start with https:// or http://")),
    };
    Ok(HostPort { host, port: url.port_u16().unwrap_or(port) })
}

/// Returns true if requests accept gzip.
///
/// Compression saves nine tenths of the bytes, but can double the server's time for an object. On loopback, bytes cost
/// less than that time. The configuration can disable compression.
pub(super) fn takes_gzip(config: &kube::Config, target: &HostPort) -> bool {
    let is_here = target.host == "localhost" || target.host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    !config.disable_compression && (!is_here || config.proxy_url.is_some())
}

/// Returns the route to `target`, as `config` and its files currently specify. Reads files, and so may block.
///
/// The client certificate is the user's own, or else that of `plugin`.
pub(super) fn route(
    config: &kube::Config,
    target: &HostPort,
    prior_knowledge: bool,
    plugin: Option<&PluginCredentials>,
) -> Result<Route, ConnectError> {
    let proxy =
        ProxyEnvironment::of_process().choose(config.proxy_url.as_ref(), &target.host, target.port).map(|url| {
            let shown = url.authority().map_or("", |authority| without_credentials(authority.as_str())).to_owned();
            let broken = |detail| ConnectError::Proxy { proxy: shown, server: server(config), detail };
            // The proxy's certificate is verified with the authorities of the server. The proxy receives no client
            // certificate.
            Proxy::new(url, || tls::client_config(config, None)).map_err(broken)
        });
    let proxy = proxy.transpose()?;
    if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        return Ok(Route::plain(prior_knowledge).through(proxy));
    }
    let broken = |detail: String| ConnectError::Tls { server: server(config), detail };
    let tls = certificate(config, plugin).and_then(|certificate| tls::client_config(config, certificate));
    let tls = tls.map_err(broken)?;
    let name = config.tls_server_name.clone().unwrap_or_else(|| target.host.clone());
    let name = ServerName::try_from(name.clone())
        .map_err(|_| broken(format!("{name:?} is not a valid name in a certificate")))?;
    Ok(Route::secure(tls, name).through(proxy))
}

/// Returns the proxy through which requests to the server of `config` pass, without credentials.
pub(crate) fn proxy_name(config: &kube::Config) -> Option<String> {
    let target = target(config).ok()?;
    let proxy = ProxyEnvironment::of_process().choose(config.proxy_url.as_ref(), &target.host, target.port)?.clone();
    let scheme = proxy.scheme_str().unwrap_or("http");
    Some(format!("{scheme}://{}", without_credentials(proxy.authority()?.as_str())))
}

fn certificate(config: &kube::Config, plugin: Option<&PluginCredentials>) -> Result<Option<Arc<CertifiedKey>>, String> {
    let own = identity::of_user(&config.auth_info, &*tls::provider()?)?;
    // As in client-go, a certificate of the kubeconfig takes precedence over that of the plugin.
    Ok(own.or_else(|| plugin?.certificate.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_off_for_loopback_and_disable_compression() {
        for (url, compressed) in [
            ("https://api.example", true),
            ("https://10.0.0.1:6443", true),
            ("https://127.0.0.1:6443", false),
            ("https://[::1]:6443", false),
            ("https://localhost:6443", false),
        ] {
            let mut config = kube::Config::new(url.parse().expect("a URL"));
            let target = target(&config).expect("a URL with a host");
            assert_eq!(takes_gzip(&config, &target), compressed, "{url}");
            config.disable_compression = true;
            assert!(!takes_gzip(&config, &target), "{url}");
        }
    }

    #[test]
    fn proxy_name_contains_no_credentials() {
        let mut config = kube::Config::new("https://api.example".parse().expect("a URL"));
        config.proxy_url = Some("http://admin:hunter2@proxy.example:3128".parse().expect("a URL"));
        assert_eq!(proxy_name(&config).as_deref(), Some("http://proxy.example:3128"));
    }

    #[test]
    fn server_name_contains_no_credentials() {
        for (url, named) in [
            ("https://admin:hunter2@api.example:6443/base/", "https://api.example:6443/base"),
            ("https://api.example", "https://api.example"),
        ] {
            assert_eq!(server(&kube::Config::new(url.parse().expect("a URL"))), named);
        }
        let ftp = kube::Config::new("ftp://admin:hunter2@api.example".parse().expect("a URL"));
        let error = target(&ftp).expect_err("not a scheme of HTTP").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
