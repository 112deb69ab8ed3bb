//! Decision for or against delta relists.
//!
//! The savings were measured with a real server and 20,000 pods of 9 KB. The metadata of an object cost the server 43
//! to 68 µs in JSON and 15 to 25 µs in protobuf. The whole object cost 90 to 155 µs in a JSON list, 130 to 200 µs in a
//! JSON stream, and 35 to 60 µs in protobuf. Config maps of 6 KB, which consist almost only of one text, cost 34 to 47
//! µs in JSON; their metadata cost 8 to 16 µs. Each object that differs requires its own request, which cost 2.7 ms in
//! the same setup. One differing object in 200 therefore uses up half of the savings for such config maps, and a tenth
//! for pods. The decision therefore does not depend on the size of the objects. Small objects are mostly metadata, so a
//! delta relist saves or loses little.

use std::time::Duration;

use super::cache_state::CacheState;
use super::list_hints::ListHints;
use super::list_plan::ListPlan;
use super::request::ListFrom;
use super::settings::ReflectorSettings;
use crate::time::Instant;

/// Maximum number of objects that may differ, for any size of the cache. Only a few objects are requested concurrently,
/// so more differences would take too long.
const MAX_DIFFERENCES: usize = 200;

/// Expected number of changes per differing object: several changes may concern one object.
const CHANGES_PER_DIFFERENCE: f64 = 2.0;

/// Time after which half of the counted changes are forgotten.
const CHANGE_HALF_LIFE: Duration = Duration::from_secs(600);

/// Decision for or against delta relists, and its inputs.
#[derive(Debug)]
pub(super) struct DeltaPolicy {
    /// The setting, if it forces or disables delta relists.
    setting: Option<bool>,
    /// Minimum number of cached objects.
    min_objects: usize,
    /// Number of cached objects for each object that may differ.
    objects_per_difference: usize,
    hints: ListHints,
    /// Time until which lists are full, because a delta relist was abandoned or metadata are unavailable.
    pub(super) full_until: Option<Instant>,
    /// Number of changes from our watch and our lists, and the start of the count.
    changes: usize,
    since: Instant,
}

