//! Model of an API server: one history behind two caches, with all possible faults.

mod access;
mod faults;

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast_core::random::Random;
use steadfast_core::record::{ListMeta, RecordKind, Status};
use steadfast_core::reflector::{ListFrom, ProbeMethod, Request, RequestId};
use steadfast_core::{Instant, ResourceVersion};

use access::Access;
use faults::ServerFault;

/// Maximum duration of a freeze. After a longer freeze, the client would accept old events of the cache as a proof.
pub(crate) const MAX_FREEZE: Duration = Duration::from_secs(40);

const KEYS: u64 = 8;
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Part of a response, or event of its connection, as the client receives it.
pub(crate) enum Arrival {
    Opened,
    Object(RecordKind, u8, u64),
    Item(u8, u64),
    /// Record or list entry without an identity.
    Unidentified,
    Bookmark(u64, bool),
    Error(Status),
    ListEnded(ListMeta),
    /// Response to a probe, and the time at which the probe was sent.
    Probed(u64, Instant),
    Ended,
    Rejected(Status, Option<Duration>),
    Broke,
    ConnectionEnding,
    ConnectionHealthy,
    Responsive(bool),
}

type Arrivals = Vec<(RequestId, Arrival)>;

pub(crate) struct Server {
    random: Random,
    log: Vec<Change>,
    version: u64,
    epoch: u32,
    restored: Option<Instant>,
    compacted: u64,
    caches: [Cache; 2],
    requests: BTreeMap<RequestId, PendingRequest>,
    schedule: BTreeMap<(Instant, u64), ScheduledAction>,
    serial: u64,
    fault: Option<ServerFault>,
    injects_faults: bool,
    behaviour: Behaviour,
    access: Access,
    recovered: bool,
    /// Last probe with a response: its time and version.
    probed: Option<(Instant, u64)>,
}

/// Behaviour of a server.
struct Behaviour {
    streams_lists: bool,
    /// Set if lists are as old as the cache, independent of the requested version.
    ignores_version: bool,
    kind: Kind,
}

/// Kind of a server. The client is configured for this kind.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Ordinary,
    WithoutBookmarks,
    /// Watches lose changes occasionally.
    Losing,
}

/// Write of an object: a new state, or its deletion.
#[derive(Clone, Copy)]
struct Change {
    at: Instant,
    version: u64,
    key: u8,
    lives: bool,
    /// Set if no watch reports the change.
    lost: bool,
}

/// Cache of a replica.
#[derive(Clone, Copy, Default)]
struct Cache {
    seen: u64,
    /// Oldest version from which a watch can start.
    window: u64,
    frozen: bool,
    /// Set if the replica is frozen and does not respond to new requests. Open streams continue, with constant
    /// bookmarks.
    dead: bool,
}

struct PendingRequest {
    request: Request,
    cache: usize,
    since: Instant,
    /// Version up to which the stream has received events.
    delivered: u64,
    open: bool,
    stalled: bool,
}

#[derive(Clone, Copy)]
enum ScheduledAction {
    Respond(RequestId),
    /// Response in flight to a probe that was sent at that time.
    Probed(RequestId, u64, Instant),
    Deliver(RequestId),
    Bookmark(RequestId),
    LastBookmark(RequestId),
    End(RequestId),
    Write,
    StartFault,
    ChangePermissions,
    Recover,
    Thaw(usize),
    /// A connection with streams drains, or does not respond to a ping.
    Unsettle,
    Settle(RequestId),
    Responsive(RequestId),
    Break(RequestId),
}

