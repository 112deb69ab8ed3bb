//! Users of the reference with fewer permissions than its administrator.

use std::time::Instant;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, PostParams};
use serde_json::json;
use steadfast::Connection;

use super::{POLL_INTERVAL, Reference, WAIT_TIMEOUT};
use crate::TestkitError;

impl Reference {
    /// Opens a connection to the first API server as `user`. Apart from the permissions from [`allow`](Self::allow),
    /// the user has only those that the server grants to every user.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection cannot be created.
    pub async fn connection_as(&self, user: &str) -> Result<Connection, TestkitError> {
        let mut config = self.kube_config().await?;
        config.auth_info.impersonate = Some(user.to_owned());
        Ok(Connection::new(config)?)
    }

    /// Grants `user` the `verbs` on the resource `plural` of `group` in all namespaces, and waits until the first API
    /// server applies the permission.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is rejected, or if the permission does not take effect in time.
    pub async fn allow(&self, user: &str, verbs: &[&str], group: &str, plural: &str) -> Result<(), TestkitError> {
        let client = self.connection().await?.client();
        let name = format!("{user}-{plural}.{group}");
        let role = json!({
            "metadata": {"name": name}, "rules": [{"apiGroups": [group], "resources": [plural], "verbs": verbs}],
        });
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        let params = PostParams::default();
        Api::<ClusterRole>::all(client.clone()).create(&params, &serde_json::from_value(role)?).await?;
        Api::<ClusterRoleBinding>::all(client).create(&params, &serde_json::from_value(binding)?).await?;
        // RBAC applies roles from a watch cache, so that a new binding takes effect after a delay.
        let reviews = Api::<SelfSubjectAccessReview>::all(self.connection_as(user).await?.client());
        let started = Instant::now();
        for verb in verbs {
            let review: SelfSubjectAccessReview = serde_json::from_value(json!({
                "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": plural}},
            }))?;
            while !reviews.create(&params, &review).await?.status.is_some_and(|status| status.allowed) {
                if started.elapsed() > WAIT_TIMEOUT {
                    return Err(format!("{user} still may not {verb} {plural} after {WAIT_TIMEOUT:?}").into());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}
