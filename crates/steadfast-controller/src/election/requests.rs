//! Requests about leases, each within its time.

use std::time::Duration;

use futures::TryStreamExt as _;
use http::Request;
use serde::de::DeserializeOwned;
use steadfast::Connection;
use steadfast::kube;
use steadfast::kube::core::{WatchEvent, request};
use steadfast::transport::{Deadlines, Placement};

/// How many states are read at most that one lease went through.
const STATES: usize = 1000;

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
        let request = self.prepared(request, elsewhere)?;
        // Also all attempts together that are made where the server is too busy.
        self.in_time(async { Ok(self.client.request::<T>(request).await) }).await
    }

    /// The states that a watch tells, up to and with one that is the last; or why they are not all known.
    pub(super) async fn follow<T: Clone + DeserializeOwned>(
        &self,
        watch: Result<Request<Vec<u8>>, request::Error>,
        elsewhere: bool,
        is_last: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, String> {
        let watch = self.prepared(watch, elsewhere)?;
        let told = |error: kube::Error| error.to_string();
        self.in_time(async {
            let mut events = Box::pin(self.client.request_events::<T>(watch).await.map_err(told)?);
            let mut states = Vec::new();
            while let Some(event) = events.try_next().await.map_err(told)? {
                match event {
                    WatchEvent::Added(state) | WatchEvent::Modified(state) => {
                        let is_last = is_last(&state);
                        states.push(state);
                        if is_last {
                            return Ok(states);
                        }
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Deleted(_) => return Err("it was deleted in between".to_owned()),
                    WatchEvent::Error(failure) => return Err(failure.message),
                }
                if states.len() >= STATES {
                    return Err(format!("it went through more than {STATES} states"));
                }
            }
            Err("the server ended the watch before the last one".to_owned())
        })
        .await
    }

    fn prepared(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        elsewhere: bool,
    ) -> Result<Request<Vec<u8>>, String> {
        let mut request = request.map_err(|error| error.to_string())?;
        let patience = Some(self.patience);
        request.extensions_mut().insert(Deadlines { headers: patience, progress: patience });
        if elsewhere {
            request.extensions_mut().insert(Placement::Elsewhere);
        }
        Ok(request)
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let environment = self.connection.environment();
        tokio::select! {
            biased;
            answer = answer => answer,
            () = environment.sleep_until(environment.now() + self.patience) => {
                Err(format!("no answer within {:.1} s", self.patience.as_secs_f64()))
            }
        }
    }
}
