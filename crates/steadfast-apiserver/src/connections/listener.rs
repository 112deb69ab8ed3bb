//! Accept loop of a replica's port, which is open while the replica is reachable.

use std::sync::Arc;

use super::serve;
use crate::cluster::Cluster;
use crate::net::TaskGroup;

/// Accepts connections at the replica's port, if it has one.
pub(crate) async fn accept(cluster: Arc<Cluster>, replica: usize, tasks: Arc<TaskGroup>) {
    let Some(port) = &cluster.replicas[replica].port else { return };
    loop {
        match port.accept().await {
            Ok(stream) => {
                // Events are small and must not wait for the acknowledgement of previous ones.
                let _ = stream.set_nodelay(true);
                let runtime = tasks.runtime().clone();
                tasks.spawn(serve::serve_connection(Arc::clone(&cluster), replica, stream, runtime));
            }
            Err(error) => {
                tracing::debug!(replica, %error, "cannot accept a connection");
                // The system may have no free file descriptor, for example. Other tasks must run first and release
                // descriptors.
                tokio::task::yield_now().await;
            }
        }
    }
}
