//! Controller that deletes the contents of terminating namespaces after their termination delay.

use std::sync::Arc;

use crate::cluster::Cluster;

/// Runs the controller for the server's lifetime.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    let mut terminating = cluster.store.terminating();
    loop {
        let Some(due_at) = cluster.store.read(|state| state.terminating.next()) else {
            if terminating.changed().await.is_err() {
                return;
            }
            continue;
        };
        // The termination delay is constant, so namespaces become due in the order of their deletion.
        tokio::time::sleep(due_at.saturating_sub(cluster.clock.elapsed())).await;
        cluster.store.write(crate::storage::State::end_namespaces);
    }
}
