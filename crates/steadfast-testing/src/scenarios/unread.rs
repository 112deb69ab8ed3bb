//! Unread responses: watches with `kube`'s own client, whose task does not read them.

use futures::future::try_join_all;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::ObjectMeta;
use steadfast_apiserver::{ApiServer, Status};

use super::scenario_run::NAMESPACE;

/// Number of watches. Their receive windows of 4 MiB add up to 80 MiB. That is more than the 64 MiB which an earlier
/// version allowed for a whole connection.
const WATCH_COUNT: usize = 20;

/// Number of secrets. Together they are larger than the receive window of one response, 4 MiB.
const SECRET_COUNT: usize = 6;
const SECRET_BYTES: usize = 700 * 1024;

/// Watches of secrets that stay open and unread while this value exists.
pub(super) struct UnreadWatches {
    _watches: Vec<BoxStream<'static, Result<WatchEvent<Secret>, kube::Error>>>,
}

impl UnreadWatches {
    /// Opens the watches with `client`, each from `version`. Version 0 starts with the existing objects.
    ///
    /// # Errors
    ///
    /// Returns an error if a watch is rejected, or if its response does not start.
    pub(super) async fn open(client: &kube::Client, version: &str) -> Result<Self, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let watch_requests = (0..WATCH_COUNT).map(|_| {
            let secrets = secrets.clone();
            // All watches use one HTTP/2 connection, so that their unread data could exhaust its window.
            async move { secrets.watch(&WatchParams::default(), version).await }
        });
        let mut watches: Vec<BoxStream<'static, _>> = Vec::new();
        for watch in try_join_all(watch_requests).await? {
            watches.push(Box::pin(watch));
        }
        Ok(Self { _watches: watches })
    }
}

/// Creates the secrets that the unread watches deliver.
///
/// # Errors
///
/// Returns an error if the server rejects the writes.
pub(super) fn create_large_secrets(server: &ApiServer) -> Result<(), Status> {
    for number in 0..SECRET_COUNT {
        server.create(&Secret {
            metadata: ObjectMeta {
                namespace: Some(NAMESPACE.to_owned()),
                name: Some(format!("large-{number}")),
                ..ObjectMeta::default()
            },
            data: Some([("value".to_owned(), ByteString(vec![b'x'; SECRET_BYTES]))].into()),
            ..Secret::default()
        })?;
    }
    Ok(())
}
