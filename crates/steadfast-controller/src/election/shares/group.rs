//! The requests about the other members: all their leases, and the end of one that has lapsed.

use std::time::Duration;

use serde_json::Value;
use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{DeleteParams, ListParams, ObjectList, Preconditions};
use steadfast::kube::core::{Request, Resource as _};

use super::super::requests::Requests;
use super::membership::{GROUP, Lapsed};

/// The leases of one group.
pub(super) struct Group {
    requests: Requests,
    request: Request,
    all: ListParams,
}

impl Group {
    /// Of which one request may take so long.
    pub(super) fn new(connection: Connection, namespace: &str, group: &str, patience: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        let all = ListParams::default().labels(&format!("{GROUP}={group}"));
        Self { requests: Requests::new(connection, patience), request, all }
    }

    /// All leases as they are now, not as some cache of the server has them: no version is named.
    pub(super) async fn read(&self, elsewhere: bool) -> Result<Vec<Lease>, String> {
        let list = self.requests.ask::<ObjectList<Lease>>(self.request.list(&self.all), elsewhere).await?;
        let list = list.map_err(|error| error.to_string())?;
        match list.metadata.continue_.as_deref() {
            None | Some("") => Ok(list.items),
            Some(_) => Err("the server has not listed all leases".to_owned()),
        }
    }

    /// Deletes a lease if it is still what it was; says whether it was.
    pub(super) async fn delete(&self, lapsed: &Lapsed) -> Result<bool, String> {
        let same = Preconditions { uid: Some(lapsed.uid.clone()), resource_version: Some(lapsed.version.clone()) };
        let parameters = DeleteParams::default().preconditions(same);
        match self.requests.ask::<Value>(self.request.delete(&lapsed.name, &parameters), false).await? {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
