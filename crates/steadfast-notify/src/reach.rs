//! Checks that external systems of sinks are reachable, without sending messages.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::secret::UrlFrom;
use crate::config::sinks::{SinkConfig, WebhookConfig};
use crate::mirror::OpenedMirrors;
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::Secret;
use crate::template::fill;

/// Timeout of one check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Checks that the external system of each sink is reachable and readable. Changes no target and sends no message.
///
/// # Errors
///
/// Returns the unreachable sinks, and sinks with rejected credentials, with positions in the configuration.
pub async fn reach(plan: &Plan, opened_mirrors: &OpenedMirrors) -> Result<(), Problems> {
    let mut problems = Vec::<Problem>::new();
    let remedy = "correct the cause or the configuration; a running program would retry";
    for (name, reason) in opened_mirrors.unreadable_targets(CHECK_TIMEOUT).await {
        let kind = plan.sinks.get(&name).and_then(SinkConfig::kind).unwrap_or_default();
        problems.push(plan.problem_with_sink(&format!("{name}.{kind}"), reason.to_string(), remedy));
    }
    for (name, sink) in &plan.sinks {
        let Some(webhook) = &sink.webhook else { continue };
        if let Err(reason) = connect(webhook, &plan.folder).await {
            problems.push(plan.problem_with_sink(&format!("{name}.webhook"), reason, remedy));
        }
    }
    problems.sort_by_key(|problem| problem.position);
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Opens a connection to the server or proxy without sending data.
async fn connect(webhook: &WebhookConfig, folder: &Path) -> Result<(), String> {
    let Some((url, host, port)) = address(webhook, folder)? else { return Ok(()) };
    match timeout(CHECK_TIMEOUT, TcpStream::connect((&*host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("cannot connect to {url}: {error}")),
        Err(_) => Err(format!("cannot connect to {url} within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

/// Returns the address of the proxy or the server. `None` if the environment may configure a proxy, which only a
/// request resolves.
fn address(webhook: &WebhookConfig, folder: &Path) -> Result<Option<(String, String, u16)>, String> {
    let variables = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let url = match &webhook.proxy {
        Some(proxy) => proxy.clone(),
        // With a proxy from the environment, a direct connection proves nothing.
        None if variables.iter().any(|name| std::env::var_os(name).is_some()) => return Ok(None),
        None => url(webhook, folder)?,
    };
    Ok(origin(&url))
}

/// Returns the URL with resolved secrets.
fn url(webhook: &WebhookConfig, folder: &Path) -> Result<String, String> {
    match &webhook.url {
        UrlFrom::Secret(from) => {
            let secret = Secret::read(from, folder)?;
            secret.text().map(str::to_owned).ok_or_else(|| format!("{from:?} is not text"))
        }
        UrlFrom::Text(text) => {
            let secret = |(name, from): (&String, _)| Ok((name.clone(), Secret::read(from, folder)?));
            let secrets = webhook.secrets.iter().map(secret).collect::<Result<_, String>>()?;
            Ok(fill(text, &secrets)?.0)
        }
    }
}

fn origin(url: &str) -> Option<(String, String, u16)> {
    let parsed: http::Uri = url.parse().ok()?;
    let default_port = if parsed.scheme_str() == Some("https") { 443 } else { 80 };
    let host = parsed.host()?.trim_matches(['[', ']']).to_owned();
    let port = parsed.port_u16().unwrap_or(default_port);
    // Path and query may contain secrets, so the shown URL has only the origin.
    Some((format!("{}://{host}:{port}", parsed.scheme_str()?), host, port))
}