impl DeltaPolicy {
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        Self {
            setting: settings.delta_relists,
            min_objects: settings.delta_min_objects,
            objects_per_difference: settings.delta_objects_per_difference.max(1),
            hints: ListHints::default(),
            full_until: None,
            changes: 0,
            since: Instant::ZERO,
        }
    }

    /// Sets the hints for the next list.
    pub(super) fn set_list_hints(&mut self, hints: ListHints) {
        self.hints = hints;
    }

    /// Starts the count of changes after the first complete list.
    pub(super) fn start(&mut self, now: Instant) {
        (self.changes, self.since) = (0, now);
    }

    /// Counts changes from our watch or from a list.
    pub(super) fn changed(&mut self, changes: usize) {
        self.changes = self.changes.saturating_add(changes);
    }

    /// Decays the count, so that old changes weigh less.
    pub(super) fn decay(&mut self, now: Instant) {
        let counted = now.since(self.since);
        if counted > CHANGE_HALF_LIFE {
            // Halving count and window keeps the rate, and newer changes gain weight.
            self.changes /= 2;
            self.since = self.since + counted / 2;
        }
    }

    /// Returns the expected number of changes since `proven`, the last instant at which the cache was complete.
    fn expected(&self, now: Instant, proven: Instant) -> f64 {
        let window = proven.since(self.since).max(Duration::from_secs(1));
        self.changes as f64 / window.as_secs_f64() * now.since(proven).as_secs_f64()
    }

    /// Returns whether the list `plan` should be a delta relist. Opaque versions rule a delta relist out: metadata
    /// could not be compared with the cache.
    pub(super) fn applies(&self, now: Instant, plan: &ListPlan, cache: &CacheState) -> bool {
        plan.delta_until.is_some_and(|until| now < until)
            && cache.is_synced
            && matches!(&plan.from, ListFrom::NotOlderThan(version) if version.is_ordered())
            && self.is_worth_it(now, cache.evidence.proven)
    }

    /// Returns whether a list at `now` should be a delta relist. `proven` is the last instant at which the cache was
    /// complete.
    fn is_worth_it(&self, now: Instant, proven: Option<Instant>) -> bool {
        let ListHints { protobuf, protobuf_failed, cached_objects, metadata_only } = self.hints;
        // Protobuf makes full lists cheap, so the default prefers full lists there.
        let is_enabled = self.setting.unwrap_or(!protobuf)
            && !protobuf_failed
            && !metadata_only
            && cached_objects >= self.min_objects;
        let max_changes = self.max_differences() as f64 * CHANGES_PER_DIFFERENCE;
        is_enabled
            && self.full_until.is_none_or(|until| now >= until)
            && proven.is_some_and(|proven| self.expected(now, proven) <= max_changes)
    }

    /// Returns the maximum number of objects that may differ.
    pub(super) fn max_differences(&self) -> usize {
        (self.hints.cached_objects / self.objects_per_difference).min(MAX_DIFFERENCES)
    }

    /// Returns the number of cached objects at the start of the list.
    pub(super) fn cached_objects(&self) -> usize {
        self.hints.cached_objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_zero(Duration::from_secs(seconds))
    }

    fn delta_policy(cached_objects: usize, protobuf: bool, is_enabled: Option<bool>) -> DeltaPolicy {
        let settings = ReflectorSettings { delta_relists: is_enabled, ..ReflectorSettings::default() };
        let mut delta_policy = DeltaPolicy::new(&settings);
        delta_policy.set_list_hints(ListHints { protobuf, cached_objects, ..ListHints::default() });
        delta_policy.start(at(0));
        delta_policy
    }

    #[test]
    fn delta_relists_need_large_json_caches() {
        let worth = |cached_objects, protobuf, is_enabled| {
            delta_policy(cached_objects, protobuf, is_enabled).is_worth_it(at(60), Some(at(50)))
        };
        assert_eq!((worth(1599, false, None), worth(1600, false, None)), (false, true));
        assert_eq!((worth(1600, true, None), worth(1600, true, Some(true))), (false, true));
        assert_eq!((worth(1600, false, Some(false)), worth(10, false, Some(true))), (false, false));
        let mut partial = delta_policy(1600, false, Some(true));
        partial.set_list_hints(ListHints { metadata_only: true, ..partial.hints });
        assert!(!partial.is_worth_it(at(60), Some(at(50))), "a full list contains only metadata");
        partial.set_list_hints(ListHints { protobuf_failed: true, metadata_only: false, ..partial.hints });
        assert!(!partial.is_worth_it(at(60), Some(at(50))), "corrupt protobuf objects must be read again");
    }

    #[test]
    fn many_expected_changes_need_full_list() {
        let mut delta_policy = delta_policy(2000, false, None);
        delta_policy.changed(100);
        // One change per second: 10 objects may differ, so 20 changes may be expected.
        assert!(delta_policy.is_worth_it(at(120), Some(at(100))));
        assert!(!delta_policy.is_worth_it(at(121), Some(at(100))));
        assert!(!delta_policy.is_worth_it(at(121), None), "the time since the last proof is unknown");
    }

    #[test]
    fn expected_changes_are_bounded_for_large_caches() {
        let mut delta_policy = delta_policy(1_000_000, false, None);
        delta_policy.changed(1000);
        assert!(delta_policy.is_worth_it(at(140), Some(at(100))));
        assert!(!delta_policy.is_worth_it(at(141), Some(at(100))), "200 may differ, and 410 changes are expected");
    }

    #[test]
    fn list_changes_count_like_watch_changes() {
        let mut delta_policy = delta_policy(2000, false, None);
        assert!(delta_policy.is_worth_it(at(160), Some(at(100))));
        delta_policy.changed(100);
        assert!(!delta_policy.is_worth_it(at(160), Some(at(100))));
    }

    #[test]
    fn old_changes_are_forgotten() {
        let mut delta_policy = delta_policy(2000, false, None);
        delta_policy.changed(600);
        delta_policy.decay(at(600));
        assert!(!delta_policy.is_worth_it(at(660), Some(at(600))));
        for hour in 1..20 {
            delta_policy.changed(1);
            delta_policy.decay(at(hour * 3600));
        }
        assert!(
            delta_policy.is_worth_it(at(20 * 3600 + 60), Some(at(20 * 3600))),
            "the change rate of the last hours is low"
        );
    }

    #[test]
    fn difference_limit_grows_with_cache_size() {
        let max_differences = |cached_objects| delta_policy(cached_objects, false, None).max_differences();
        assert_eq!(
            [max_differences(10), max_differences(1600), max_differences(10_000), max_differences(1_000_000)],
            [0, 8, 50, 200]
        );
    }
}
