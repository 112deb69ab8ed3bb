//! Check `proxies`: proxies of the configuration, and headers of proxies before the server.

use std::env;

use hyper::HeaderMap;
use steadfast::unstable::proxy_name;

use super::context::CheckContext;
use super::finding::Finding;

/// Name of the check.
pub(super) const CHECK: &str = "proxies";

/// Response headers that proxies add, and API servers do not.
const PROXY_HEADERS: [&str; 9] = [
    "via",
    "server",
    "x-envoy-upstream-service-time",
    "x-cache",
    "x-served-by",
    "cf-ray",
    "x-amzn-requestid",
    "x-azure-ref",
    "keep-alive",
];

const IDLE_REMEDY: &str = "set the proxy's idle timeouts for the API server above 5 minutes, disable its response buffering, \
                           and let it use HTTP/2 on both sides";

/// Reports the visible proxies between the program and the server.
pub(super) fn check(context: &CheckContext) -> Vec<Finding> {
    let server = context.connection.server();
    let mut findings = Vec::new();
    if let Some(proxy) = proxy_name(&context.config) {
        let source = if is_of_environment(context) { "HTTPS_PROXY" } else { "proxy-url of the kubeconfig" };
        findings.push(Finding::ok(CHECK, server, format!("requests pass the proxy {proxy} ({source})")));
    } else if context.config.proxy_url.is_some() {
        let message = "HTTPS_PROXY is set, and does not apply to this server (NO_PROXY or a loopback address)";
        findings.push(Finding::ok(CHECK, server, message));
    }
    if let Some(version) = &context.version {
        let traces = traces(&version.reply.headers);
        if !traces.is_empty() {
            findings.push(Finding::warning(
                CHECK,
                server,
                format!("a proxy before the server handles the HTTP requests: {}", traces.join(", ")),
                "a proxy may close idle watches, delay events in its buffers, or stay connected to a dead API server; \
                 its idle timeout is not visible from here",
                IDLE_REMEDY,
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, server, "no HTTP proxy is configured or visible"));
    }
    findings
}

fn is_of_environment(context: &CheckContext) -> bool {
    let variables = ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(|name| env::var(name).ok());
    let mut urls = variables.filter_map(|value| value.parse::<hyper::Uri>().ok());
    urls.any(|url| Some(&url) == context.config.proxy_url.as_ref())
}

/// Returns the headers of proxies, each with its value. Each proxy may add a line to `Via`.
fn traces(headers: &HeaderMap) -> Vec<String> {
    let lines = |name| headers.get_all(name).iter().map(|line| line.to_str().unwrap_or("…"));
    let found = PROXY_HEADERS.map(|name| (name, lines(name).collect::<Vec<_>>().join(", ")));
    found.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name}: {value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_proxy_is_named() {
        let mut headers = HeaderMap::new();
        for via in ["1.1 edge", "2.0 gateway"] {
            headers.append("via", via.parse().expect("a header"));
        }
        headers.append("date", "today".parse().expect("a header"));
        assert_eq!(traces(&headers), ["via: 1.1 edge, 2.0 gateway"]);
    }
}
