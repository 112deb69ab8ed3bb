//! An aggregated API: another API server behind the reference.

use std::net::SocketAddr;
use std::time::Instant;

use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::{POLL_INTERVAL, Reference, WAIT_TIMEOUT};
use crate::TestkitError;

/// Namespace of the services through which the reference finds aggregated APIs.
const NAMESPACE: &str = "default";

impl Reference {
    /// Registers the TLS server at `address` on this machine as the API for `version` of `group`. Waits until the
    /// first API server of the reference reports the API as available. The API server requests the resources of the
    /// version from this address, and does not verify the certificate.
    ///
    /// # Errors
    ///
    /// Returns an error if the API does not become available.
    pub async fn aggregate(&self, group: &str, version: &str, address: SocketAddr) -> Result<(), TestkitError> {
        let client = self.connection().await?.client();
        let name = format!("{version}.{group}");
        let service = name.replace('.', "-");
        let services = Api::namespaced(client.clone(), NAMESPACE);
        // An external name lets kube-apiserver reach a server outside of the cluster.
        let service_object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": service},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        services
            .create(
                &PostParams::default(),
                &serde_json::from_value::<k8s_openapi::api::core::v1::Service>(service_object)?,
            )
            .await?;
        let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let registrations: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
        let registration = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name},
            "spec": {
                "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": NAMESPACE, "name": service, "port": address.port()},
                "insecureSkipTLSVerify": true,
            },
        });
        registrations.create(&PostParams::default(), &serde_json::from_value(registration)?).await?;
        // The availability controller checks the API asynchronously. Until then, requests receive status 503.
        let started = Instant::now();
        loop {
            let conditions = registrations.get(&name).await?.data["status"]["conditions"].take();
            if conditions.as_array().into_iter().flatten().any(is_available) {
                return Ok(());
            }
            if started.elapsed() > WAIT_TIMEOUT {
                return Err(format!("{name} is not available after {WAIT_TIMEOUT:?}: {conditions}").into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn is_available(condition: &Value) -> bool {
    condition["type"] == "Available" && condition["status"] == "True"
}
