//! Accepting connections at a replica's port, while the replica can be reached.

use std::sync::Arc;

use tokio::net::TcpListener;

use super::port::Port;
use super::{TaskGroup, serve};
use crate::cluster::Cluster;

/// Accepts connections while the replica is reachable.
pub(crate) async fn accept(cluster: Arc<Cluster>, replica: usize, first: TcpListener, tasks: Arc<TaskGroup>) {
    let conditions = &cluster.replicas[replica].conditions;
    let mut open = Some(first);
    loop {
        let unreachable = cluster.changed.until(|| !conditions.reachable());
        if let Some(listener) = open.take() {
            tokio::select! {
                biased;
                () = unreachable => {}
                () = accept_all(&cluster, replica, &listener, &tasks) => {}
            }
        }
        cluster.changed.until(|| conditions.reachable()).await;
        let opened = cluster.replicas[replica].port.as_ref().map(Port::listen);
        match opened.map(|listener| listener.and_then(TcpListener::from_std)) {
            Some(Ok(listener)) => open = Some(listener),
            Some(Err(error)) => {
                tracing::warn!(replica, %error, "the port cannot be opened again");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            None => return,
        }
    }
}

async fn accept_all(cluster: &Arc<Cluster>, replica: usize, listener: &TcpListener, tasks: &Arc<TaskGroup>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Events are small and must not wait for each other's acknowledgement.
                let _ = stream.set_nodelay(true);
                let runtime = tasks.runtime().clone();
                tasks.spawn(serve::connection(Arc::clone(cluster), replica, stream, runtime));
            }
            Err(error) => {
                tracing::debug!(replica, %error, "a connection was not accepted");
                tokio::task::yield_now().await;
            }
        }
    }
}
