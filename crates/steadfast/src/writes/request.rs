//! Detection of write requests and their targets.

use http::{Method, Request};

use super::WriteTarget;

/// Subresources that change no cached object.
const WRITES_NOTHING: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Returns the target of `request`, or `None` for a read or a dry run.
pub(crate) fn target<B>(request: &Request<B>) -> Option<WriteTarget> {
    if !matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH | Method::DELETE) {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    if query.split('&').any(|pair| pair.starts_with("dryRun=") && pair.len() > "dryRun=".len()) {
        return None;
    }
    let mut segments = request.uri().path().split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    // The version is ignored: objects are equal in all versions of their group.
    let _version = segments.next()?;
    let rest: Vec<&str> = segments.collect();
    let (namespace, plural, name, subresource) = match *rest {
        // Paths of namespace objects. `status` and `finalize` are their subresources; other paths address objects in
        // the namespace.
        ["namespaces"] => (None, "namespaces", None, None),
        ["namespaces", name] => (None, "namespaces", Some(name), None),
        ["namespaces", name, own @ ("status" | "finalize")] => (None, "namespaces", Some(name), Some(own)),
        ["namespaces", namespace, plural] => (Some(namespace), plural, None, None),
        ["namespaces", namespace, plural, name] => (Some(namespace), plural, Some(name), None),
        ["namespaces", namespace, plural, name, subresource, ..] => {
            (Some(namespace), plural, Some(name), Some(subresource))
        }
        [plural] => (None, plural, None, None),
        [plural, name] => (None, plural, Some(name), None),
        [plural, name, subresource, ..] => (None, plural, Some(name), Some(subresource)),
        [] => return None,
    };
    if subresource.is_some_and(|subresource| WRITES_NOTHING.contains(&subresource)) {
        return None;
    }
    Some(WriteTarget {
        group: group.to_owned(),
        plural: plural.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, uri: &str) -> Option<String> {
        let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
        target(&request).map(|target| {
            let WriteTarget { group, plural, namespace, name } = target;
            format!("{group}/{plural} {} {}", namespace.as_deref().unwrap_or("-"), name.as_deref().unwrap_or("-"))
        })
    }

    #[test]
    fn write_target_is_derived_from_path() {
        for (method, uri, expected) in [
            ("POST", "/api/v1/namespaces/shop/pods", "/pods shop -"),
            ("PUT", "/api/v1/namespaces/shop/pods/web/status?fieldManager=a", "/pods shop web"),
            ("POST", "/api/v1/namespaces/shop/pods/web/eviction", "/pods shop web"),
            ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", "apps/deployments shop web"),
            ("DELETE", "/apis/apps/v1/namespaces/shop/deployments", "apps/deployments shop -"),
            ("POST", "/api/v1/nodes", "/nodes - -"),
            ("PATCH", "/api/v1/nodes/one/status", "/nodes - one"),
            ("POST", "/api/v1/namespaces", "/namespaces - -"),
            ("DELETE", "/api/v1/namespaces/shop", "/namespaces - shop"),
            ("PUT", "/api/v1/namespaces/shop/finalize", "/namespaces - shop"),
            ("PUT", "/api/v1/namespaces/status/status", "/namespaces - status"),
            (
                "POST",
                "/apis/stable.example.com/v1/namespaces/proxy/crontabs?dryRun=",
                "stable.example.com/crontabs proxy -",
            ),
        ] {
            assert_eq!(of(method, uri).as_deref(), Some(expected), "{method} {uri}");
        }
    }

    #[test]
    fn reads_and_dry_runs_have_no_target() {
        for (method, uri) in [
            ("GET", "/api/v1/namespaces/shop/pods"),
            ("POST", "/api/v1/namespaces/shop/pods?dryRun=All"),
            ("POST", "/api/v1/namespaces/shop/pods/web/exec?command=ls"),
            ("POST", "/api/v1/namespaces/shop/serviceaccounts/web/token"),
            ("POST", "/api/v1/namespaces/shop/services/web/proxy/orders/7"),
            ("POST", "/version"),
            ("POST", "/api/v1"),
            ("POST", "/"),
        ] {
            assert_eq!(of(method, uri), None, "{method} {uri}");
        }
    }
}
