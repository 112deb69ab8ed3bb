//! State shared by replicas: the version up to which all changes are settled, for each subscription. A subscription is a
//! rule with one source and one sink.
//!
//! The leader publishes the versions. A standby keeps each change pending until the published version has reached the
//! change. After becoming the leader, the standby delivers the remaining changes with the same IDs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use steadfast_targets::TermGate;
use tokio::sync::watch;

use crate::rule_source::RuleSource;

/// Version up to which all changes are settled, by the [name](subscription_name) of the subscription.
pub type SettledVersions = BTreeMap<String, u64>;

/// Returns the name of the subscription of `sink` to `source`. The name is equal in all replicas.
pub fn subscription_name(source: &RuleSource, sink: &str) -> String {
    let RuleSource { rule, cluster, scope, .. } = source;
    format!("{rule}/{sink} {cluster} {} {scope}", source.resource_name())
}

/// Suffix of the names whose value is an instant instead of a version.
const INSTANT_SUFFIX: &str = " until";

/// Returns the name under which the leader publishes an instant for `subscription`. Up to this instant, messages caused
/// by time or lookups are settled. The value is in nanoseconds since 1970.
pub(crate) fn recheck_name(subscription: &str) -> String {
    format!("{subscription}{INSTANT_SUFFIX}")
}

/// Returns the rule and the sink of the subscription with the name `subscription`. Returns `None` for the name of an
/// instant.
pub fn subscription_owner(subscription: &str) -> Option<(&str, &str)> {
    if subscription.ends_with(INSTANT_SUFFIX) {
        return None;
    }
    subscription.split_once(' ')?.0.split_once('/')
}

/// State of the deliveries that other replicas have published. Clones share the content.
#[derive(Clone)]
pub struct Replication {
    gate: TermGate,
    shared: Option<Arc<Shared>>,
}

struct Shared {
    /// `None` before the published versions were read.
    settled: watch::Sender<Option<SettledVersions>>,
    /// Names of all subscriptions ever published. Rules and sinks of these subscriptions are not new.
    known_subscriptions: Mutex<BTreeSet<String>>,
}

/// Decision about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryDecision {
    /// A leader has settled the change.
    Settled,
    /// This process is the leader.
    Deliver {
        /// True if an earlier leader watched this source. An object of the initial list is then delivered as a missed
        /// change, not as an initial state.
        was_watched: bool,
    },
}

impl Replication {
    /// Creates the replication of a process without replicas.
    pub fn none() -> Self {
        Self { gate: TermGate::always(), shared: None }
    }

    /// Creates the replication of a process that writes while `gate` is open.
    pub fn new(gate: TermGate) -> Self {
        let shared = Shared { settled: watch::Sender::new(None), known_subscriptions: Mutex::default() };
        Self { gate, shared: Some(Arc::new(shared)) }
    }

    /// Returns the permission to write.
    pub fn gate(&self) -> &TermGate {
        &self.gate
    }

    /// Applies the versions published by the leader.
    pub fn set_settled(&self, settled: SettledVersions) {
        let Some(shared) = &self.shared else { return };
        // The names are recorded before the versions: a task that a version wakes up must find its subscription.
        shared.known_subscriptions.lock().extend(settled.keys().cloned());
        shared.settled.send_if_modified(|previous| {
            let has_changed = previous.as_ref() != Some(&settled);
            *previous = Some(settled);
            has_changed
        });
    }

    /// Removes published versions that this process has reached as the leader: the process's own record replaces them.
    /// The removal is necessary because versions restart after the API server is restored from a backup.
    pub fn remove_reached(&self, settled_here: &SettledVersions) {
        let Some(shared) = &self.shared else { return };
        shared.settled.send_if_modified(|settled| {
            let Some(settled) = settled else { return false };
            let previous_len = settled.len();
            // A version stays until this replica has settled the version itself.
            settled.retain(|subscription, version| settled_here.get(subscription).is_none_or(|own| *own < *version));
            settled.len() != previous_len
        });
    }

    /// Returns the instant up to which a leader has settled messages caused by time or lookups.
    pub(crate) fn settled_until(&self, subscription: &str) -> Option<Timestamp> {
        let settled = self.shared.as_ref()?.settled.borrow().as_ref()?.get(&recheck_name(subscription)).copied()?;
        Timestamp::from_nanosecond(i128::from(settled)).ok()
    }

    /// Waits until a leader has settled the change of `version` for `subscription`, or until this process is the leader.
    /// Without a comparable version, only this process as the leader can settle the change.
    pub(crate) async fn wait_for_decision(&self, subscription: &str, version: Option<u64>) -> DeliveryDecision {
        let Some(shared) = &self.shared else { return DeliveryDecision::Deliver { was_watched: false } };
        // Subscribed before the first check, so that no update is missed.
        let mut settled = shared.settled.subscribe();
        loop {
            let is_settled = match (&*settled.borrow_and_update(), version) {
                (Some(settled), Some(version)) => settled.get(subscription).is_some_and(|settled| version <= *settled),
                _ => false,
            };
            if is_settled {
                return DeliveryDecision::Settled;
            }
            if self.gate.permit().is_some() {
                // The subscription exists, so an earlier leader watched this source. An object of the first list that is
                // newer than the settled version is a missed change, not an initial state.
                let was_watched = shared.known_subscriptions.lock().contains(subscription);
                return DeliveryDecision::Deliver { was_watched };
            }
            tokio::select! {
                _ = self.gate.opened() => {}
                changed = settled.changed() => if changed.is_err() {
                    // Unreachable: `shared` owns the sender.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_targets::{TermKeeper, UnlimitedTerm};

    use super::*;

    fn versions(version: u64) -> SettledVersions {
        SettledVersions::from([("a".to_owned(), version)])
    }

    #[tokio::test(start_paused = true)]
    async fn standby_delivers_only_unsettled_changes_as_leader() {
        let (keeper, gate) = TermKeeper::new();
        let replication = Replication::new(gate);
        let (settled, pending) =
            (replication.wait_for_decision("a", Some(7)), replication.wait_for_decision("a", Some(8)));
        let lead = async {
            tokio::task::yield_now().await;
            replication.set_settled(versions(7));
            tokio::task::yield_now().await;
            keeper.open(Arc::new(UnlimitedTerm(1)));
        };
        let (settled, pending, ()) = tokio::join!(settled, pending, lead);
        assert_eq!((settled, pending), (DeliveryDecision::Settled, DeliveryDecision::Deliver { was_watched: true }));
        assert_eq!(
            replication.wait_for_decision("new", Some(1)).await,
            DeliveryDecision::Deliver { was_watched: false }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn leader_delivers_versions_that_start_over() {
        let (keeper, gate) = TermKeeper::new();
        let replication = Replication::new(gate);
        replication.set_settled(versions(7));
        keeper.open(Arc::new(UnlimitedTerm(1)));
        // The cache lags behind the published version, so an earlier leader may have settled the listed changes.
        replication.remove_reached(&versions(6));
        assert_eq!(replication.wait_for_decision("a", Some(7)).await, DeliveryDecision::Settled);
        replication.remove_reached(&versions(9));
        assert_eq!(replication.wait_for_decision("a", Some(3)).await, DeliveryDecision::Deliver { was_watched: true });
    }
}
