//! Answers that nobody reads: watches of `kube`'s own, whose task is busy with something else.

use futures::future::try_join_all;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::ObjectMeta;
use steadfast_apiserver::{ApiServer, Status};

use super::stage::NAMESPACE;

/// So many, each with all that may be sent of it, are more than all streams of a connection once had together: 64 MiB.
const WATCHES: usize = 20;

/// Together more than may be sent of one answer before it is read: 4 MiB.
const SECRETS: usize = 6;
const SECRET: usize = 700 * 1024;

/// Watches of secrets, open and not read while this lives.
pub(super) struct Unread {
    _watches: Vec<BoxStream<'static, Result<WatchEvent<Secret>, kube::Error>>>,
}

impl Unread {
    /// Opens them with `client`, each `from` this version; from 0, they begin with what there is.
    ///
    /// # Errors
    ///
    /// Where one of them is refused, or its answer does not begin.
    pub(super) async fn open(client: &kube::Client, from: &str) -> Result<Self, kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let asked = (0..WATCHES).map(|_| {
            let secrets = secrets.clone();
            async move { secrets.watch(&WatchParams::default(), from).await }
        });
        let mut watches: Vec<BoxStream<'static, _>> = Vec::new();
        for watch in try_join_all(asked).await? {
            watches.push(Box::pin(watch));
        }
        Ok(Self { _watches: watches })
    }
}

/// Writes what such watches report.
///
/// # Errors
///
/// Where the server takes no writes.
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
