//! Recognition of objects that replace an object with the same name.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use steadfast::{DeleteReason, ObjectKey};

/// Maximum number of remembered deletions of one resource.
const MAX_REMEMBERED: usize = 1024;

/// Period after a deletion in which a new object of the same name counts as its replacement.
const REPLACEMENT_PERIOD: Duration = Duration::from_secs(600);

/// The latest deletions of one resource, by name.
#[derive(Debug, Default)]
pub(super) struct Deletions {
    by_key: HashMap<ObjectKey, (Instant, DeleteReason)>,
    /// Keys in the order of their deletions.
    order: VecDeque<ObjectKey>,
}

impl Deletions {
    /// Remembers the deletion of `key` at `now`.
    pub(super) fn deleted(&mut self, key: &ObjectKey, reason: DeleteReason, now: Instant) {
        if self.by_key.insert(key.clone(), (now, reason)).is_none() {
            self.order.push_back(key.clone());
        }
        while self.order.len() > MAX_REMEMBERED {
            if let Some(oldest) = self.order.pop_front() {
                self.by_key.remove(&oldest);
            }
        }
    }

    /// Returns the description of a new object at `key`, if it replaces a deleted one.
    pub(super) fn replacement(&mut self, key: &ObjectKey, now: Instant) -> Option<String> {
        let (deleted_at, reason) = self.by_key.remove(key)?;
        self.order.retain(|ordered| ordered != key);
        let elapsed = now.duration_since(deleted_at);
        if reason == DeleteReason::Replaced {
            return Some("replaces the object of the same name".to_owned());
        }
        let seconds = elapsed.as_secs_f64();
        (elapsed <= REPLACEMENT_PERIOD).then(|| format!("recreated under the same name after {seconds:.1} s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacement_is_recognized_once() {
        let (mut deletions, start) = (Deletions::default(), Instant::now());
        let key = ObjectKey::namespaced("shop", "web-0");
        assert_eq!(deletions.replacement(&key, start), None);
        deletions.deleted(&key, DeleteReason::Deleted, start);
        let now = start + Duration::from_millis(2300);
        assert_eq!(deletions.replacement(&key, now).as_deref(), Some("recreated under the same name after 2.3 s"));
        assert_eq!(deletions.replacement(&key, now), None);
        deletions.deleted(&key, DeleteReason::Replaced, start);
        assert_eq!(deletions.replacement(&key, now).as_deref(), Some("replaces the object of the same name"));
        deletions.deleted(&key, DeleteReason::Deleted, start);
        assert_eq!(deletions.replacement(&key, start + Duration::from_secs(601)), None);
    }

    #[test]
    fn remembered_deletions_are_bounded() {
        let (mut deletions, start) = (Deletions::default(), Instant::now());
        for number in 0..2 * MAX_REMEMBERED {
            deletions.deleted(&ObjectKey::namespaced("shop", format!("web-{number}")), DeleteReason::Deleted, start);
        }
        assert_eq!((deletions.by_key.len(), deletions.order.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert!(deletions.replacement(&ObjectKey::namespaced("shop", "web-0"), start).is_none());
    }
}
