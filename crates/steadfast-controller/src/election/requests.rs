//! Requests about leases, each with a timeout.

use std::time::Duration;

use futures::TryStreamExt as _;
use http::Request;
use serde::de::DeserializeOwned;
use steadfast::Connection;
use steadfast::kube;
use steadfast::kube::core::{WatchEvent, request};
use steadfast::transport::{Deadlines, Placement};

/// Maximum number of lease states read in one request.
const MAX_STATES: usize = 1000;

/// Sends requests about leases.
pub(super) struct Requests {
    connection: Connection,
    client: kube::Client,
    /// Timeout of one request.
    timeout: Duration,
}

impl Requests {
    pub(super) fn new(connection: Connection, timeout: Duration) -> Self {
        let client = connection.client();
        Self { connection, client, timeout }
    }

    /// Returns the server's response, or the reason for its absence. `on_recent_connection` requests a recently opened
    /// connection.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        on_recent_connection: bool,
    ) -> Result<kube::Result<T>, String> {
        let request = self.prepare(request, on_recent_connection)?;
        // The timeout includes all attempts while the server is overloaded.
        self.with_timeout(async { Ok(self.client.request::<T>(request).await) }).await
    }

    /// Returns the states that a watch delivers, up to the one that `is_last` accepts. An error contains the reason why
    /// a state is missing.
    pub(super) async fn read_events_until<T: Clone + DeserializeOwned>(
        &self,
        watch: Result<Request<Vec<u8>>, request::Error>,
        on_recent_connection: bool,
        is_last: impl Fn(&T) -> bool,
    ) -> Result<Vec<T>, String> {
        let watch = self.prepare(watch, on_recent_connection)?;
        let to_message = |error: kube::Error| error.to_string();
        self.with_timeout(async {
            let mut events = Box::pin(self.client.request_events::<T>(watch).await.map_err(to_message)?);
            let mut states = Vec::new();
            while let Some(event) = events.try_next().await.map_err(to_message)? {
                match event {
                    WatchEvent::Added(state) | WatchEvent::Modified(state) => {
                        let is_last = is_last(&state);
                        states.push(state);
                        if is_last {
                            return Ok(states);
                        }
                    }
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Deleted(_) => return Err("the lease was deleted in between".to_owned()),
                    WatchEvent::Error(failure) => return Err(failure.message),
                }
                if states.len() >= MAX_STATES {
                    return Err(format!("the lease has more than {MAX_STATES} states"));
                }
            }
            Err("the server ended the watch before the last state".to_owned())
        })
        .await
    }

    fn prepare(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        on_recent_connection: bool,
    ) -> Result<Request<Vec<u8>>, String> {
        let mut request = request.map_err(|error| error.to_string())?;
        let timeout = Some(self.timeout);
        // Both deadlines are set, so that a server that sends headers and then stalls counts as unresponsive.
        request.extensions_mut().insert(Deadlines { headers: timeout, progress: timeout });
        // The previous request got no response, so its connection may be dead.
        if on_recent_connection {
            request.extensions_mut().insert(Placement::RecentlyOpened);
        }
        Ok(request)
    }

    async fn with_timeout<T>(&self, request: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        let environment = self.connection.environment();
        tokio::select! {
            biased;
            response = request => response,
            () = environment.sleep_until(environment.now() + self.timeout) => {
                Err(format!("no response within {:.1} s", self.timeout.as_secs_f64()))
            }
        }
    }
}