impl Server {
    pub(crate) fn new(seed: u64, kind: Kind) -> Self {
        let mut random = Random::new(seed ^ 0x5E12);
        let mut server = Self {
            log: Vec::new(),
            version: 10,
            epoch: 0,
            restored: None,
            compacted: 0,
            caches: [Cache { seen: 10, ..Cache::default() }; 2],
            requests: BTreeMap::new(),
            schedule: BTreeMap::new(),
            serial: 0,
            fault: None,
            injects_faults: true,
            behaviour: Behaviour {
                streams_lists: random.fraction() < 0.8,
                ignores_version: random.fraction() < 0.2,
                kind,
            },
            access: Access::new(seed),
            probed: None,
            recovered: false,
            random,
        };
        server.schedule(Instant::ZERO, ScheduledAction::Write);
        server.schedule(Instant::ZERO, ScheduledAction::StartFault);
        server.schedule(Instant::ZERO, ScheduledAction::Unsettle);
        server.schedule(Instant::ZERO, ScheduledAction::ChangePermissions);
        server
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.schedule.keys().next().map(|(at, _)| *at)
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(crate) fn content(&self) -> BTreeMap<u8, u64> {
        self.content_at(self.version)
    }

    pub(crate) fn take_recovered(&mut self) -> bool {
        std::mem::take(&mut self.recovered)
    }

    /// Asserts that `store` contains all writes before `then`.
    pub(crate) fn assert_known(&self, then: Instant, store: &BTreeMap<u8, u64>, epoch: u32) {
        if epoch != self.epoch {
            // A client detects a restore only with its next proof, so only a restore before `then` must be known.
            assert!(self.restored.is_none_or(|at| at > then), "fresh in a history that was replaced");
            return;
        }
        let mut last = BTreeMap::new();
        for change in self.log.iter().filter(|change| change.at < then) {
            last.insert(change.key, *change);
        }
        for change in last.values() {
            // The cache may be ahead of `then`: a newer change explains any state.
            let newer = self.log.iter().any(|other| other.key == change.key && other.version > change.version);
            match store.get(&change.key) {
                Some(held) => assert!(*held >= change.version && (change.lives || newer), "fresh, with an old state"),
                None => assert!(!change.lives || newer, "fresh, without an object"),
            }
        }
    }

    pub(crate) fn accept(&mut self, now: Instant, id: RequestId, request: &Request) {
        let new_connection = matches!(request, Request::Watch { new_connection: true, .. });
        let cache = match self.requests.values().next() {
            Some(other) if new_connection => 1 - other.cache,
            _ => usize::from(self.random.fraction() < 0.5),
        };
        let pending =
            PendingRequest { request: request.clone(), cache, since: now, delivered: 0, open: false, stalled: false };
        self.requests.insert(id, pending);
        self.schedule_soon(now, ScheduledAction::Respond(id));
    }

    pub(crate) fn forget(&mut self, id: RequestId) {
        self.requests.remove(&id);
    }

    /// Performs all due actions.
    pub(crate) fn advance(&mut self, now: Instant, held: Option<&ResourceVersion>, epoch: u32) -> Arrivals {
        let held = held.and_then(|version| version.as_str().parse().ok());
        let mut out = Arrivals::new();
        while let Some(entry) = self.schedule.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                ScheduledAction::Respond(id) => self.respond(now, id, &mut out),
                ScheduledAction::Probed(id, version, sent) => {
                    if self.requests.remove(&id).is_some() {
                        self.probed = Some((sent, version));
                        out.push((id, Arrival::Probed(version, sent)));
                    }
                }
                ScheduledAction::Deliver(id) => self.deliver(id, &mut out),
                ScheduledAction::Bookmark(id) => {
                    self.schedule(now + BOOKMARK_INTERVAL, ScheduledAction::Bookmark(id));
                    self.bookmark(id, &mut out);
                }
                ScheduledAction::LastBookmark(id) => self.bookmark(id, &mut out),
                ScheduledAction::End(id) => {
                    if self.requests.remove(&id).is_some() {
                        out.push((id, Arrival::Ended));
                    }
                }
                ScheduledAction::Write => {
                    let pause = self.random.between(Duration::from_millis(50), Duration::from_secs(25));
                    self.schedule(now + pause, ScheduledAction::Write);
                    self.write(now, held, epoch);
                }
                ScheduledAction::StartFault => self.start_fault(now, held, epoch, &mut out),
                ScheduledAction::ChangePermissions => self.change_permissions(now, &mut out),
                ScheduledAction::Recover => {
                    self.fault = None;
                    self.recovered = true;
                }
                ScheduledAction::Thaw(cache) => self.thaw(now, cache),
                ScheduledAction::Unsettle => self.unsettle(now, &mut out),
                ScheduledAction::Settle(id) => out.push((id, Arrival::ConnectionHealthy)),
                ScheduledAction::Responsive(id) => out.push((id, Arrival::Responsive(true))),
                ScheduledAction::Break(id) => self.cut(&[id], &mut out),
            }
        }
        out
    }

    fn unsettle(&mut self, now: Instant, out: &mut Arrivals) {
        let pause = self.random.between(Duration::from_millis(100), Duration::from_secs(60));
        self.schedule(now + pause, ScheduledAction::Unsettle);
        let open: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| pending.open).map(|(id, _)| *id).collect();
        let awaited = |pending: &PendingRequest| {
            self.injects_faults && !pending.open && matches!(pending.request, Request::Watch { .. })
        };
        let awaited: Vec<RequestId> =
            self.requests.iter().filter(|(_, pending)| awaited(pending)).map(|(id, _)| *id).collect();
        for id in awaited {
            out.push((id, Arrival::Responsive(false)));
            let then = now + self.random.between(Duration::ZERO, Duration::from_secs(3));
            self.schedule(then, ScheduledAction::Responsive(id));
        }
        for id in open {
            out.push((id, Arrival::ConnectionEnding));
            let then = now + self.random.between(Duration::ZERO, Duration::from_secs(3));
            match self.random.draw() % 4 {
                2 if self.injects_faults => {
                    out.push((id, Arrival::Responsive(false)));
                    self.schedule(then, ScheduledAction::Responsive(id));
                }
                0 => self.schedule(then, ScheduledAction::Settle(id)),
                1 if self.injects_faults => self.schedule(then, ScheduledAction::Break(id)),
                _ => {}
            }
        }
    }

    fn schedule(&mut self, at: Instant, action: ScheduledAction) {
        self.serial += 1;
        self.schedule.insert((at, self.serial), action);
    }

    fn schedule_soon(&mut self, now: Instant, action: ScheduledAction) {
        let at = now + self.random.between(Duration::from_millis(1), Duration::from_millis(60));
        self.schedule(at, action);
    }

    fn write(&mut self, now: Instant, held: Option<u64>, epoch: u32) {
        let version = self.version + 1 + self.random.draw() % 3;
        // A restored history beyond the cached version cannot be distinguished from the old one. Only the audit detects
        // it (R12).
        let unseen = epoch != self.epoch && held.is_some_and(|held| version >= held);
        if unseen || self.fault == Some(ServerFault::Etcd) {
            return;
        }
        self.version = version;
        if self.injects_faults && self.random.fraction() < 0.7 {
            let key = (self.random.draw() % KEYS) as u8;
            let alive = self.content().contains_key(&key);
            let lives = !alive || self.random.fraction() < 0.6;
            let lost = self.behaviour.kind == Kind::Losing && self.random.fraction() < 0.1;
            self.log.push(Change { at: now, version, key, lives, lost });
        }
        for cache in 0..self.caches.len() {
            if !self.caches[cache].frozen {
                self.advance_cache(now, cache);
            }
        }
    }

    /// Advances a cache and delivers the events to its streams.
    fn advance_cache(&mut self, now: Instant, cache: usize) {
        self.caches[cache].seen = self.version;
        let streams: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, pending)| pending.cache == cache && pending.open)
            .map(|(id, _)| *id)
            .collect();
        for id in streams {
            self.schedule_soon(now, ScheduledAction::Deliver(id));
        }
    }

    fn thaw(&mut self, now: Instant, cache: usize) {
        (self.caches[cache].frozen, self.caches[cache].dead) = (false, false);
        self.advance_cache(now, cache);
    }

    fn content_at(&self, version: u64) -> BTreeMap<u8, u64> {
        let mut content = BTreeMap::new();
        for change in self.log.iter().take_while(|change| change.version <= version) {
            if change.lives {
                content.insert(change.key, change.version);
            } else {
                content.remove(&change.key);
            }
        }
        content
    }

    fn respond(&mut self, now: Instant, id: RequestId, out: &mut Arrivals) {
        let Some(pending) = self.requests.get(&id) else { return };
        let (request, cache, since) = (pending.request.clone(), self.caches[pending.cache], pending.since);
        let consistent = match &request {
            Request::Probe { .. } | Request::Versions { continue_token: None, .. } => true,
            Request::Page { from, continue_token: None, .. }
            | Request::Metadata { from, continue_token: None, .. }
            | Request::StreamedList { from, .. } => *from == ListFrom::Consistent,
            _ => false,
        };
        let streamed = request.is_stream();
        match self.fault {
            Some(ServerFault::NoResponse) => return,
            Some(ServerFault::Down) => return self.cut(&[id], out),
            Some(ServerFault::Busy(after)) => {
                let after = after.map(Duration::from_secs);
                return self.reject(id, status(429, "TooManyRequests", false), after, out);
            }
            Some(ServerFault::Closing) if streamed => {
                self.requests.remove(&id);
                out.extend([(id, Arrival::Opened), (id, Arrival::Ended)]);
                return;
            }
            Some(ServerFault::Etcd) if consistent => return self.reject(id, status(504, "Timeout", false), None, out),
            Some(ServerFault::Gone) if !matches!(request, Request::Probe { .. } | Request::Versions { .. }) => {
                return self.reject(id, status(410, "Gone", false), None, out);
            }
            _ => {}
        }
        if self.access.forbids(&request) {
            return self.reject(id, status(403, "Forbidden", false), None, out);
        }
        if cache.dead && !matches!(request, Request::Probe { .. } | Request::Versions { .. }) {
            return;
        }
        match request {
            Request::Probe { since: accepted } => {
                let shared = self.probed.filter(|(sent, _)| *sent >= accepted && self.random.fraction() < 0.5);
                if let Some((sent, version)) = shared {
                    return self.schedule(now, ScheduledAction::Probed(id, version, sent));
                }
                let delay = self.random.between(Duration::ZERO, Duration::from_millis(500));
                self.schedule(now + delay, ScheduledAction::Probed(id, self.version, since));
            }
            Request::StreamedList { .. } | Request::ShortWatch { method: ProbeMethod::Streamed, .. }
                if !self.behaviour.streams_lists =>
            {
                self.reject(id, status(422, "Invalid", false), None, out);
            }
            Request::StreamedList { from, .. }
            | Request::Page { from, continue_token: None, .. }
            | Request::Metadata { from, continue_token: None, .. } => {
                let min_version = match from {
                    ListFrom::Consistent if streamed => self.version,
                    ListFrom::Consistent => 0,
                    ListFrom::NotOlderThan(_) if self.behaviour.ignores_version => 0,
                    ListFrom::NotOlderThan(version) => number(&version),
                };
                if cache.seen < min_version {
                    if now.since(since) < Duration::from_secs(3) {
                        self.schedule(now + Duration::from_secs(3), ScheduledAction::Respond(id));
                    } else {
                        self.reject(id, status(504, "Timeout", true), Some(Duration::from_secs(1)), out);
                    }
                } else if streamed {
                    self.stream_list(now, id, cache.seen, out);
                } else {
                    let version = if consistent { self.version } else { cache.seen };
                    self.page(id, version, 0, out);
                }
            }
            Request::Versions { continue_token: None, .. } => self.page(id, self.version, 0, out),
            Request::State { key, version } => {
                let version = number(&version);
                if version < self.compacted {
                    return self.reject(id, status(410, "Expired", false), None, out);
                }
                self.state(id, key.name().parse().expect("one of the test's keys"), version, out);
            }
            Request::Page { continue_token: Some(token), .. }
            | Request::Metadata { continue_token: Some(token), .. }
            | Request::Versions { continue_token: Some(token), .. } => {
                let (version, offset) = token.split_once('+').expect("a continue token of the model");
                let (version, offset) = (version.parse().unwrap(), offset.parse().unwrap());
                if version < self.compacted {
                    return self.reject(id, status(410, "Expired", false), None, out);
                }
                self.page(id, version, offset, out);
            }
            Request::ShortWatch { target, .. } if cache.seen < number(&target) => {
                if now.since(since) < Duration::from_secs(3) {
                    self.schedule(now + Duration::from_secs(3), ScheduledAction::Respond(id));
                } else {
                    self.reject(id, status(504, "Timeout", true), Some(Duration::from_secs(1)), out);
                }
            }
            Request::Watch { from, .. } | Request::ShortWatch { from, .. } => {
                self.watch(now, id, number(&from), cache, out);
            }
        }
    }

    fn reject(&mut self, id: RequestId, status: Status, after: Option<Duration>, out: &mut Arrivals) {
        self.requests.remove(&id);
        out.push((id, Arrival::Rejected(status, after)));
    }

    fn page(&mut self, id: RequestId, version: u64, offset: usize, out: &mut Arrivals) {
        let Some(pending) = self.requests.remove(&id) else { return };
        let limit = match pending.request {
            Request::Page { limit: Some(limit), .. }
            | Request::Metadata { limit: Some(limit), .. }
            | Request::Versions { limit, .. } => limit as usize,
            _ => usize::MAX,
        };
        let content = self.content_at(version);
        out.push((id, Arrival::Opened));
        for (key, state) in content.iter().skip(offset).take(limit) {
            let is_hidden = self.access.hides_next(self.injects_faults);
            out.push((id, if is_hidden { Arrival::Unidentified } else { Arrival::Item(*key, *state) }));
        }
        let next = offset.saturating_add(limit);
        let continue_token = (next < content.len()).then(|| format!("{version}+{next}"));
        out.push((id, Arrival::ListEnded(ListMeta { version: Some(resource_version(version)), continue_token })));
    }

    /// Responds with one object at a version. Servers that ignore the requested version respond with the current state.
    fn state(&mut self, id: RequestId, key: u8, version: u64, out: &mut Arrivals) {
        if self.requests.remove(&id).is_none() {
            return;
        }
        let version = if self.behaviour.ignores_version { self.version } else { version };
        out.push((id, Arrival::Opened));
        out.extend(self.content_at(version).get(&key).map(|state| (id, Arrival::Item(key, *state))));
        out.push((id, Arrival::ListEnded(ListMeta { version: Some(resource_version(version)), continue_token: None })));
    }

    fn stream_list(&mut self, now: Instant, id: RequestId, version: u64, out: &mut Arrivals) {
        let content = self.content_at(version);
        let stalled = self.injects_faults && self.random.fraction() < 0.05;
        let delivered = if stalled { content.len() / 2 } else { content.len() };
        out.push((id, Arrival::Opened));
        // The objects are not in the order of their versions.
        for (key, state) in content.iter().rev().take(delivered) {
            let is_hidden = self.access.hides_next(self.injects_faults);
            let event = Arrival::Object(RecordKind::Added, *key, *state);
            out.push((id, if is_hidden { Arrival::Unidentified } else { event }));
        }
        if !stalled {
            out.push((id, Arrival::Bookmark(version, true)));
        }
        self.open(now, id, version, stalled);
    }

    fn watch(&mut self, now: Instant, id: RequestId, from: u64, cache: Cache, out: &mut Arrivals) {
        if from < cache.window {
            if self.random.fraction() < 0.5 {
                return self.reject(id, status(410, "Expired", false), None, out);
            }
            self.requests.remove(&id);
            out.extend([(id, Arrival::Opened), (id, Arrival::Error(status(410, "Expired", false)))]);
            return;
        }
        out.push((id, Arrival::Opened));
        self.open(now, id, from, false);
        if let Request::ShortWatch { seconds, .. } = self.requests[&id].request {
            // A brief short watch receives a bookmark too, since a real server may send one at once.
            self.schedule(now + Duration::from_secs(u64::from(seconds) / 2), ScheduledAction::LastBookmark(id));
            self.schedule(now + Duration::from_secs(seconds.into()), ScheduledAction::End(id));
        }
    }

    fn open(&mut self, now: Instant, id: RequestId, delivered: u64, stalled: bool) {
        let pending = self.requests.get_mut(&id).expect("the request is in flight");
        (pending.open, pending.delivered, pending.stalled) = (true, delivered, stalled);
        self.schedule(now + BOOKMARK_INTERVAL, ScheduledAction::Bookmark(id));
        let seconds = match self.requests[&id].request {
            Request::StreamedList { timeout_seconds, .. } | Request::Watch { timeout_seconds, .. } => timeout_seconds,
            _ => 4,
        };
        self.schedule(now + Duration::from_secs(seconds.into()), ScheduledAction::End(id));
        self.schedule_soon(now, ScheduledAction::Deliver(id));
    }

    fn deliver(&mut self, id: RequestId, out: &mut Arrivals) {
        let Some(pending) = self.requests.get_mut(&id).filter(|pending| pending.open && !pending.stalled) else {
            return;
        };
        let seen = self.caches[pending.cache].seen;
        let delivered = pending.delivered;
        pending.delivered = delivered.max(seen);
        // A lost change advances the stream, so later bookmarks cover the change without its event.
        let is_reported = |change: &&Change| change.version > delivered && change.version <= seen && !change.lost;
        for change in self.log.iter().filter(is_reported) {
            let before = self.content_at(change.version - 1);
            let kind = match (change.lives, before.contains_key(&change.key)) {
                (false, _) => RecordKind::Deleted,
                (true, true) => RecordKind::Modified,
                (true, false) => RecordKind::Added,
            };
            let is_hidden = self.access.hides_next(self.injects_faults);
            let event = Arrival::Object(kind, change.key, change.version);
            out.push((id, if is_hidden { Arrival::Unidentified } else { event }));
        }
    }

    fn bookmark(&mut self, id: RequestId, out: &mut Arrivals) {
        self.deliver(id, out);
        if self.behaviour.kind == Kind::WithoutBookmarks {
            return;
        }
        let Some(pending) = self.requests.get(&id).filter(|pending| pending.open && !pending.stalled) else { return };
        let seen = self.caches[pending.cache].seen;
        // No event is below the start of the stream.
        if seen >= pending.delivered {
            out.push((id, Arrival::Bookmark(seen, false)));
        }
    }
}

fn status(code: u16, reason: &str, too_large: bool) -> Status {
    let causes = if too_large { vec!["ResourceVersionTooLarge".to_owned()] } else { Vec::new() };
    Status { code, reason: reason.to_owned(), causes, ..Status::default() }
}

fn resource_version(version: u64) -> ResourceVersion {
    ResourceVersion::from(version.to_string().as_str())
}

fn number(version: &ResourceVersion) -> u64 {
    version.as_str().parse().expect("a version of the model")
}
