//! Identity of a server's cluster: the UID of the namespace `kube-system`, which exists for the cluster's whole
//! lifetime.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use serde_json::Value;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;

use crate::cache_storage::ClusterIdentity;
use crate::connection::Connection;

const PATH: &str = "/api/v1/namespaces/kube-system";

/// Request timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Backoff between attempts. The initial delays are longer than those of informers (R6).
const RETRY_BACKOFF: BackoffSettings = BackoffSettings {
    initial_delay: Duration::from_millis(250),
    second_delay: Duration::from_millis(500),
    max_delay: Duration::from_secs(8),
};

/// Requests the cluster's identity: once, or until the server responds if `retries` is true.
pub(super) async fn request_identity(connection: Connection, retries: bool) -> ClusterIdentity {
    let environment = connection.environment().clone();
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(RETRY_BACKOFF);
    loop {
        let identity = tokio::select! {
            biased;
            identity = request_once(&connection) => identity,
            () = environment.sleep_until(environment.now() + REQUEST_TIMEOUT) => {
                Err(format!("no response within {} s", REQUEST_TIMEOUT.as_secs()))
            }
        };
        match identity {
            Ok(identity) => return identity,
            Err(reason) if retries => tracing::debug!(why = %reason, "the identity of the cluster is not yet known"),
            Err(reason) => return unknown(&reason, ""),
        }
        environment.sleep_until(environment.now() + backoff.fail(&mut random)).await;
    }
}

/// Sends one request. Returns an error if a retry could succeed.
async fn request_once(connection: &Connection) -> Result<ClusterIdentity, String> {
    let request = Request::get(PATH).body(Vec::new()).map_err(|error| error.to_string())?;
    match connection.client().request::<Value>(request).await {
        Ok(namespace) => match namespace["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty()) {
            // A rebuilt cluster may keep its URL and its certificates, but gets a new UID.
            Some(uid) => Ok(ClusterIdentity::Cluster(uid.to_owned())),
            None => Ok(unknown("the namespace has no UID", "")),
        },
        // Final responses of the server. Other errors can be transient.
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
            let remedy = if status.code == 403 { MISSING_PERMISSION } else { "" };
            Ok(unknown(&format!("{} {}", status.code, status.reason), remedy))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Remedy for a response without the permission to read the namespace.
const MISSING_PERMISSION: &str = "; a program with a checkpoint needs `get` on this namespace to resume without a list";

/// Returns an unknown identity with its reason and a remedy, which may be empty.
fn unknown(reason: &str, remedy: &str) -> ClusterIdentity {
    let reason = format!("cannot read the identity of the cluster from the namespace kube-system ({reason}){remedy}");
    ClusterIdentity::Unknown(Arc::from(reason))
}
