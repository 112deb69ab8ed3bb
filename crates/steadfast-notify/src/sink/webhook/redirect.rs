//! Targets of redirects.

use http::Uri;
use http::uri::PathAndQuery;

/// Maximum number of redirects per request.
pub(super) const MAX_REDIRECTS: usize = 5;

/// Address of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestAddress {
    /// Scheme and authority, such as `https://example.com:8443`.
    pub(super) origin: String,
    /// Path and query.
    pub(super) path: String,
    scheme: String,
    host: String,
    port: u16,
}

impl RequestAddress {
    /// Parses a full URL. The error contains no part of the URL.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        // Fragments are never sent to a server (RFC 9110, section 4.2.5).
        let without_fragment = url.split('#').next().unwrap_or_default();
        let uri: Uri = without_fragment.parse().map_err(|_| "is not a valid URL")?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("is not the whole URL of a server");
        };
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err("is not a URL of `http` or `https`"),
        };
        if authority.as_str().contains('@') {
            return Err("has a user name or password in it");
        }
        // An empty path is sent as `/` (RFC 9112, section 3.2.1).
        let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
        Ok(Self {
            origin: format!("{scheme}://{authority}"),
            path: path.to_owned(),
            scheme: scheme.to_owned(),
            host: authority.host().to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(default_port),
        })
    }

    /// Returns true if secrets for `self` may be sent to `other`.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        (&self.scheme, &self.host, self.port) == (&other.scheme, &other.host, other.port)
    }

    /// Resolves a `Location` header of a response from this address.
    pub(super) fn follow(&self, location: &str) -> Result<Self, String> {
        let redirect_target = self.resolve(location).map_err(|reason| format!("the `Location` header {reason}"))?;
        if self.scheme == "https" && redirect_target.scheme == "http" {
            return Err(format!("the redirect from https to {} would disable encryption", redirect_target.origin));
        }
        Ok(redirect_target)
    }

    fn resolve(&self, location: &str) -> Result<Self, &'static str> {
        if location.is_empty() {
            return Err("is empty");
        }
        // RFC 3986, section 4.2: network-path, absolute-path and relative-path references.
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme));
        }
        if location.starts_with('/') {
            return Self::parse(&format!("{}{location}", self.origin));
        }
        let before_path = location.split(['/', '?', '#']).next().unwrap_or_default();
        if before_path.contains(':') {
            return Self::parse(location);
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let folder = &path[..=path.rfind('/').unwrap_or_default()];
        let relative = if location.starts_with('?') { path } else { folder };
        Self::parse(&format!("{}{relative}{location}", self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_resolve_against_the_request() {
        let from = RequestAddress::parse("https://Example.com/a/b?q=1").expect("a URL");
        let follow_redirect =
            |location| from.follow(location).map(|to| (to.is_same_origin(&from), format!("{}{}", to.origin, to.path)));
        let same_origin = |text: &str| Ok((true, text.to_owned()));
        assert_eq!(follow_redirect("/c?d#e"), same_origin("https://Example.com/c?d"));
        assert_eq!(follow_redirect("c"), same_origin("https://Example.com/a/c"));
        assert_eq!(follow_redirect("?x=1"), same_origin("https://Example.com/a/b?x=1"));
        assert_eq!(follow_redirect("https://example.com:443/c"), same_origin("https://example.com:443/c"));
        assert_eq!(follow_redirect("//other.test/c"), Ok((false, "https://other.test/c".to_owned())));
        assert_eq!(follow_redirect("https://example.com:8443/"), Ok((false, "https://example.com:8443/".to_owned())));
        for bad in
            ["", "ftp://example.com/", "https://u:p@example.com/", "http://example.com/", "https://", "http:///x"]
        {
            let reason = follow_redirect(bad).expect_err(bad);
            assert!(!reason.contains("u:p"), "{reason}");
        }
    }

    #[test]
    fn encryption_may_begin_with_a_redirect() {
        let from = RequestAddress::parse("http://example.com/").expect("a URL");
        let to = from.follow("https://example.com/").expect("an upgrade to https");
        assert!(!to.is_same_origin(&from));
    }
}
