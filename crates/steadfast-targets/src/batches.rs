//! Batches: many changes in few messages. The target applies a message completely or not at all. So a rejected
//! message is split until all valid changes are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Sends messages with several changes each.
pub(crate) trait BatchSender: Send {
    /// One change.
    type Change: Sync;
    /// Error of a rejected message.
    type Error: Send;

    /// Returns the size of a change within a message, in bytes.
    fn size(&self, change: &Self::Change) -> usize;

    /// Returns an ID of the change. The next attempt computes the same ID.
    fn id(&self, change: &Self::Change) -> String;

    /// Applies all of `changes` or none.
    fn send(&mut self, changes: &[&Self::Change]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns true if an error ends the whole attempt, because all further messages would fail too.
    fn ends_attempt(&self, error: &Self::Error) -> bool;
}

/// Bounds of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// Changes that failed in their last attempt. Each is sent last and in its own message, so that neither its rejection
/// nor a broken connection delays other changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailedChanges {
    /// Number of failed messages of each change, by the ID of the change.
    failures: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl FailedChanges {
    fn failures(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.failures.lock()
    }

    fn add(&self, ids: impl Iterator<Item = String>) {
        let mut failures = self.failures();
        for id in ids {
            let count = failures.entry(id).or_default();
            *count = count.saturating_add(1);
        }
    }

    fn clear(&self, ids: impl Iterator<Item = String>) {
        let mut failures = self.failures();
        ids.for_each(|id| _ = failures.remove(&id));
    }
}

/// Period for which a rejected entry is reported by name. The entry is retried afterwards.
const REJECTION_PERIOD: Duration = Duration::from_secs(60);

/// Entries that the target rejected individually. `validate` skips these entries for a minute, so that the mirror's
/// state describes the other entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct RejectionCache {
    state: Arc<Mutex<Rejections>>,
}

#[derive(Debug, Default)]
struct Rejections {
    /// True after the target accepted a change. Before that, a rejection may concern all entries.
    has_accepted_change: bool,
    /// Reason of each rejection and the end of its period, by a text that identifies entry and value.
    entries: BTreeMap<String, (String, Instant)>,
}

impl RejectionCache {
    fn state(&self) -> MutexGuard<'_, Rejections> {
        self.state.lock()
    }

    pub(crate) fn record_success(&self) {
        self.state().has_accepted_change = true;
    }

    pub(crate) fn add(&self, entries: impl Iterator<Item = String>, reason: &dyn std::fmt::Display) {
        let (mut state, now) = (self.state(), Instant::now());
        state.entries.retain(|_, (_, expires_at)| *expires_at > now);
        state.entries.extend(entries.map(|entry| (entry, (reason.to_string(), now + REJECTION_PERIOD))));
    }

    /// Returns the reason of the rejection of an entry within the period.
    pub(crate) fn reason(&self, entry: &str) -> Option<String> {
        let state = self.state();
        let (reason, expires_at) = state.entries.get(entry)?;
        (state.has_accepted_change && *expires_at > Instant::now()).then(|| reason.clone())
    }
}

