//! The times and sizes that a reflector goes by.

use std::time::Duration;

use crate::backoff::BackoffSettings;
use crate::event::Rules;

/// The times and sizes that a reflector goes by; the defaults are those of the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectorSettings {
    /// Whether streamed lists are tried first; none for what costs a server least: where protobuf is asked for they are
    /// ([`Outlook::protobuf`](super::Outlook::protobuf)), where only JSON is, pages are requested.
    pub streamed_lists: Option<bool>,
    /// Whether relists after `410 Expired` are made by difference where little can have changed: metadata of all objects,
    /// and in full only what is not held as they list it. None for where that saves the most, which is JSON.
    pub delta_relists: Option<bool>,
    /// The fewest objects held for which a relist by difference is worth the while: of fewer, all cost little, and
    /// hardly any may differ.
    pub delta_least: usize,
    /// One object in so many may differ, 200 at most: each costs a request, as much to a real server as 60 to 80 objects of
    /// 6 KB in a list do.
    pub delta_one_in: usize,
    /// How long a relist by difference may take. A real server's etcd is compacted every 5 minutes, and what was before is no
    /// more to be had.
    pub delta_within: Duration,
    /// The objects requested in a page; none for all at once.
    pub page_size: Option<u32>,
    /// How long a list, the initial events or the head of a watch's answer may stall before they are given up (R3).
    pub list_patience: Duration,
    /// How long initial events may come without an end, before pages are requested in their place (R3).
    pub initial_events_within: Duration,
    /// How long pages are requested where streamed lists were found not to work (R3); then they are tried once more.
    pub pages_for: Duration,
    /// How often it is listed where the server does not let us watch, or its watches always fail; none for `period`.
    pub poll_every: Option<Duration>,
    /// How long without a proof before one is sought, until a stream has shown a rhythm of its own: the period of a
    /// real server's bookmarks (R2).
    pub period: Duration,
    /// The shortest period that a stream's own rhythm can give it. A proof may take a probe's 5 s and a short watch's 4 s,
    /// and that is to end before two periods have passed.
    pub shortest_period: Duration,
    /// The longest period that a stream's own rhythm can give it; none for `period`. Whoever sets more allows `Fresh` to
    /// be older than two of `period`, for servers whose bookmarks rise more rarely or that send none.
    pub longest_period: Option<Duration>,
    /// How often versions are compared with those of a metadata list, so that what a server's watch lost is found and
    /// repaired within that time (R12); none for never.
    pub audit_every: Option<Duration>,
    /// How long a cache without a stream is called resuming before it is called stale.
    pub stream_patience: Duration,
    /// A watch open this long is a sign of health (R6).
    pub healthy_after: Duration,
    /// A watch that is open for less than this and brings nothing counts as a failure (R6).
    pub short_watch: Duration,
    /// How long a probe may take (R2).
    pub probe_deadline: Duration,
    /// How long a short watch may take: its four seconds and some for the way.
    pub short_watch_deadline: Duration,
    /// The server ends watches after a random time between this and twice this, as client-go asks it to.
    pub watch_timeout: Duration,
    /// Relists begin after a random time up to this, so that they do not all begin at once (R5).
    pub relist_jitter: Duration,
    /// The delays between attempts (R6).
    pub backoff: BackoffSettings,
    /// What holds for all changes.
    #[doc(hidden)]
    pub rules: Rules,
}

/// The longest duration of a setting; longer ones, such as `Duration::MAX` for "never", are shortened to this.
///
/// Periods are multiplied by up to 80 (lists that name unnamed records), which must not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

impl ReflectorSettings {
    /// Returns these settings with durations that can be multiplied and added without an overflow.
    pub(super) fn bounded(self) -> Self {
        let bounded = |duration: Duration| duration.min(LONGEST);
        let BackoffSettings { first, second, ceiling } = self.backoff;
        Self {
            streamed_lists: self.streamed_lists,
            delta_relists: self.delta_relists,
            delta_least: self.delta_least,
            delta_one_in: self.delta_one_in,
            delta_within: bounded(self.delta_within),
            page_size: self.page_size,
            list_patience: bounded(self.list_patience),
            initial_events_within: bounded(self.initial_events_within),
            pages_for: bounded(self.pages_for),
            poll_every: self.poll_every.map(bounded),
            period: bounded(self.period),
            shortest_period: bounded(self.shortest_period),
            longest_period: self.longest_period.map(bounded),
            audit_every: self.audit_every.map(bounded),
            stream_patience: bounded(self.stream_patience),
            healthy_after: bounded(self.healthy_after),
            short_watch: bounded(self.short_watch),
            probe_deadline: bounded(self.probe_deadline),
            short_watch_deadline: bounded(self.short_watch_deadline),
            watch_timeout: bounded(self.watch_timeout),
            relist_jitter: bounded(self.relist_jitter),
            backoff: BackoffSettings { first: bounded(first), second: bounded(second), ceiling: bounded(ceiling) },
            rules: self.rules,
        }
    }
}

impl Default for ReflectorSettings {
    fn default() -> Self {
        Self {
            streamed_lists: None,
            delta_relists: None,
            delta_least: 1600,
            delta_one_in: 200,
            delta_within: Duration::from_secs(300),
            page_size: Some(500),
            list_patience: Duration::from_secs(30),
            initial_events_within: Duration::from_secs(120),
            pages_for: Duration::from_secs(30 * 60),
            poll_every: None,
            period: Duration::from_secs(60),
            shortest_period: Duration::from_secs(10),
            longest_period: None,
            audit_every: None,
            stream_patience: Duration::from_secs(10),
            healthy_after: Duration::from_secs(5),
            short_watch: Duration::from_secs(1),
            probe_deadline: Duration::from_secs(5),
            short_watch_deadline: Duration::from_secs(8),
            watch_timeout: Duration::from_secs(300),
            relist_jitter: Duration::from_millis(250),
            backoff: BackoffSettings::default(),
            rules: Rules::default(),
        }
    }
}
