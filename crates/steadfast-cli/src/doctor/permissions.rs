//! Check `permissions`: the verbs `get`, `list` and `watch` of each resource.

use futures::StreamExt;
use futures::stream;
use serde_json::{Value, json};
use steadfast::unstable::catalog::ServedResource;

use super::authentication::user_name;
use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{RequestError, post_json};
use crate::rbac::{RbacRole, RbacRule, RbacSubject};

/// Name of the check.
pub(super) const CHECK: &str = "permissions";

/// Verbs that are checked. An informer needs the last two.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REVIEWS: usize = 8;

/// Asks the server for the permissions of all resources.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let questions = context.resources.len() * VERBS.len();
    // Results arrive in the order of the questions.
    let results: Vec<Result<bool, RequestError>> = stream::iter(0..questions)
        .map(|number| review(context, &context.resources[number / VERBS.len()], VERBS[number % VERBS.len()]))
        .buffered(MAX_CONCURRENT_REVIEWS)
        .collect()
        .await;
    let denied = results.iter().any(|result| matches!(result, Ok(false)));
    let user = if denied { user_name(context).await } else { None };
    let of_resources = context.resources.iter().zip(results.chunks(VERBS.len()));
    of_resources.map(|(resource, results)| evaluate(context, resource, results, user.as_deref())).collect()
}

async fn review(context: &CheckContext, resource: &ServedResource, verb: &str) -> Result<bool, RequestError> {
    let served = &resource.api_resource;
    let mut attributes = json!({"group": served.group, "resource": served.plural, "verb": verb});
    if let Some(namespace) = context.namespace.as_deref().filter(|_| resource.namespaced) {
        attributes["namespace"] = json!(namespace);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let response = post_json(&context.connection, path, &review).await?;
    Ok(response.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default())
}

fn evaluate(
    context: &CheckContext,
    resource: &ServedResource,
    results: &[Result<bool, RequestError>],
    user: Option<&str>,
) -> Finding {
    let scope = match context.namespace.as_deref().filter(|_| resource.namespaced) {
        Some(namespace) => format!(" in the namespace {namespace}"),
        None if resource.namespaced => " in all namespaces".to_owned(),
        None => String::new(),
    };
    if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
        return Finding::not_checked(CHECK, resource, format!("the server does not report permissions: {error}"));
    }
    let missing: Vec<&str> =
        VERBS.iter().zip(results).filter(|(_, result)| **result == Ok(false)).map(|(verb, _)| *verb).collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, resource, format!("get, list and watch are permitted{scope}"));
    }
    let message =
        format!("{} {} not permitted{scope}", missing.join(" and "), if missing.len() > 1 { "are" } else { "is" });
    let namespace = context.namespace.as_deref().filter(|_| resource.namespaced);
    let manifest = manifest(resource, namespace, &missing, user);
    let finding = if missing == ["get"] {
        let effect = "informers need only list and watch; reads of single objects outside of the cache fail";
        Finding::warning(CHECK, resource, message, effect, "apply this role and binding")
    } else {
        let effect = "an informer of this resource never syncs: it needs list and watch";
        let elsewhere = if context.namespace.is_none() && resource.namespaced {
            ", or check and watch one namespace only (-n)"
        } else {
            ""
        };
        Finding::failure(CHECK, resource, message, effect, format!("apply this role and binding{elsewhere}"))
    };
    finding.with_manifest(manifest)
}

/// Returns the missing role with its binding to `user`.
fn manifest(resource: &ServedResource, namespace: Option<&str>, verbs: &[&str], user: Option<&str>) -> String {
    let account =
        user.and_then(|user| user.strip_prefix("system:serviceaccount:")).and_then(|name| name.split_once(':'));
    let subject = match account {
        Some((namespace, name)) => RbacSubject::ServiceAccount { namespace, name },
        None => RbacSubject::User(user.unwrap_or("USER")),
    };
    let name = format!("watch-{resource}");
    let served = &resource.api_resource;
    let rule = RbacRule { group: &served.group, resources: vec![served.plural.as_str()], object: None, verbs };
    RbacRole { name: &name, namespace, rules: vec![rule] }.manifests(subject)
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    #[test]
    fn manifest_grants_missing_verbs() {
        let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
        let api_resource = ApiResource::from_gvk_with_plural(&kind, "deployments");
        let deployments = ServedResource { api_resource, namespaced: true };
        let text = manifest(&deployments, Some("shop"), &["list", "watch"], Some("system:serviceaccount:ops:informer"));
        for part in [
            "kind: Role\n",
            "  name: watch-deployments.apps\n  namespace: shop\n",
            "- apiGroups: [\"apps\"]\n  resources: [deployments]\n  verbs: [list, watch]\n",
            "- kind: ServiceAccount\n  name: informer\n  namespace: ops\n",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        let text = manifest(&deployments, None, &["watch"], Some("a\"b"));
        assert!(text.contains("kind: ClusterRoleBinding") && text.contains("name: \"a\\\"b\"\n"), "{text}");
    }
}
