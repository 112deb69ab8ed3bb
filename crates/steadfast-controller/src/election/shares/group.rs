//! The requests about the other members: all their leases, and the end of one that has lapsed.

use std::time::Duration;

use serde_json::Value;
use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{DeleteParams, ListParams, ObjectList, Preconditions};
use steadfast::kube::core::{Request, Resource as _};
use steadfast::transport::{Deadlines, Placement};

use super::membership::{GROUP, Lapsed};

/// The leases of one group.
pub(super) struct Group {
    connection: Connection,
    client: kube::Client,
    request: Request,
    all: ListParams,
    /// How long one request may take.
    patience: Duration,
}

impl Group {
    pub(super) fn new(connection: Connection, namespace: &str, group: &str, patience: Duration) -> Self {
        let client = connection.client();
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        let all = ListParams::default().labels(&format!("{GROUP}={group}"));
        Self { connection, client, request, all, patience }
    }

    /// All leases as they are now, not as some cache of the server has them: no version is named.
    pub(super) async fn read(&self, elsewhere: bool) -> Result<Vec<Lease>, String> {
        let mut request = self.request.list(&self.all).map_err(|error| error.to_string())?;
        request.extensions_mut().insert(self.deadlines());
        if elsewhere {
            request.extensions_mut().insert(Placement::Elsewhere);
        }
        let list = self.answer(self.client.request::<ObjectList<Lease>>(request)).await?;
        match list.metadata.continue_.as_deref() {
            None | Some("") => Ok(list.items),
            Some(_) => Err("the server has not listed all leases".to_owned()),
        }
    }

    /// Deletes a lease if it is still what it was; says whether it was.
    pub(super) async fn delete(&self, lapsed: &Lapsed) -> Result<bool, String> {
        let same = Preconditions { uid: Some(lapsed.uid.clone()), resource_version: Some(lapsed.version.clone()) };
        let parameters = DeleteParams::default().preconditions(same);
        let mut request = self.request.delete(&lapsed.name, &parameters).map_err(|error| error.to_string())?;
        request.extensions_mut().insert(self.deadlines());
        let deleted = async {
            match self.client.request::<Value>(request).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(false),
                Err(error) => Err(error),
            }
        };
        self.answer(deleted).await
    }

    fn deadlines(&self) -> Deadlines {
        Deadlines { headers: Some(self.patience), progress: Some(self.patience) }
    }

    /// The answer, all attempts together within the time that there is for it.
    async fn answer<T>(&self, answer: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
        let environment = self.connection.environment();
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|error| error.to_string()),
            () = environment.sleep_until(environment.now() + self.patience) => {
                Err(format!("no answer within {:.1} s", self.patience.as_secs_f64()))
            }
        }
    }
}
