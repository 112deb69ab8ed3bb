//! Whether what lies outside can be reached: asked before anything is sent there, and without sending anything.

use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::secret::UrlFrom;
use crate::config::sinks::{Sink, Webhook};
use crate::mirror::Openings;
use crate::plan::Plan;
use crate::problem::{Problem, Problems};
use crate::secret::Secret;
use crate::template::filled;

/// How long one may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the outside of each sink whether it is there and lets itself be looked at; nothing is changed anywhere, and no message sent.
///
/// # Errors
///
/// Those that cannot be reached, or do not know the key that they are given, each with its place in the configuration.
pub async fn reach(plan: &Plan, openings: &Openings) -> Result<(), Problems> {
    let mut problems = Vec::<Problem>::new();
    let remedy = "put that right, or correct what is said of it here; the program itself would try on";
    for (name, why) in openings.blind(PATIENCE).await {
        let kind = plan.sinks.get(&name).and_then(Sink::kind).unwrap_or_default();
        problems.push(plan.problem_with_sink(&format!("{name}.{kind}"), why.to_string(), remedy));
    }
    for (name, sink) in &plan.sinks {
        let Some(webhook) = &sink.webhook else { continue };
        if let Err(why) = connect(webhook, &plan.folder).await {
            problems.push(plan.problem_with_sink(&format!("{name}.webhook"), why, remedy));
        }
    }
    problems.sort_by_key(|problem| problem.place);
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

/// Connects to who would be connected to, and says nothing.
async fn connect(webhook: &Webhook, folder: &Path) -> Result<(), String> {
    let Some((url, host, port)) = way(webhook, folder)? else { return Ok(()) };
    match timeout(PATIENCE, TcpStream::connect((&*host, port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("nobody answers at {url}: {error}")),
        Err(_) => Err(format!("nobody answers at {url} within {} s", PATIENCE.as_secs())),
    }
}

/// The proxy, or the server itself; nothing where the environment may name a proxy, of which only a request finds out.
fn way(webhook: &Webhook, folder: &Path) -> Result<Option<(String, String, u16)>, String> {
    let by_environment = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let url = match &webhook.proxy {
        Some(proxy) => proxy.clone(),
        None if by_environment.iter().any(|name| std::env::var_os(name).is_some()) => return Ok(None),
        None => url(webhook, folder)?,
    };
    Ok(origin(&url))
}

/// Returns the URL with its secrets.
fn url(webhook: &Webhook, folder: &Path) -> Result<String, String> {
    match &webhook.url {
        UrlFrom::Secret(from) => {
            let secret = Secret::read(from, folder)?;
            secret.text().map(str::to_owned).ok_or_else(|| format!("{from:?} is not text"))
        }
        UrlFrom::Text(text) => {
            let secret = |(name, from): (&String, _)| Ok((name.clone(), Secret::read(from, folder)?));
            let secrets = webhook.secrets.iter().map(secret).collect::<Result<_, String>>()?;
            Ok(filled(text, &secrets)?.0)
        }
    }
}

fn origin(url: &str) -> Option<(String, String, u16)> {
    let parsed: http::Uri = url.parse().ok()?;
    let usual = if parsed.scheme_str() == Some("https") { 443 } else { 80 };
    let host = parsed.host()?.trim_matches(['[', ']']).to_owned();
    let port = parsed.port_u16().unwrap_or(usual);
    // What else is in it may be a secret.
    Some((format!("{}://{host}:{port}", parsed.scheme_str()?), host, port))
}
