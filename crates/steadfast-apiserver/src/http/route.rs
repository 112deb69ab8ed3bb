//! Routes: the targets of paths.

use http::Method;

/// Target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Objects.
    Resource(ResourcePath),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` and `/apis/GROUP/VERSION`.
    GroupVersion { group: String, version: String },
    /// `/version`.
    Version,
    /// `/livez/ping` and similar: a check that does not depend on other components of the server.
    Ping,
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/openapi/…`.
    OpenApi(String),
    /// Anything else.
    Unknown,
}

/// Path of an object or a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: Option<String>,
    pub(super) plural: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    /// True if further segments follow. Only the handler of custom resources ignores them.
    pub(super) has_more_segments: bool,
}

impl ResourcePath {
    /// Returns whether the subresource switches to another protocol than HTTP.
    pub(super) fn is_streaming(&self) -> bool {
        self.group.is_empty()
            && self.plural == "pods"
            && matches!(self.subresource.as_deref(), Some("attach" | "exec" | "portforward"))
    }
}

impl ResourcePath {
    /// Returns whether the path names a subresource that accepts posted objects.
    pub(super) fn accepts_posts(&self) -> bool {
        self.group.is_empty()
            && matches!(
                (self.plural.as_str(), self.subresource.as_deref()),
                ("pods", Some("binding" | "eviction")) | ("serviceaccounts", Some("token"))
            )
    }
}

impl Route {
    pub(super) fn parse(path: &str) -> Self {
        // Empty segments are dropped, so that `/api//v1` is the same path.
        let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", version] => Self::GroupVersion { group: String::new(), version: (*version).to_owned() },
            ["apis", group, version] => {
                Self::GroupVersion { group: (*group).to_owned(), version: (*version).to_owned() }
            }
            ["api", version, rest @ ..] => resource_route("", version, rest),
            ["apis", group, version, rest @ ..] => resource_route(group, version, rest),
            ["version"] => Self::Version,
            ["healthz" | "livez" | "readyz", "ping"] => Self::Ping,
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["openapi", rest @ ..] => Self::OpenApi(rest.join("/")),
            _ => Self::Unknown,
        }
    }

    /// Returns whether a resource path can allow the method.
    pub(super) fn allows(&self, method: &Method) -> bool {
        match self {
            Self::Resource(path) => match *method {
                Method::GET | Method::DELETE => true,
                Method::POST => path.name.is_none() || path.is_streaming() || path.accepts_posts(),
                Method::PUT | Method::PATCH => path.name.is_some(),
                _ => false,
            },
            Self::Groups | Self::Group(_) | Self::Unknown => true,
            _ => *method == Method::GET,
        }
    }
}

fn resource_route(group: &str, version: &str, segments: &[&str]) -> Route {
    let (namespace, plural, rest) = match segments {
        // Namespaces are cluster-scoped objects with their own subresources.
        // Other subresources of namespaces would be read as a plural within the namespace.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
            (None, "namespaces", &segments[1..])
        }
        ["namespaces", namespace, plural, rest @ ..] => (Some((*namespace).to_owned()), *plural, rest),
        [plural, rest @ ..] => (None, *plural, rest),
        [] => return Route::Unknown,
    };
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (Some((*name).to_owned()), None),
        [name, subresource, ..] => (Some((*name).to_owned()), Some((*subresource).to_owned())),
    };
    Route::Resource(ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace,
        plural: plural.to_owned(),
        name,
        subresource,
        has_more_segments: rest.len() > 2,
    })
}

/// Decodes percent-encoding. Invalid sequences stay unchanged.
pub(super) fn percent_decode(text: &str) -> String {
    let hex = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let [first, rest @ ..] = bytes {
        bytes = rest;
        // An invalid escape stays verbatim.
        if let (b'%', [high, low, remaining @ ..]) = (first, rest)
            && let (Some(high), Some(low)) = (hex(*high), hex(*low))
        {
            // Bytes are decoded instead of characters, because an escaped character has several bytes.
            decoded.push(high << 4 | low);
            bytes = remaining;
        } else {
            decoded.push(*first);
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{Route, percent_decode};

    #[test]
    fn namespaces_contain_objects_and_are_objects() {
        let resource = |path| match Route::parse(path) {
            Route::Resource(path) => (path.namespace, path.plural, path.name, path.subresource),
            other => panic!("{other:?} is not a resource"),
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(resource("/api/v1/namespaces"), (None, "namespaces".to_owned(), None, None));
        assert_eq!(resource("/api/v1/namespaces/a"), (None, "namespaces".to_owned(), some("a"), None));
        assert_eq!(resource("/api/v1/namespaces/a/status"), (None, "namespaces".to_owned(), some("a"), some("status")));
        assert_eq!(resource("/api/v1/namespaces/a/pods"), (some("a"), "pods".to_owned(), None, None));
        assert_eq!(
            resource("/apis/apps/v1/namespaces/a/deployments/b/status"),
            (some("a"), "deployments".to_owned(), some("b"), some("status"))
        );
    }

    #[test]
    fn percent_encoding_is_decoded() {
        assert_eq!(percent_decode("a%3Db%2cc%zz%"), "a=b,c%zz%");
    }
}
