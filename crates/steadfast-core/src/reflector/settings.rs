//! Durations and sizes of a reflector.

use std::time::Duration;

use crate::backoff::BackoffSettings;
use crate::event::Rules;

/// Durations and sizes of a reflector. The defaults are those of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorSettings {
    /// Controls whether streamed lists are tried first. `None` selects the cheaper method for the server: streams for
    /// protobuf ([`ListHints::protobuf`](super::ListHints::protobuf)), pages for JSON. Defaults to `None`.
    pub streamed_lists: Option<bool>,
    /// Controls delta relists after `410 Expired`, if few objects can have changed. Such a relist requests the
    /// metadata of all objects, and in full only the objects that differ from the cache. `None` enables it where it
    /// saves the most, which is JSON. Defaults to `None`.
    pub delta_relists: Option<bool>,
    /// Minimum number of cached objects for a delta relist. A full list of fewer objects is cheap, and the maximum
    /// share below allows only a few of them to differ. Defaults to 1600.
    pub delta_min_objects: usize,
    /// Maximum share of objects that may differ: one in this number, and at most 200 objects. Each requires a request,
    /// which costs a real server as much as 60 to 80 objects of 6 KB in a list. Defaults to 200.
    pub delta_objects_per_difference: usize,
    /// Maximum duration of a delta relist. The etcd of a real server is compacted every 5 minutes, which
    /// removes earlier versions. Defaults to 5 minutes.
    pub delta_timeout: Duration,
    /// Number of objects in a page; `None` for a single response. Defaults to 500.
    pub page_size: Option<u32>,
    /// Maximum stall of a list, of the initial events, or of a watch's response head before the request is cancelled
    /// (R3). Defaults to 30 s.
    pub list_stall_timeout: Duration,
    /// Maximum duration of initial events without an end, before pages replace them (R3). Defaults to 2 minutes.
    pub initial_events_timeout: Duration,
    /// Time for which pages replace streamed lists that do not work (R3). Then a streamed list is tried again. Defaults
    /// to 30 minutes.
    pub paged_list_period: Duration,
    /// List interval if the server rejects watches, or if its watches always fail; `None` for `period`. Defaults to
    /// `None`.
    pub poll_every: Option<Duration>,
    /// Maximum time without a proof before the reflector requests one, until a stream has shown its own interval. The
    /// default equals the bookmark interval of a real server (R2). Defaults to 60 s.
    pub period: Duration,
    /// Minimum period that a stream's own interval can set. A proof may take 5 s for a probe and 4 s for a short watch,
    /// and must end before two periods have passed. Defaults to 10 s.
    pub min_period: Duration,
    /// Maximum period that a stream's own interval can set; `None` for `period`. A larger value allows `Fresh` to be
    /// older than two times `period`, for servers whose bookmarks rise more rarely or that send none. Defaults to
    /// `None`.
    pub max_period: Option<Duration>,
    /// Interval of audits, which compare the cached versions with a metadata list. A change that a server's watch lost
    /// is detected and repaired within this time (R12). `None` disables audits. Defaults to `None`.
    pub audit_every: Option<Duration>,
    /// Time for which a cache without a stream counts as resuming before it counts as stale. Defaults to 10 s.
    pub stale_after: Duration,
    /// Duration after which an open watch resets all backoffs, and ends polling (R6). Defaults to 5 s.
    pub healthy_after: Duration,
    /// Duration below which a watch without records counts as a failure (R6). Defaults to 1 s.
    pub min_watch_duration: Duration,
    /// Maximum duration of a probe (R2). Defaults to 5 s.
    pub probe_deadline: Duration,
    /// Maximum duration of a short watch: its four seconds and a margin for the network. Defaults to 8 s.
    pub short_watch_deadline: Duration,
    /// Minimum watch timeout. The reflector requests a random timeout between this value and twice this value, as
    /// client-go does. Defaults to 5 minutes.
    pub watch_timeout: Duration,
    /// Maximum random delay of a relist, so that relists do not all start at the same time (R5). Defaults to 250 ms.
    pub relist_jitter: Duration,
    /// Delays between attempts (R6).
    pub backoff: BackoffSettings,
    /// Properties of the informer that affect the events of its changes.
    #[doc(hidden)]
    pub rules: Rules,
}

/// Maximum duration of a setting. It replaces longer durations, such as `Duration::MAX` for "never".
///
/// Periods are multiplied by up to 80 (lists that resolve unidentified records), which must not overflow.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl ReflectorSettings {
    /// Returns these settings with durations that can be multiplied and added without an overflow.
    pub(super) fn bounded(self) -> Self {
        let bounded = |duration: Duration| duration.min(MAX_DURATION);
        let BackoffSettings { initial_delay, second_delay, max_delay } = self.backoff;
        Self {
            streamed_lists: self.streamed_lists,
            delta_relists: self.delta_relists,
            delta_min_objects: self.delta_min_objects,
            delta_objects_per_difference: self.delta_objects_per_difference,
            delta_timeout: bounded(self.delta_timeout),
            page_size: self.page_size,
            list_stall_timeout: bounded(self.list_stall_timeout),
            initial_events_timeout: bounded(self.initial_events_timeout),
            paged_list_period: bounded(self.paged_list_period),
            poll_every: self.poll_every.map(bounded),
            period: bounded(self.period),
            min_period: bounded(self.min_period),
            max_period: self.max_period.map(bounded),
            audit_every: self.audit_every.map(bounded),
            stale_after: bounded(self.stale_after),
            healthy_after: bounded(self.healthy_after),
            min_watch_duration: bounded(self.min_watch_duration),
            probe_deadline: bounded(self.probe_deadline),
            short_watch_deadline: bounded(self.short_watch_deadline),
            watch_timeout: bounded(self.watch_timeout),
            relist_jitter: bounded(self.relist_jitter),
            backoff: BackoffSettings {
                initial_delay: bounded(initial_delay),
                second_delay: bounded(second_delay),
                max_delay: bounded(max_delay),
            },
            rules: self.rules,
        }
    }
}

impl Default for ReflectorSettings {
    fn default() -> Self {
        Self {
            streamed_lists: None,
            delta_relists: None,
            delta_min_objects: 1600,
            delta_objects_per_difference: 200,
            delta_timeout: Duration::from_secs(300),
            page_size: Some(500),
            list_stall_timeout: Duration::from_secs(30),
            initial_events_timeout: Duration::from_secs(120),
            paged_list_period: Duration::from_secs(30 * 60),
            poll_every: None,
            period: Duration::from_secs(60),
            min_period: Duration::from_secs(10),
            max_period: None,
            audit_every: None,
            stale_after: Duration::from_secs(10),
            healthy_after: Duration::from_secs(5),
            min_watch_duration: Duration::from_secs(1),
            probe_deadline: Duration::from_secs(5),
            short_watch_deadline: Duration::from_secs(8),
            watch_timeout: Duration::from_secs(300),
            relist_jitter: Duration::from_millis(250),
            backoff: BackoffSettings::default(),
            rules: Rules::default(),
        }
    }
}
