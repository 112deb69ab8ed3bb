//! From a configuration to the way to its server: URL, proxy, TLS.

use std::net::IpAddr;

use http::uri::Scheme;
use kube::client::ConfigExt;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;

use super::proxies::Ambient;
use super::{ConnectError, error};
use crate::transport::{Proxy, Route, Target};

/// The URL of the server, for messages: without credentials.
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

/// Where the server of `config` is.
pub(super) fn target(config: &kube::Config) -> Result<Target, ConnectError> {
    let url = &config.cluster_url;
    let invalid = |detail: &str| ConnectError::Url { url: server(config), detail: detail.to_owned() };
    let host = url.host().ok_or_else(|| invalid("it names no host"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = match url.scheme() {
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        Some(scheme) if *scheme == Scheme::HTTP => 80,
        _ => return Err(invalid("it begins with neither https:// nor http://")),
    };
    Ok(Target { host, port: url.port_u16().unwrap_or(port) })
}

/// Whether answers are asked for compressed: a tenth of the bytes, for up to twice the server's time for an object, and
/// some of ours. To this machine itself bytes cost less than that; and whoever configures a cluster may say no.
pub(super) fn takes_gzip(config: &kube::Config, target: &Target) -> bool {
    let is_here = target.host == "localhost" || target.host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    !config.disable_compression && (!is_here || config.proxy_url.is_some())
}

/// The way to `target`, as `config` and the files and plugins that it names say now. It may block.
pub(super) fn route(config: &kube::Config, target: &Target, prior_knowledge: bool) -> Result<Route, ConnectError> {
    let proxy = Ambient::of_process().choose(config.proxy_url.as_ref(), &target.host, target.port).map(|url| {
        let shown = url.authority().map_or("", |authority| without_credentials(authority.as_str())).to_owned();
        let broken = |detail| ConnectError::Proxy { proxy: shown, server: server(config), detail };
        Proxy::new(url, || proxy_tls(config)).map_err(broken)
    });
    let proxy = proxy.transpose()?;
    if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
        return Ok(Route::plain(prior_knowledge).through(proxy));
    }
    let broken = |detail: String| ConnectError::Tls { server: server(config), detail };
    let tls = tls(config).map_err(broken)?;
    let name = config.tls_server_name.clone().unwrap_or_else(|| target.host.clone());
    let name = ServerName::try_from(name.clone())
        .map_err(|_| broken(format!("{name:?} is no name that a certificate can have")))?;
    Ok(Route::secure(tls, name).through(proxy))
}

/// What is said where there is nothing that TLS could be made with.
const NO_PROVIDER: &str = "no provider of cryptography for TLS: build `steadfast` with its feature `ring` or `aws-lc-rs`, or \
                           install one with `rustls::crypto::CryptoProvider::install_default` before connecting";

fn tls(config: &kube::Config) -> Result<rustls::ClientConfig, String> {
    // The program's own choice counts. Where a program's crates bring two providers, rustls panics unless one is the default.
    if CryptoProvider::get_default().is_none() {
        install_provider();
    }
    if CryptoProvider::get_default().is_none() {
        return Err(NO_PROVIDER.to_owned());
    }
    // Nothing would be trusted, and only the first handshake would say so.
    let nothing = config.root_cert.as_ref().is_some_and(Vec::is_empty);
    if nothing && config.root_cert_file.is_none() && !config.accept_invalid_certs {
        return Err("its certificate-authority holds no certificate".to_owned());
    }
    config.rustls_client_config().map_err(|problem| error::describe(&problem))
}

/// Makes the provider of cryptography that this library was built with the process's default, if it was built with one.
fn install_provider() {
    // An error means that another thread has just set one, which serves as well.
    #[cfg(feature = "aws-lc-rs")]
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// What a proxy is trusted by: the authorities of the server's, and no certificate of ours.
fn proxy_tls(config: &kube::Config) -> Result<rustls::ClientConfig, String> {
    let mut anonymous = config.clone();
    anonymous.auth_info = kube::config::AuthInfo::default();
    tls(&anonymous)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compressed_unless_the_server_is_here_or_the_configuration_says_no() {
        for (url, compressed) in [
            ("https://api.example", true),
            ("https://10.0.0.1:6443", true),
            ("https://127.0.0.1:6443", false),
            ("https://[::1]:6443", false),
            ("https://localhost:6443", false),
        ] {
            let mut config = kube::Config::new(url.parse().expect("a URL"));
            let target = target(&config).expect("it names a host");
            assert_eq!(takes_gzip(&config, &target), compressed, "{url}");
            config.disable_compression = true;
            assert!(!takes_gzip(&config, &target), "{url}");
        }
    }

    #[test]
    fn a_server_is_named_without_credentials() {
        for (url, named) in [
            ("https://admin:hunter2@api.example:6443/base/", "https://api.example:6443/base"),
            ("https://api.example", "https://api.example"),
        ] {
            assert_eq!(server(&kube::Config::new(url.parse().expect("a URL"))), named);
        }
        let ftp = kube::Config::new("ftp://admin:hunter2@api.example".parse().expect("a URL"));
        let error = target(&ftp).expect_err("no scheme of HTTP").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
