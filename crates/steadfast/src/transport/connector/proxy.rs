//! Connections through a proxy with HTTP CONNECT or SOCKS5.

use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::host_port::HostPort;
use super::login::Login;
use super::{http_tunnel, socks};
use crate::transport::socket::Stream;

/// Proxy of a server.
pub(crate) struct Proxy {
    pub(super) target: HostPort,
    scheme: &'static str,
    protocol: ProxyProtocol,
    login: Option<Login>,
}

enum ProxyProtocol {
    Connect,
    ConnectOverTls(TlsConnector, ServerName<'static>),
    Socks5,
}

impl Proxy {
    /// Creates the proxy at `url`. `tls` is called if the proxy itself requires TLS.
    ///
    /// # Errors
    ///
    /// Returns the error in the URL, without its credentials.
    pub(crate) fn new(url: &Uri, tls: impl FnOnce() -> Result<ClientConfig, String>) -> Result<Self, String> {
        let host = url.host().filter(|host| !host.is_empty()).ok_or("the URL has no host")?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (scheme, protocol, port) = match url.scheme_str() {
            // kubectl also treats a proxy without a scheme as HTTP.
            None | Some("http") => ("http", ProxyProtocol::Connect, 80),
            Some("https") => {
                let mut config = tls()?;
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| format!("{host:?} is not a valid name in a certificate"))?;
                ("https", ProxyProtocol::ConnectOverTls(TlsConnector::from(Arc::new(config)), name), 443)
            }
            // Both schemes let the proxy resolve the name, as in kubectl: the name may be known only behind the proxy.
            Some("socks5" | "socks5h") => ("socks5", ProxyProtocol::Socks5, 1080),
            Some(_) => return Err("the URL does not start with http://, https://, socks5:// or socks5h://".to_owned()),
        };
        let login = Login::of(url);
        let too_long = |login: &Login| login.user.len() > 255 || login.password.len() > 255;
        if matches!(protocol, ProxyProtocol::Socks5) && login.as_ref().is_some_and(too_long) {
            return Err("the user or the password is longer than the 255 bytes that SOCKS5 allows".to_owned());
        }
        Ok(Self { target: HostPort { host, port: url.port_u16().unwrap_or(port) }, scheme, protocol, login })
    }

    /// Returns the proxy's name for messages, without credentials.
    pub(super) fn name(&self) -> String {
        format!("{}://{}", self.scheme, self.target.name())
    }

    /// Requests a tunnel to `target` from the proxy at the other end of `stream`.
    ///
    /// # Errors
    ///
    /// Returns the proxy's reason, or the error of the request.
    pub(super) async fn pass(&self, mut stream: Box<dyn Stream>, target: &HostPort) -> Result<Box<dyn Stream>, String> {
        match &self.protocol {
            ProxyProtocol::Connect => http_tunnel::request_tunnel(&mut stream, target, self.login.as_ref()).await?,
            ProxyProtocol::ConnectOverTls(connector, name) => {
                let secured = connector.connect(name.clone(), stream).await;
                stream = Box::new(secured.map_err(|error| format!("TLS with the proxy failed: {error}"))?);
                http_tunnel::request_tunnel(&mut stream, target, self.login.as_ref()).await?;
            }
            ProxyProtocol::Socks5 => socks::request_tunnel(&mut stream, target, self.login.as_ref()).await?,
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Proxy, String> {
        Proxy::new(&url.parse().expect("a URL"), || Err("no TLS in this test".to_owned()))
    }

    #[test]
    fn proxy_urls_are_named_without_credentials() {
        let proxy = parsed("http://us%65r:p%40ss%3Aword@proxy.example").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(proxy.name(), "http://proxy.example:80");
        let login = proxy.login.expect("a login");
        assert_eq!((login.user.as_str(), login.password.as_str()), ("user", "p@ss:word"));
        for (url, name) in [
            ("socks5h://[::1]:9", "socks5://[::1]:9"),
            ("socks5://bastion", "socks5://bastion:1080"),
            ("proxy.example:3128", "http://proxy.example:3128"),
        ] {
            assert_eq!(parsed(url).map(|proxy| proxy.name()), Ok(name.to_owned()));
        }
    }

    #[test]
    fn invalid_proxy_url_error_hides_credentials() {
        let long = format!("socks5://{}:hunter2@bastion", "u".repeat(256));
        for (url, reason) in
            [("ftp://u:hunter2@p", "does not start with"), (long.as_str(), "255"), ("https://p", "no TLS in")]
        {
            let error = parsed(url).map(|_| ()).expect_err("unusable");
            assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
        }
    }
}
