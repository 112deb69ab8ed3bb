//! Tasks that wake another task when caches change.

use std::sync::Arc;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Notifies `news` of each change of a receiver. Dropping the result stops the notifications.
pub(crate) fn wake_on_changes(
    receivers: impl IntoIterator<Item = watch::Receiver<u64>>,
    news: &Arc<Notify>,
) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    for mut changed in receivers {
        let news = news.clone();
        watching.spawn(async move {
            while changed.changed().await.is_ok() {
                news.notify_one();
            }
        });
    }
    watching
}
