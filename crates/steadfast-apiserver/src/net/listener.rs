//! Accepting connections at a replica's port, which is open while the replica can be reached.

use std::sync::Arc;

use super::{TaskGroup, serve};
use crate::cluster::Cluster;

/// Accepts what comes to the replica's port, if it has one.
pub(crate) async fn accept(cluster: Arc<Cluster>, replica: usize, tasks: Arc<TaskGroup>) {
    let Some(port) = &cluster.replicas[replica].port else { return };
    loop {
        match port.accept().await {
            Ok(stream) => {
                // Events are small and must not wait for each other's acknowledgement.
                let _ = stream.set_nodelay(true);
                let runtime = tasks.runtime().clone();
                tasks.spawn(serve::connection(Arc::clone(&cluster), replica, stream, runtime));
            }
            Err(error) => {
                tracing::debug!(replica, %error, "a connection was not accepted");
                tokio::task::yield_now().await;
            }
        }
    }
}
