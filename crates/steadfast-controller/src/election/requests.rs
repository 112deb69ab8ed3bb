//! Requests about leases, each within its time.

use std::time::Duration;

use http::Request;
use serde::de::DeserializeOwned;
use steadfast::Connection;
use steadfast::kube;
use steadfast::kube::core::request;
use steadfast::transport::{Deadlines, Placement};

/// Who makes requests about leases.
pub(super) struct Requests {
    connection: Connection,
    client: kube::Client,
    /// How long one request may take.
    patience: Duration,
}

impl Requests {
    pub(super) fn new(connection: Connection, patience: Duration) -> Self {
        let client = connection.client();
        Self { connection, client, patience }
    }

    /// The server's answer; where the last one did not come, on a connection that is new (`elsewhere`). Without one, why.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        elsewhere: bool,
    ) -> Result<kube::Result<T>, String> {
        let mut request = request.map_err(|error| error.to_string())?;
        let patience = Some(self.patience);
        request.extensions_mut().insert(Deadlines { headers: patience, progress: patience });
        if elsewhere {
            request.extensions_mut().insert(Placement::Elsewhere);
        }
        let environment = self.connection.environment();
        // Also all attempts together that are made where the server is too busy.
        tokio::select! {
            biased;
            answer = self.client.request::<T>(request) => Ok(answer),
            () = environment.sleep_until(environment.now() + self.patience) => {
                Err(format!("no answer within {:.1} s", self.patience.as_secs_f64()))
            }
        }
    }
}
