//! Unread responses: watches with `kube`'s own client, whose task does not read them.

use futures::future::try_join_all;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::ObjectMeta;
use steadfast_apiserver::{ApiServer, Status};

use super::scenario_run::NAMESPACE;

/// Number of watches. Together, the data that may be sent on all watches exceeds the former receive window of a
/// connection: 64 MiB.
const WATCHES: usize = 20;

/// Number of secrets. Together they are larger than the data that may be sent of an unread response: 4 MiB.
const SECRETS: usize = 6;
const SECRET: usize = 700 * 1024;

/// Watches of secrets that stay open and unread while this value exists.
pub(super) struct Unread {
    _watches: Vec<BoxStream<'static, Result<WatchEvent<Secret>, kube::Error>>>,
}

impl Unread {
    /// Opens the watches with `client`, each from the version `from`. Version 0 starts with the existing objects.
    ///
    /// # Errors
    ///
    /// Returns an error if a watch is rejected, or if its response does not start.
    pub(super) async fn open(client: &kube::Client, from: &str) -> Result<Self, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let requested = (0..WATCHES).map(|_| {
            let secrets = secrets.clone();
            // All watches use one HTTP/2 connection, so that their unread data could exhaust its window.
            async move { secrets.watch(&WatchParams::default(), from).await }
        });
        let mut watches: Vec<BoxStream<'static, _>> = Vec::new();
        for watch in try_join_all(requested).await? {
            watches.push(Box::pin(watch));
        }
        Ok(Self { _watches: watches })
    }
}

/// Writes the objects that these watches report.
///
/// # Errors
///
/// Returns an error if the server rejects the writes.
pub(super) fn fill(server: &ApiServer) -> Result<(), Status> {
    for number in 0..SECRETS {
        server.create(&Secret {
            metadata: ObjectMeta {
                namespace: Some(NAMESPACE.to_owned()),
                name: Some(format!("large-{number}")),
                ..ObjectMeta::default()
            },
            data: Some([("value".to_owned(), ByteString(vec![b'x'; SECRET]))].into()),
            ..Secret::default()
        })?;
    }
    Ok(())
}