/// Sends all of `changes`. Changes that did not fail in their last attempt keep their order.
///
/// # Errors
///
/// Returns the first error. Later changes were sent nevertheless, unless the error ended the attempt.
pub(crate) async fn send_in_batches<S: BatchSender>(
    mut sender: S,
    changes: &[S::Change],
    limits: BatchLimits,
    failed_changes: &FailedChanges,
) -> Result<(), S::Error> {
    let mut pending = split(&sender, changes, limits, failed_changes);
    // The batches form a stack with the first batch on top: the halves of a rejected batch are sent before later
    // batches.
    pending.reverse();
    let mut first_error = Ok(());
    while let Some(batch) = pending.pop() {
        // All changes count as failed until the response arrives, because the attempt may be cancelled in between.
        failed_changes.add(batch.iter().map(|change| sender.id(change)));
        match sender.send(&batch).await {
            Ok(()) => failed_changes.clear(batch.iter().map(|change| sender.id(change))),
            Err(error) if sender.ends_attempt(&error) => return first_error.and(Err(error)),
            // The target rejected the whole message without naming a change. Halving isolates the rejected changes.
            Err(_) if batch.len() > 1 => {
                failed_changes.clear(batch.iter().map(|change| sender.id(change)));
                let (front, back) = batch.split_at(batch.len() / 2);
                pending.extend([back.to_vec(), front.to_vec()]);
            }
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    first_error
}

/// Splits `changes` into messages: failed changes last, the others in order.
fn split<'a, S: BatchSender>(
    sender: &S,
    changes: &'a [S::Change],
    limits: BatchLimits,
    failed_changes: &FailedChanges,
) -> Vec<Vec<&'a S::Change>> {
    let mut failures = failed_changes.failures();
    let current_ids: BTreeSet<String> = changes.iter().map(|change| sender.id(change)).collect();
    // A change that is not needed any more does not count as failed.
    failures.retain(|id, _| current_ids.contains(id));
    let failures_of = |change: &S::Change| failures.get(&sender.id(change)).copied();
    let (mut suspected, unsuspected): (Vec<_>, Vec<_>) =
        changes.iter().partition(|change| failures_of(change).is_some());
    // A change that ends each attempt has more failures than changes that only shared its message, and comes last.
    suspected.sort_by_key(|change| failures_of(change));
    let mut batches: Vec<Vec<&S::Change>> = Vec::new();
    let mut bytes = 0;
    for change in unsuspected {
        let size = sender.size(change);
        match batches.last_mut() {
            Some(batch) if batch.len() < limits.count && size <= limits.bytes.saturating_sub(bytes) => {
                bytes += size;
                batch.push(change);
            }
            _ => {
                bytes = size;
                batches.push(vec![change]);
            }
        }
    }
    batches.extend(suspected.into_iter().map(|change| vec![change]));
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sender that rejects each message with an odd number. A negative number ends the whole attempt. Records the
    /// applied messages.
    #[derive(Default)]
    struct OddRejecter {
        sent: Vec<Vec<i32>>,
    }

    impl BatchSender for &mut OddRejecter {
        type Change = i32;
        type Error = &'static str;

        fn size(&self, change: &i32) -> usize {
            usize::try_from(change.abs()).unwrap_or(usize::MAX)
        }

        fn id(&self, change: &i32) -> String {
            change.to_string()
        }

        async fn send(&mut self, changes: &[&i32]) -> Result<(), &'static str> {
            if changes.iter().any(|change| **change < 0) {
                return Err("broken off");
            }
            if changes.iter().any(|change| **change % 2 == 1) {
                return Err("odd");
            }
            self.sent.push(changes.iter().map(|change| **change).collect());
            Ok(())
        }

        fn ends_attempt(&self, error: &&'static str) -> bool {
            *error == "broken off"
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rejection_is_reported_for_one_minute() {
        let rejections = RejectionCache::default();
        let add = |entry: &str| rejections.add(std::iter::once(entry.to_owned()), &"REFUSED");
        // No change has been accepted yet: the target may reject all.
        add("a");
        assert_eq!(rejections.reason("a"), None);
        rejections.record_success();
        assert_eq!((rejections.reason("a").as_deref(), rejections.reason("b")), (Some("REFUSED"), None));
        tokio::time::advance(REJECTION_PERIOD).await;
        assert_eq!(rejections.reason("a"), None);
    }

    const LIMITS: BatchLimits = BatchLimits { count: 4, bytes: 100 };

    #[tokio::test]
    async fn rejected_batch_is_split() {
        let (mut odd_rejecter, failed_changes) = (OddRejecter::default(), FailedChanges::default());
        let result = send_in_batches(&mut odd_rejecter, &[2, 4, 5, 6, 8, 10], LIMITS, &failed_changes).await;
        assert_eq!(result, Err("odd"));
        assert_eq!(odd_rejecter.sent, [vec![2, 4], vec![6], vec![8, 10]]);
        // In the next attempt, the rejected change no longer keeps the other changes out of one common message.
        let mut odd_rejecter = OddRejecter::default();
        let result = send_in_batches(&mut odd_rejecter, &[2, 4, 5, 6, 8], LIMITS, &failed_changes).await;
        assert_eq!(result, Err("odd"));
        assert_eq!(odd_rejecter.sent, [vec![2, 4, 6, 8]]);
    }

    #[tokio::test]
    async fn broken_connection_delays_only_its_batch() {
        let (mut odd_rejecter, failed_changes) = (OddRejecter::default(), FailedChanges::default());
        let changes = [2, 4, -1, 6, 8, 10];
        assert_eq!(send_in_batches(&mut odd_rejecter, &changes, LIMITS, &failed_changes).await, Err("broken off"));
        assert_eq!(odd_rejecter.sent, Vec::<Vec<i32>>::new());
        // In the next attempts, each change of the failed message is sent alone after the others. The faulty change
        // is sent last.
        for expected in
            [&[vec![8, 10], vec![2], vec![4]][..], &[vec![2, 4, 8, 10], vec![6]], &[vec![2, 4, 6, 8], vec![10]]]
        {
            let mut odd_rejecter = OddRejecter::default();
            assert_eq!(send_in_batches(&mut odd_rejecter, &changes, LIMITS, &failed_changes).await, Err("broken off"));
            assert_eq!(odd_rejecter.sent, expected);
        }
    }

    #[tokio::test]
    async fn batches_are_bounded_by_bytes() {
        let (mut odd_rejecter, failed_changes) = (OddRejecter::default(), FailedChanges::default());
        assert_eq!(send_in_batches(&mut odd_rejecter, &[60, 50, 40, 400, 2], LIMITS, &failed_changes).await, Ok(()));
        assert_eq!(odd_rejecter.sent, [vec![60], vec![50, 40], vec![400], vec![2]]);
    }
}
