//! Locks by sink and object.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Sink and object.
type Key = (String, String);

/// Locks by sink and object. A lock exists only while held or awaited.
#[derive(Default)]
pub(crate) struct KeyLocks(Mutex<HashMap<Key, Arc<AsyncMutex<()>>>>);

/// A held or awaited lock.
pub(crate) struct KeyLock<'a> {
    key_locks: &'a KeyLocks,
    key: Key,
    /// `None` while awaiting the lock.
    guard: Option<OwnedMutexGuard<()>>,
}

impl KeyLocks {
    /// Waits for the lock of this sink and object.
    pub(crate) async fn acquire(&self, sink: &str, object: &str) -> KeyLock<'_> {
        let key = (sink.to_owned(), object.to_owned());
        // The reference is taken under the map's lock, so a concurrent drop does not remove the entry.
        let lock = self.locks().entry(key.clone()).or_default().clone();
        // Created before the wait, so that a cancelled caller removes the entry on drop, too.
        let mut key_lock = KeyLock { key_locks: self, key, guard: None };
        key_lock.guard = Some(lock.lock_owned().await);
        key_lock
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<Key, Arc<AsyncMutex<()>>>> {
        self.0.lock()
    }
}

impl Drop for KeyLock<'_> {
    fn drop(&mut self) {
        let mut locks = self.key_locks.locks();
        // Released under the map's lock, before the count of references is read.
        self.guard = None;
        // Each waiting caller has a reference, so a count of one means that no caller waits.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn locks_of_one_object_exclude_each_other() {
        let locks_by_key = KeyLocks::default();
        let first = locks_by_key.acquire("log", "a").await;
        let _other = locks_by_key.acquire("log", "b").await;
        let _other_sink = locks_by_key.acquire("mail", "a").await;
        {
            let second = locks_by_key.acquire("log", "a");
            tokio::pin!(second);
            assert!(timeout(Duration::from_secs(1), second.as_mut()).await.is_err(), "the lock is held");
            drop(first);
            let _second = second.await;
            assert_eq!(locks_by_key.locks().len(), 3);
        }
        assert_eq!(locks_by_key.locks().len(), 2, "an unused lock is removed");
    }
}
