//! Tasks that wake another task when caches change.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Calls `wake.notify_one()` after each change of one of `receivers`. Dropping the result stops the notifications.
pub(crate) fn wake_on_changes(
    receivers: impl IntoIterator<Item = watch::Receiver<u64>>,
    wake: &Arc<Notify>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for mut changed in receivers {
        let wake = wake.clone();
        tasks.spawn(async move {
            while changed.changed().await.is_ok() {
                wake.notify_one();
            }
        });
    }
    tasks
}
