//! Selection of the proxy for a server.
//!
//! `proxy-url` of a kubeconfig always applies. `kube` stores the proxy of the environment variable `HTTPS_PROXY` in the
//! same field of its configuration. A configured proxy that equals the variable therefore counts as the variable's. It
//! does not apply to loopback addresses, nor to servers in `NO_PROXY`.

use std::env;
use std::net::IpAddr;

use http::Uri;

/// Proxy variables of the process environment.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyEnvironment {
    proxies: Vec<String>,
    no_proxy: String,
}

impl ProxyEnvironment {
    /// Reads the variables of this process.
    pub(super) fn of_process() -> Self {
        let proxies = ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(|name| env::var(name).ok()).collect();
        Self { proxies, no_proxy: Self::no_proxy(|name| env::var(name).ok()) }
    }

    /// Returns the first variable that is not empty, as Go and therefore kubectl do.
    fn no_proxy(variable: impl Fn(&str) -> Option<String>) -> String {
        let mut values = ["NO_PROXY", "no_proxy"].into_iter().filter_map(variable);
        values.find(|value| !value.is_empty()).unwrap_or_default()
    }

    /// Returns the `configured` proxy if it applies to `host` and `port`.
    pub(super) fn choose<'a>(&self, configured: Option<&'a Uri>, host: &str, port: u16) -> Option<&'a Uri> {
        let proxy = configured?;
        let is_from_environment = self
            .proxies
            .iter()
            .any(|proxy_variable| proxy_variable.parse::<Uri>().is_ok_and(|variable| variable == *proxy));
        (!is_from_environment || !self.is_exempt(host, port)).then_some(proxy)
    }

    fn is_exempt(&self, host: &str, port: u16) -> bool {
        // A trailing dot marks a fully qualified name, and names compare without case (RFC 4343).
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let address = host.parse::<IpAddr>().ok();
        let local = host == "localhost" || address.is_some_and(|address| address.is_loopback());
        local || self.no_proxy.split(',').any(|entry| matches(entry.trim(), &host, address, port))
    }
}

/// Returns true if an entry of `NO_PROXY` matches the server: `*`, a domain, an address, or a network.
fn matches(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, length)) = entry.split_once('/') {
        let network = network.parse::<IpAddr>().ok().zip(length.parse::<u32>().ok());
        return network
            .zip(address)
            .is_some_and(|((network, length), address)| network_contains(network, length, address));
    }
    if let Ok(entry_address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address == Some(entry_address);
    }
    let (name, entry_port) = match entry.rsplit_once(':') {
        Some((name, digits)) => (name, digits.parse::<u16>().ok()),
        None => (entry, Some(port)),
    };
    if entry_port != Some(port) {
        return false;
    }
    // As in Go: a leading dot or `*.` matches subdomains only, a plain name also the host itself.
    let domain = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    let (name, only_subdomains) = match domain.strip_prefix('.') {
        Some(name) => (name.to_ascii_lowercase(), true),
        None => (domain.to_ascii_lowercase(), false),
    };
    if let Ok(entry_address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        return address == Some(entry_address);
    }
    !name.is_empty()
        && host
            .strip_suffix(&name)
            .is_some_and(|rest| if rest.is_empty() { !only_subdomains } else { rest.ends_with('.') })
}

fn network_contains(network: IpAddr, length: u32, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) if length <= 32 => {
            let differing = network.to_bits() ^ address.to_bits();
            // A prefix of length 0 would shift by all 32 bits, which overflows; it contains every address.
            differing.checked_shr(32 - length).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) if length <= 128 => {
            let differing = network.to_bits() ^ address.to_bits();
            differing.checked_shr(128 - length).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses_proxy(no_proxy: &str, host: &str) -> bool {
        let environment =
            ProxyEnvironment { proxies: vec!["http://proxy:3128".to_owned()], no_proxy: no_proxy.to_owned() };
        environment.choose(Some(&"http://proxy:3128".parse().expect("a URL")), host, 6443).is_some()
    }

    #[test]
    fn no_proxy_and_loopback_bypass_the_environment_proxy() {
        for (no_proxy, host) in [
            ("", "localhost"),
            ("", "127.0.0.9"),
            ("", "::1"),
            ("*", "api.example"),
            ("other, example", "api.example"),
            ("example", "example"),
            (".example", "api.EXAMPLE."),
            ("*.example", "api.example"),
            ("api.example:6443", "api.example"),
            ("10.0.0.0/8", "10.200.3.4"),
            ("10.0.0.7", "10.0.0.7"),
            ("0.0.0.0/0", "10.0.0.7"),
            ("fd00::/8", "fd12::1"),
            ("[fd12::1]:6443", "fd12::1"),
        ] {
            assert!(!uses_proxy(no_proxy, host), "{no_proxy} exempts {host}");
        }
        for (no_proxy, host) in [
            ("", "api.example"),
            ("example", "api.notexample"),
            (".example", "example"),
            ("*.example", "example"),
            ("api.example:443", "api.example"),
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.0.0.0/40", "10.0.0.1"),
            (",,", "api.example"),
            ("10.0.0.0/8", "fd12::1"),
        ] {
            assert!(uses_proxy(no_proxy, host), "{no_proxy} does not exempt {host}");
        }
    }

    #[test]
    fn empty_variable_does_not_hide_the_other() {
        let variables = |name: &str| Some(if name == "NO_PROXY" { String::new() } else { "example".to_owned() });
        assert_eq!(ProxyEnvironment::no_proxy(variables), "example");
    }

    #[test]
    fn proxy_of_kubeconfig_ignores_no_proxy() {
        let environment = ProxyEnvironment { proxies: vec!["http://other:1".to_owned()], no_proxy: "*".to_owned() };
        let proxy = "http://proxy:3128".parse().expect("a URL");
        assert_eq!(environment.choose(Some(&proxy), "localhost", 6443), Some(&proxy));
        assert_eq!(environment.choose(None, "api.example", 6443), None);
    }
}
