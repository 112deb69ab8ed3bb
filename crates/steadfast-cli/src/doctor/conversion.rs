//! Check `conversion webhooks`: whether custom resources with a conversion webhook can be listed in each version.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use serde_json::Value;
use steadfast::unstable::percent_encoded;

use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{RequestError, get, get_json};

/// Name of the check.
pub(super) const CHECK: &str = "conversion webhooks";

/// Number of definitions in a page. A definition may have hundreds of kilobytes.
const PAGE_SIZE: usize = 20;

/// Maximum number of pages.
const MAX_PAGES: usize = 25;

/// Maximum number of concurrent lists.
const MAX_CONCURRENT_LISTS: usize = 4;

/// Deadline of a list of one object.
const LIST_DEADLINE: Duration = Duration::from_secs(5);

/// Duration above which a conversion is reported as slow.
const SLOW: Duration = Duration::from_secs(1);

const EFFECT: &str = "lists and watches of this version fail, the API server may stop serving the resource, and informers \
                   do not sync";

/// Lists an object of each version of the resources with a conversion webhook.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let (converted, mut findings) = definitions(context).await;
    if converted.is_empty() && findings.is_empty() {
        let server = context.connection.server();
        return vec![Finding::ok(CHECK, server, "no custom resource has a conversion webhook")];
    }
    let lists = stream::iter(converted).map(|version| async move { check_version(context, &version).await });
    findings.extend(lists.buffered(MAX_CONCURRENT_LISTS).collect::<Vec<_>>().await);
    findings
}

/// A version of a custom resource that a webhook converts.
struct ConvertedVersion {
    /// Name of the definition: `widgets.example.com`.
    definition: String,
    path: String,
    version: String,
    webhook: String,
}

/// Returns the versions that webhooks convert, and findings about definitions that cannot be read.
async fn definitions(context: &CheckContext) -> (Vec<ConvertedVersion>, Vec<Finding>) {
    let (mut converted, mut token) = (Vec::new(), String::new());
    for _ in 0..MAX_PAGES {
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit={PAGE_SIZE}&continue={}",
            percent_encoded(&token)
        );
        let page = match get_json(&context.connection, &path).await {
            Ok(page) => page,
            Err(error) => {
                let reason = format!("the definitions of custom resources cannot be read: {error}");
                return (converted, vec![Finding::not_checked(CHECK, "customresourcedefinitions", reason)]);
            }
        };
        converted.extend(page["items"].as_array().into_iter().flatten().flat_map(versions));
        page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
        if token.is_empty() {
            return (converted, Vec::new());
        }
    }
    let reason = format!("only the first {} definitions were read", PAGE_SIZE * MAX_PAGES);
    (converted, vec![Finding::not_checked(CHECK, "customresourcedefinitions", reason)])
}

/// Returns the served versions of a definition with a conversion webhook.
fn versions(definition: &Value) -> Vec<ConvertedVersion> {
    let spec = &definition["spec"];
    if spec["conversion"]["strategy"] != "Webhook" {
        return Vec::new();
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let client = &spec["conversion"]["webhook"]["clientConfig"];
    let webhook = match client["url"].as_str() {
        // A URL may contain a secret in its query.
        Some(url) => url.split('?').next().unwrap_or_default().to_owned(),
        None => format!("service {}/{}", text(&client["service"]["namespace"]), text(&client["service"]["name"])),
    };
    let served = spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    let versions = served.map(|version| {
        let version = text(&version["name"]);
        ConvertedVersion {
            definition: format!("{plural}.{group}"),
            path: format!("/apis/{group}/{version}/{plural}?limit=1"),
            version,
            webhook: webhook.clone(),
        }
    });
    versions.collect()
}

async fn check_version(context: &CheckContext, version: &ConvertedVersion) -> Finding {
    let ConvertedVersion { definition, path, version, webhook } = version;
    let subject = format!("{definition} {version}");
    let remedy = format!(
        "check that {webhook} of the conversion webhook runs and responds, and that its caBundle is current; its timeout \
         is 30 s"
    );
    match get(&context.connection, path, LIST_DEADLINE).await.and_then(|reply| reply.json().map(|_| reply.elapsed)) {
        Ok(time) if time > SLOW => Finding::warning(
            CHECK,
            subject,
            format!("a list of one object took {:.1} s through the conversion webhook", time.as_secs_f64()),
            "each list and each event of this version waits for the webhook, so caches of this version are late",
            remedy,
        ),
        Ok(time) => Finding::ok(CHECK, subject, format!("one object was listed in {:.0} ms", time.as_secs_f64() * 1e3)),
        Err(error @ (RequestError::Deadline(_) | RequestError::Status(500.., _))) => {
            Finding::failure(CHECK, subject, format!("one object cannot be listed: {error}"), EFFECT, remedy)
        }
        Err(error) => Finding::not_checked(CHECK, subject, error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn served_versions_of_webhooks_are_checked() {
        let definition = json!({"spec": {
            "group": "example.com", "names": {"plural": "widgets"},
            "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://hook.example/c?key=hunter2"}}},
            "versions": [{"name": "v1", "served": true}, {"name": "v1beta1", "served": true}, {"name": "v1alpha1", "served": false}],
        }});
        let found = versions(&definition);
        let paths: Vec<&str> = found.iter().map(|version| version.path.as_str()).collect();
        assert_eq!(paths, ["/apis/example.com/v1/widgets?limit=1", "/apis/example.com/v1beta1/widgets?limit=1"]);
        assert_eq!(found[0].webhook, "https://hook.example/c");
        assert!(versions(&json!({"spec": {"conversion": {"strategy": "None"}}})).is_empty());
    }
}
