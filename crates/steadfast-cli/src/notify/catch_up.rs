//! Eligibility of a new replica to become the leader.
//!
//! A replica that starts with an empty state folder does not know which objects were deleted just before its first
//! list. If this replica became the leader, such deletions would never be delivered. So a new replica is not a
//! candidate until the leader has settled all changes up to this list. Without a leader, the new replica first gives
//! every other replica time to take over. Then it becomes a candidate itself.

use std::time::Duration;

use steadfast_notify::{SettledVersions, subscription_owner};
use tokio::time::Instant;

/// Progress of a new replica toward eligibility.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    /// Versions of the first list of its caches, by subscription.
    first_list_versions: SettledVersions,
}

impl CatchUp {
    /// Returns true if the leader has settled all changes up to the first list of each subscription.
    ///
    /// `reached` are the versions of this replica's caches. `published` are the versions that the leader has settled.
    /// Published subscriptions count only if `is_configured` returns true for them.
    pub(super) fn has_caught_up(
        &mut self,
        reached: &SettledVersions,
        published: &SettledVersions,
        is_configured: impl Fn(&str, &str) -> bool,
    ) -> bool {
        for (subscription, version) in reached {
            // A version after the first list is also safe: it only delays the replica.
            self.first_list_versions.entry(subscription.clone()).or_insert(*version);
        }
        // This replica never lists for a rule or sink outside its configuration, and would wait forever for such a
        // subscription.
        let is_relevant =
            |subscription: &str| subscription_owner(subscription).is_some_and(|(rule, sink)| is_configured(rule, sink));
        let is_settled = |subscription: &String| {
            let first_listed = self.first_list_versions.get(subscription);
            first_listed
                .is_some_and(|first_listed| published.get(subscription).is_some_and(|settled| first_listed <= settled))
        };
        // An empty set is not enough: a leader without publications may still have deletions to deliver.
        let mut subscriptions = self
            .first_list_versions
            .keys()
            .chain(published.keys().filter(|subscription| is_relevant(subscription)))
            .peekable();
        subscriptions.peek().is_some() && subscriptions.all(is_settled)
    }
}

/// Maximum time that counts as observed between two reads of the lease. The reads are about one second apart. A longer
/// gap means that the process was frozen, or that the API server was unreachable. The lease may have been renewed in
/// such a gap.
const MAX_OBSERVED_GAP: Duration = Duration::from_secs(3);

/// Detects that no replica leads: the lease is not renewed.
#[derive(Debug)]
pub(super) struct LeaseWatch<T> {
    last_renewal: Option<T>,
    /// Start of the last successful read.
    last_read_at: Option<Instant>,
    /// Observed time without a renewal.
    unrenewed_for: Duration,
}

impl<T: PartialEq> LeaseWatch<T> {
    pub(super) fn new() -> Self {
        Self { last_renewal: None, last_read_at: None, unrenewed_for: Duration::ZERO }
    }

    /// Records the renewal of the lease of a successful read, or `None` without a holder. `read_at` is the time before
    /// the request. Returns true if the lease was observed for `timeout` without a renewal.
    ///
    /// Only the time between two successful reads counts, up to 3 s for each pair of reads.
    pub(super) fn is_abandoned(&mut self, read_at: Instant, renewal: Option<T>, timeout: Duration) -> bool {
        // Measures on the local clock: the time in the lease comes from the clock of another machine, which may differ.
        let gap = self.last_read_at.replace(read_at).map(|last_read_at| read_at.duration_since(last_read_at));
        if renewal.is_some() && renewal != self.last_renewal {
            (self.last_renewal, self.unrenewed_for) = (renewal, Duration::ZERO);
        } else {
            self.unrenewed_for += gap.unwrap_or_default().min(MAX_OBSERVED_GAP);
        }
        self.unrenewed_for >= timeout
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    fn versions(versions: &[(&str, u64)]) -> SettledVersions {
        versions.iter().map(|(subscription, version)| ((*subscription).to_owned(), *version)).collect()
    }

    #[test]
    fn new_replica_waits_for_its_first_list() {
        let mut catch_up = CatchUp::default();
        let configured = |rule: &str, sink: &str| (rule, sink) == ("a", "log");
        let mut has_caught_up =
            |reached, published| catch_up.has_caught_up(&versions(reached), &versions(published), configured);
        let published = [("a/log x", 7), ("a/log x until", 1_000_000), ("gone/log x", 9)];
        assert!(!has_caught_up(&[], &published), "nothing is listed yet");
        assert!(!has_caught_up(&[("a/log x", 8)], &published));
        assert!(!has_caught_up(&[("a/log x", 20)], &published), "versions after the first list do not count");
        assert!(has_caught_up(&[("a/log x", 30)], &[("a/log x", 8), ("gone/log x", 9)]));
        assert!(!has_caught_up(&[], &[]), "the leader has published nothing yet");
        assert!(!CatchUp::default().has_caught_up(&versions(&[]), &versions(&[]), configured));
    }

    /// Reads `renewal` one second after the last read. The timeout is 30 s.
    async fn read_after_a_second(watch: &mut LeaseWatch<u32>, renewal: Option<u32>) -> bool {
        sleep(Duration::from_secs(1)).await;
        watch.is_abandoned(Instant::now(), renewal, Duration::from_secs(30))
    }

    #[tokio::test(start_paused = true)]
    async fn lease_without_renewals_is_abandoned() {
        let mut watch = LeaseWatch::new();
        for second in 0..100 {
            assert!(!read_after_a_second(&mut watch, Some(second / 20)).await);
        }
        // The last renewal was first read 19 s ago.
        for _ in 0..10 {
            assert!(!read_after_a_second(&mut watch, Some(4)).await);
        }
        assert!(read_after_a_second(&mut watch, None).await);
    }

    #[tokio::test(start_paused = true)]
    async fn freeze_counts_as_no_missed_renewal() {
        let mut watch = LeaseWatch::new();
        assert!(!read_after_a_second(&mut watch, Some(1)).await);
        sleep(Duration::from_secs(1000)).await;
        assert!(!read_after_a_second(&mut watch, Some(1)).await, "the leader may have renewed the lease");
        assert!(!read_after_a_second(&mut watch, Some(2)).await);
        for _ in 0..29 {
            assert!(!read_after_a_second(&mut watch, Some(2)).await);
        }
        assert!(read_after_a_second(&mut watch, Some(2)).await);
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_server_counts_as_no_missed_renewal() {
        let mut watch = LeaseWatch::new();
        sleep(Duration::from_secs(60)).await;
        for _ in 0..30 {
            assert!(!read_after_a_second(&mut watch, None).await, "another replica may take the released lease first");
        }
        assert!(read_after_a_second(&mut watch, None).await);
    }
}
