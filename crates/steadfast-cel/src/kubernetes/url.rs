//! URLs, as the library of Go parses them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::escapes::{UrlPart, encoded, escape, unescape};

/// Requirement of a URL.
pub(crate) const URL_SYNTAX: &str = "a URL must be absolute, or a path that starts with `/`";

/// Maximum number of parameters in a query. A query with more parameters counts as empty.
const MAX_QUERY_PARAMETERS: usize = 10_000;

/// Absolute URL, or absolute path. Equal if the texts are equal after normalization.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    /// Scheme in lower case; empty for a path.
    pub(crate) scheme: String,
    /// Part after the scheme, if this part is not a path: `a@b` in `mailto:a@b`.
    opaque: String,
    user: Option<String>,
    /// Host, and port after a colon.
    pub(crate) host: String,
    /// Path in its encoded form.
    pub(crate) path: String,
    has_query: bool,
    query: String,
    fragment: String,
    has_authority: bool,
}

impl Url {
    /// Returns whether a text is a URL or an absolute path. A `#` does not start a fragment here.
    pub(crate) fn is_valid(text: &str) -> bool {
        Self::parse_part(text, true).is_some()
    }

    /// Parses a URL or an absolute path, with a fragment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::parse_part(text, true)?;
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse_part(text, false)?;
        url.fragment = encoded(fragment, &unescape(fragment.as_bytes(), UrlPart::Fragment)?, UrlPart::Fragment);
        Some(url)
    }

    fn parse_part(text: &str, must_be_absolute: bool) -> Option<Self> {
        // Go rejects control characters in any part. Other invalid characters are escaped instead.
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) || (text.is_empty() && must_be_absolute) {
            return None;
        }
        if text == "*" {
            return Some(Self { path: text.to_owned(), ..Self::default() });
        }
        let (scheme, rest) = split_scheme(text)?;
        let mut url = Self { scheme: scheme.to_ascii_lowercase(), ..Self::default() };
        let (mut rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        url.has_query = query.is_some();
        query.unwrap_or_default().clone_into(&mut url.query);
        if !rest.starts_with('/') {
            // `mailto:a@b` has a scheme and no path: Go keeps the rest as opaque text.
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Some(url);
            }
            // RFC 3986, section 4.2: a relative path must not have a colon in its first segment.
            let segment = rest.split('/').next().unwrap_or_default();
            if must_be_absolute || segment.contains(':') {
                return None;
            }
        }
        // Without a scheme, Go treats a text that starts with `///` as a plain path, not as an empty authority.
        if (!url.scheme.is_empty() || (!must_be_absolute && !rest.starts_with("///")))
            && let Some(behind) = rest.strip_prefix("//")
        {
            let (authority, path) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
            rest = path;
            url.set_authority(authority)?;
        }
        url.path = match rest {
            "*" => rest.to_owned(),
            rest => encoded(rest, &unescape(rest.as_bytes(), UrlPart::Path)?, UrlPart::Path),
        };
        Some(url)
    }

    fn set_authority(&mut self, authority: &str) -> Option<()> {
        // The last `@` separates the user from the host: a password may contain `@`.
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = plain_host(&self.scheme, host)?;
        self.has_authority = true;
        let Some(user) = user else { return Some(()) };
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
        if !user.bytes().all(is_valid) {
            return None;
        }
        let escaped = |text: &str| Some(escape(&unescape(text.as_bytes(), UrlPart::User)?, UrlPart::User));
        self.user = Some(match user.split_once(':') {
            Some((name, password)) => format!("{}:{}", escaped(name)?, escaped(password)?),
            None => escaped(user)?,
        });
        Some(())
    }

    /// Returns the host without brackets, and the port. Without a valid port, the whole text counts as the host.
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':').map(|colon| self.host.split_at(colon)) {
            Some((host, port)) if is_port(port) => (host, port.get(1..).unwrap_or_default()),
            _ => (self.host.as_str(), ""),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }

    /// Returns the parameters of the query. Invalid parameters are left out.
    pub(crate) fn parameters(&self) -> BTreeMap<String, Vec<String>> {
        let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if self.query.bytes().filter(|byte| *byte == b'&').count() >= MAX_QUERY_PARAMETERS {
            return parameters;
        }
        // Go drops parameters with a semicolon since 1.17, because proxies disagreed on the separator.
        for parameter in self.query.split('&').filter(|parameter| !parameter.is_empty() && !parameter.contains(';')) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let plain = |text: &str| Some(lossy(&unescape(text.as_bytes(), UrlPart::Query)?));
            if let (Some(name), Some(value)) = (plain(name), plain(value)) {
                parameters.entry(name).or_default().push(value);
            }
        }
        parameters
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = [&self.scheme, &self.opaque, &self.host, &self.path, &self.query, &self.fragment];
        parts.iter().map(|part| part.len()).sum::<usize>() + self.user.as_deref().unwrap_or_default().len()
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits a URL into its scheme, which may be empty, and the rest.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let (scheme, rest) = text.split_at(text.bytes().take_while(|byte| is_scheme(byte)).count());
    match (scheme.as_bytes().first(), rest.strip_prefix(':')) {
        (None, Some(_)) => None,
        (Some(first), Some(rest)) if first.is_ascii_alphabetic() => Some((scheme, rest)),
        _ => Some(("", text)),
    }
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Decodes the percent-encoding of a host with its port. Returns `None` for an invalid host.
fn plain_host(scheme: &str, host: &str) -> Option<String> {
    match host.rfind('[') {
        Some(0) => return plain_ip_literal(host),
        Some(_) => return None,
        None => {}
    }
    if let Some(first) = host.find(':') {
        // More than one colon is an error for the schemes of HTTP only.
        let colon = if matches!(scheme, "http" | "https") { first } else { host.rfind(':').unwrap_or(first) };
        if !is_port(host.get(colon..)?) {
            return None;
        }
    }
    Some(lossy(&unescape(host.as_bytes(), UrlPart::Host)?))
}

/// Decodes the percent-encoding of an IPv6 address in brackets with a port. Returns `None` for an invalid address.
fn plain_ip_literal(host: &str) -> Option<String> {
    let (address, port) = host.strip_prefix('[')?.rsplit_once(']')?;
    if !is_port(port) {
        return None;
    }
    let mut plain = Vec::new();
    // RFC 6874: a zone in a URL is separated by an encoded percent sign.
    let zone = address.find("%25");
    let (address, zone) = address.split_at(zone.unwrap_or(address.len()));
    plain.extend(unescape(address.as_bytes(), UrlPart::Host)?);
    plain.extend(unescape(zone.as_bytes(), UrlPart::Zone)?);
    let plain = lossy(&plain);
    let (address, zone) = plain.split_once('%').map_or((&*plain, None), |(address, zone)| (address, Some(zone)));
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V6(_) if zone.is_none_or(|zone| !zone.is_empty()) => Some(format!("[{plain}]{port}")),
        _ => None,
    }
}
