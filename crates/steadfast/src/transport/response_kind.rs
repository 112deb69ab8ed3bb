//! Properties of a response that follow from the path and query of its request.

use http::Uri;

/// Properties of a response, derived from the path and query of the request.
///
/// A request extension, set before the server's URL is added: that URL may have a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseKind {
    /// Endless stream of events.
    pub(crate) is_watch: bool,
    /// The response body can be silent for long.
    pub(crate) may_be_silent: bool,
    /// The response head can be late too. A kubelet sends the head of a followed log with the first line, and the API
    /// server does not control responses through a proxy.
    pub(super) may_start_late: bool,
}

impl ResponseKind {
    /// Classifies the response for `uri`, whose path must start with `/api` or `/apis` for objects.
    pub(crate) fn of(uri: &Uri) -> Self {
        // API servers treat every value of such a parameter as true, except `0` and `false`.
        let is_set = |name: &str| {
            let value = uri.query().unwrap_or_default().split('&').find_map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (key == name).then_some(value)
            });
            value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
        };
        let is_watch = is_set("watch");
        let subresource = subresource(uri.path());
        let is_streamed = matches!(subresource, Some("attach" | "exec" | "log" | "portforward" | "proxy"));
        Self {
            is_watch,
            may_be_silent: is_watch || is_streamed,
            may_start_late: subresource == Some("proxy") || (subresource == Some("log") && is_set("follow")),
        }
    }
}

/// Returns true if the server forwards a request for `path` to a node, a pod, a service or another server.
pub(crate) fn is_proxied(path: &str) -> bool {
    subresource(path) == Some("proxy")
}

/// Returns the subresource of `path`, which starts with `/api` or `/apis`.
///
/// Objects, resources and namespaces may have the name of a subresource, so only the position of the segment counts.
fn subresource(path: &str) -> Option<&str> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    // `/api/VERSION/…` for the core group, `/apis/GROUP/VERSION/…` for all others.
    let skipped = match segments.next()? {
        "api" => 1,
        "apis" => 2,
        _ => return None,
    };
    let mut segments = segments.skip(skipped).peekable();
    // The segments before a subresource are the resource and the name, preceded by `namespaces` and a namespace.
    let before = if segments.peek() == Some(&"namespaces") { 4 } else { 2 };
    segments.nth(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXIED: [&str; 5] = [
        "/api/v1/nodes/one/proxy",
        "/api/v1/nodes/one/proxy/metrics",
        "/api/v1/namespaces/default/pods/one:8080/proxy/",
        "/api/v1/namespaces/default/services/https:one:web/proxy/orders/7",
        "/apis/cluster.example.com/v1/clusters/one/proxy/api/v1/pods",
    ];

    fn kind(uri: &str) -> ResponseKind {
        ResponseKind::of(&uri.parse().expect("a URI"))
    }

    #[test]
    fn proxy_is_detected_as_subresource() {
        for path in PROXIED {
            assert!(is_proxied(path), "{path}");
        }
        for path in [
            "/api/v1/namespaces/default/pods/proxy",
            "/api/v1/namespaces/proxy/pods/one",
            "/apis/apps/v1/namespaces/default/deployments/proxy/scale",
            "/apis/apps/v1/namespaces/proxy/deployments",
            "/apis/example.com/v1/proxy/one",
            "/api/v1/nodes/proxy",
            "/proxy/api",
            "/",
            "",
        ] {
            assert!(!is_proxied(path), "{path}");
        }
    }

    #[test]
    fn streamed_subresources_can_be_silent() {
        for path in PROXIED {
            assert!(kind(path).may_be_silent && kind(path).may_start_late, "{path}");
        }
        for subresource in ["attach", "exec", "log", "portforward"] {
            let kind = kind(&format!("/api/v1/namespaces/default/pods/one/{subresource}?container=app"));
            assert!(kind.may_be_silent && !kind.may_start_late, "{subresource}");
        }
        assert!(kind("/api/v1/namespaces/default/pods/one/log?follow=true").may_start_late);
    }

    #[test]
    fn names_of_subresources_have_limits() {
        for name in ["attach", "exec", "log", "portforward", "proxy"] {
            for path in [
                format!("/api/v1/namespaces/default/configmaps/{name}?follow=true"),
                format!("/api/v1/namespaces/{name}"),
                format!("/api/v1/namespaces/{name}/configmaps"),
                format!("/api/v1/namespaces/{name}/configmaps/one"),
                format!("/apis/apps/v1/namespaces/default/deployments/{name}/status"),
                format!("/apis/example.com/v1/namespaces/default/{name}"),
                format!("/apis/example.com/v1/{name}/one"),
                format!("/api/v1/nodes/{name}"),
            ] {
                let expected = ResponseKind { is_watch: false, may_be_silent: false, may_start_late: false };
                assert_eq!(kind(&path), expected, "{path}");
            }
        }
    }
}
