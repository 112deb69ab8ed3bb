//! Requests about the other members: listing all leases, and deleting an expired one.

use std::time::Duration;

use serde_json::Value;
use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{DeleteParams, ListParams, ObjectList, Preconditions};
use steadfast::kube::core::{Request, Resource as _};

use super::super::leases::RESOURCE;
use super::super::requests::Requests;
use super::super::trouble::{ElectionTrouble, RequestInfo};
use super::membership::{GROUP, Lapsed};

/// Leases of one group.
pub(super) struct GroupLeases {
    requests: Requests,
    request: Request,
    namespace: String,
    all: ListParams,
}

impl GroupLeases {
    /// Builds requests with the timeout `patience`.
    pub(super) fn new(connection: Connection, namespace: &str, group: &str, patience: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        let all = ListParams::default().labels(&format!("{GROUP}={group}"));
        Self { requests: Requests::new(connection, patience), request, namespace: namespace.to_owned(), all }
    }

    /// Lists all leases. Names no version, so the server must not use a stale cache.
    pub(super) async fn read(&self, elsewhere: bool) -> Result<Vec<Lease>, ElectionTrouble> {
        let asked = self.asked("list", None);
        let list = self.requests.ask::<ObjectList<Lease>>(self.request.list(&self.all), elsewhere).await;
        let list = list.map_err(|why| asked.failed(why))?.map_err(|error| asked.answered(&error))?;
        // The request has no limit, so the list is expected in one response. A partial list would hide members.
        match list.metadata.continue_.as_deref() {
            None | Some("") => Ok(list.items),
            Some(_) => Err(asked.failed("the server returned an incomplete list")),
        }
    }

    /// Deletes a lease if unchanged. Returns true on success.
    pub(super) async fn delete(&self, lapsed: &Lapsed) -> Result<bool, ElectionTrouble> {
        let asked = self.asked("delete", Some(&lapsed.name));
        // The preconditions protect the lease of a member that renewed since the read.
        let same = Preconditions { uid: Some(lapsed.uid.clone()), resource_version: Some(lapsed.version.clone()) };
        let parameters = DeleteParams::default().preconditions(same);
        let deleted = self.requests.ask::<Value>(self.request.delete(&lapsed.name, &parameters), false).await;
        match deleted.map_err(|why| asked.failed(why))? {
            Ok(_) => Ok(true),
            // 404: already deleted. 409: the lease changed, so its member is alive.
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
            Err(error) => Err(asked.answered(&error)),
        }
    }

    /// Describes a request for errors.
    pub(super) fn asked<'a>(&'a self, verb: &'static str, name: Option<&'a str>) -> RequestInfo<'a> {
        RequestInfo { verb, resource: RESOURCE, namespace: &self.namespace, name }
    }
}
