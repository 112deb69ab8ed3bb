//! Check `API groups`: discovery of each API group, and availability of aggregated APIs.

use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use futures::stream;
use serde_json::Value;

use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{get, get_json};
use crate::changes::phrases::{find_condition, list};

/// Name of the check.
pub(super) const CHECK: &str = "API groups";

/// Deadline of the discovery of one group.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(4);

/// Duration above which the discovery of a group is reported as slow.
const SLOW: Duration = Duration::from_secs(1);

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 8;

const EFFECT: &str = "informers of this group do not sync; discovery is slow or incomplete for all clients, and the deletion of \
                   namespaces may hang";

/// Checks the aggregated APIs and the discovery of all groups.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let (mut findings, (groups, discovered)) = join(services(context), discovery(context)).await;
    // A failed APIService explains the failed discovery of its group.
    let known = |group: &str| findings.iter().any(|finding: &Finding| is_service_of(&finding.subject, group));
    let new: Vec<Finding> = discovered.into_iter().filter(|finding| !known(&finding.subject)).collect();
    findings.extend(new);
    if findings.is_empty() {
        let server = context.connection.server();
        findings.push(Finding::ok(CHECK, server, format!("{groups} API groups respond")));
    }
    findings
}

/// Returns whether `service` is the name of an `APIService` of `group`: the version, a dot and the group.
fn is_service_of(service: &str, group: &str) -> bool {
    service.split_once('.').is_some_and(|(_, served)| served == group)
}

/// Returns findings about aggregated APIs that are not available.
async fn services(context: &CheckContext) -> Vec<Finding> {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices?limit=500";
    // Without the permission, the discovery of the groups shows failures too.
    let services = get_json(&context.connection, path).await.unwrap_or_default();
    list(&services, "items").iter().filter_map(unavailable).collect()
}

fn unavailable(service: &Value) -> Option<Finding> {
    let available = find_condition(list(service, "status/conditions"), "Available")?;
    if available["status"] == "True" {
        return None;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&service["metadata"]["name"]);
    let backend = &service["spec"]["service"];
    let remedy = format!(
        "check the pods and endpoints of the service {}/{}, and the caBundle of the APIService; delete the APIService if \
         its server was removed",
        text(&backend["namespace"]),
        text(&backend["name"]),
    );
    let message =
        format!("the aggregated API is not available: {} {}", text(&available["reason"]), text(&available["message"]));
    Some(Finding::failure(CHECK, name, message, EFFECT, remedy))
}

/// Requests the discovery of the preferred version of each group. Returns the number of groups, and findings about
/// failed and slow ones.
async fn discovery(context: &CheckContext) -> (usize, Vec<Finding>) {
    let groups = match get_json(&context.connection, "/apis").await {
        Ok(groups) => groups["groups"].as_array().cloned().unwrap_or_default(),
        Err(error) => return (0, vec![Finding::not_checked(CHECK, context.connection.server(), error)]),
    };
    let number = groups.len();
    let checked = stream::iter(groups).map(|group| async move { of_group(context, &group).await });
    let findings: Vec<_> = checked.buffered(MAX_CONCURRENT_REQUESTS).collect().await;
    (number, findings.into_iter().flatten().collect())
}

async fn of_group(context: &CheckContext, group: &Value) -> Option<Finding> {
    let name = group["name"].as_str().unwrap_or_default();
    let version = group["preferredVersion"]["groupVersion"].as_str()?;
    let remedy = "check the server of this API group: `kubectl get apiservices` shows its service";
    let reply = get(&context.connection, &format!("/apis/{version}"), DISCOVERY_DEADLINE).await;
    match reply.and_then(|reply| reply.json().map(|_| reply.elapsed)) {
        Ok(time) if time > SLOW => Some(Finding::warning(
            CHECK,
            name,
            format!("discovery took {:.1} s", time.as_secs_f64()),
            "clients that read discovery wait for this group",
            remedy,
        )),
        Ok(_) => None,
        Err(error) => Some(Finding::failure(CHECK, name, format!("discovery failed: {error}"), EFFECT, remedy)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_belongs_to_exact_group() {
        assert!(is_service_of("v1beta1.metrics.k8s.io", "metrics.k8s.io"));
        for group in ["k8s.io", "custom.metrics.k8s.io", "v1beta1.metrics.k8s.io", ""] {
            assert!(!is_service_of("v1beta1.metrics.k8s.io", group), "{group}");
        }
    }

    #[test]
    fn unavailable_service_is_named() {
        let service = |status: &str| {
            json!({
                "metadata": {"name": "v1beta1.metrics.k8s.io"},
                "spec": {"service": {"namespace": "kube-system", "name": "metrics-server"}},
                "status": {"conditions": [
                    {"type": "Available", "status": status, "reason": "MissingEndpoints", "message": "no addresses"},
                ]},
            })
        };
        assert_eq!(unavailable(&service("True")), None);
        let finding = unavailable(&service("False")).expect("a finding");
        assert_eq!(finding.subject, "v1beta1.metrics.k8s.io");
        assert!(finding.message.ends_with("MissingEndpoints no addresses"), "{finding:?}");
        assert!(finding.remedy.is_some_and(|remedy| remedy.contains("kube-system/metrics-server")));
    }
}
