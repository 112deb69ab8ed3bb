//! Connections to the audited endpoints.

use std::time::Duration;

use hyper::Uri;
use kube::Config;
use steadfast::unstable::proxy_name;
use steadfast_audit::AuditEndpoint;
use tokio::time::sleep;

use crate::cli::AuditArgs;
use crate::connect::{self, config_with_flags, connect_edited};
use crate::console;
use crate::failure::Failure;
use crate::server_address::{direct_to, host_and_port, resolve, url_of};

/// Maximum number of endpoints, which is the limit of the auditor.
const MAX_ENDPOINTS: usize = 32;

/// Delay after a failed name resolution.
const RESOLVE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Connects to each endpoint of the command line, or else to each address of the server's name.
pub(super) async fn connect(args: &AuditArgs) -> Result<Vec<AuditEndpoint>, Failure> {
    let connection_args = args.connection.clone();
    let read = tokio::task::spawn_blocking(move || config_with_flags(&connection_args));
    let (config, _) = read.await.map_err(Failure::run)??;
    if args.endpoints.is_empty() && proxy_name(&config).is_some() {
        // The proxy resolves the name, so the addresses are not visible from here.
        let connection = connect::connect(args.connection.clone()).await?;
        return Ok(vec![AuditEndpoint { name: name(&config.cluster_url), connection }]);
    }
    let urls = match args.endpoints.as_slice() {
        [] => resolved(&config).await?,
        endpoints => chosen(endpoints, &config.cluster_url)?,
    };
    let mut connected = Vec::new();
    for url in urls {
        let name = name(&url);
        let edit = move |config: &mut Config| direct_to(config, url.clone());
        connected.push(AuditEndpoint { name, connection: connect_edited(args.connection.clone(), edit).await? });
    }
    Ok(connected)
}

/// Returns the name of an endpoint in findings and metrics. A URL may contain credentials, so only host and port are
/// shown.
fn name(url: &Uri) -> String {
    match host_and_port(url) {
        (host, port) if host.contains(':') => format!("[{host}]:{port}"),
        (host, port) => format!("{host}:{port}"),
    }
}

/// Returns the URLs of all addresses of the server's name. Waits until the name can be resolved.
async fn resolved(config: &Config) -> Result<Vec<Uri>, Failure> {
    let (host, port) = host_and_port(&config.cluster_url);
    let mut reported = None;
    let addresses = loop {
        let reason = match resolve(&host, port).await {
            Ok(addresses) => break addresses,
            Err(reason) => reason,
        };
        if reported.as_ref() != Some(&reason) {
            console::report(format_args!("waiting for the name {host}, which cannot be resolved: {reason}"));
            reported = Some(reason);
        }
        sleep(RESOLVE_RETRY_DELAY).await;
    };
    let urls = addresses.into_iter().map(|address| url_of(address, &config.cluster_url));
    urls.collect::<Result<_, _>>().map_err(|reason| Failure::config(format!("the server {host}: {reason}")))
}

/// Returns the URLs of `--endpoint`, each once. A URL without a path gets the path of `server`.
fn chosen(endpoints: &[Uri], server: &Uri) -> Result<Vec<Uri>, Failure> {
    let mut urls: Vec<Uri> = Vec::new();
    for endpoint in endpoints {
        let shown = name(endpoint);
        if server.scheme_str() == Some("https") && endpoint.scheme_str() != Some("https") {
            let reason = "has no TLS, so the credentials of the kubeconfig would be readable on the way; use https";
            return Err(Failure::usage(format!("--endpoint {shown} {reason}")));
        }
        let scheme = endpoint.scheme_str().unwrap_or("https");
        let path = if endpoint.path() == "/" { server.path() } else { endpoint.path() };
        let url = format!("{scheme}://{shown}{path}").parse();
        let url: Uri = url.map_err(|error| Failure::usage(format!("--endpoint {shown} is not valid: {error}")))?;
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    if urls.len() > MAX_ENDPOINTS {
        return Err(Failure::usage(format!("{} endpoints; at most {MAX_ENDPOINTS} can be audited", urls.len())));
    }
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_urls(endpoints: &[&str], server: &str) -> Result<Vec<String>, String> {
        let endpoints: Vec<Uri> = endpoints.iter().map(|url| url.parse().expect("a URL")).collect();
        let urls = chosen(&endpoints, &server.parse().expect("a URL"));
        urls.map(|urls| urls.iter().map(Uri::to_string).collect()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn endpoints_are_distinct_and_keep_path() {
        let urls = chosen_urls(&["https://10.0.0.1", "https://10.0.0.1:443/", "https://[fd00::1]:6443"], "https://a/b");
        assert_eq!(urls.expect("valid endpoints"), ["https://10.0.0.1:443/b", "https://[fd00::1]:6443/b"]);
    }

    #[test]
    fn endpoint_without_tls_is_rejected() {
        let error = chosen_urls(&["http://user:hunter2@10.0.0.1:80"], "https://a").expect_err("an error");
        assert!(error.starts_with("--endpoint 10.0.0.1:80 has no TLS"), "{error}");
        assert!(chosen_urls(&["http://10.0.0.1:80"], "http://a").is_ok());
        let many: Vec<String> = (0..=MAX_ENDPOINTS).map(|number| format!("https://10.0.0.{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(chosen_urls(&many, "https://a").expect_err("an error").contains("at most 32"));
    }
}
