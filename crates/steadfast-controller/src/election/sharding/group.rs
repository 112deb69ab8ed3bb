//! Requests about the other members: listing all leases, and deleting an expired one.

use std::time::Duration;

use serde_json::Value;
use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{DeleteParams, ListParams, ObjectList, Preconditions};
use steadfast::kube::core::{Request, Resource as _};

use super::super::lease_error::{LeaseError, RequestInfo};
use super::super::leases::RESOURCE;
use super::super::requests::Requests;
use super::membership::{ExpiredLease, GROUP_LABEL};

/// Leases of one group.
pub(super) struct GroupLeases {
    requests: Requests,
    request: Request,
    namespace: String,
    all: ListParams,
}

impl GroupLeases {
    /// Builds requests with this `timeout`.
    pub(super) fn new(connection: Connection, namespace: &str, group: &str, timeout: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        let all = ListParams::default().labels(&format!("{GROUP_LABEL}={group}"));
        Self { requests: Requests::new(connection, timeout), request, namespace: namespace.to_owned(), all }
    }

    /// Lists all leases. Names no version, so the server must not use a stale cache.
    pub(super) async fn read(&self, on_recent_connection: bool) -> Result<Vec<Lease>, LeaseError> {
        let info = self.request_info("list", None);
        let list = self.requests.send::<ObjectList<Lease>>(self.request.list(&self.all), on_recent_connection).await;
        let list = list.map_err(|reason| info.no_response(reason))?.map_err(|error| info.error_response(&error))?;
        // The request has no limit, so the list is expected in one response. A partial list would hide members.
        match list.metadata.continue_.as_deref() {
            None | Some("") => Ok(list.items),
            Some(_) => Err(info.no_response("the server returned an incomplete list")),
        }
    }

    /// Deletes a lease if unchanged. Returns true on success.
    pub(super) async fn delete(&self, expired: &ExpiredLease) -> Result<bool, LeaseError> {
        let info = self.request_info("delete", Some(&expired.name));
        // The preconditions protect the lease of a member that renewed since the read.
        let same = Preconditions { uid: Some(expired.uid.clone()), resource_version: Some(expired.version.clone()) };
        let parameters = DeleteParams::default().preconditions(same);
        let deleted = self.requests.send::<Value>(self.request.delete(&expired.name, &parameters), false).await;
        match deleted.map_err(|reason| info.no_response(reason))? {
            Ok(_) => Ok(true),
            // 404: already deleted. 409: the lease changed, so its member is alive.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
            Err(error) => Err(info.error_response(&error)),
        }
    }

    /// Describes a request for errors.
    pub(super) fn request_info<'a>(&'a self, verb: &'static str, name: Option<&'a str>) -> RequestInfo<'a> {
        RequestInfo { verb, resource: RESOURCE, namespace: &self.namespace, name }
    }
}
