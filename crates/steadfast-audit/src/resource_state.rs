//! The streams of one resource on all endpoints, their comparison with each other and with lists.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::time::Duration;

use steadfast::environment::Instant;

use crate::change_log::{Change, ChangeLog, EndpointSet};
use crate::finding::AuditFindingKind;
use crate::listing::{Listing, MissingDeletion};
use crate::message::{AuditRecord, ObservedObject};
use crate::settings::AuditSettings;
use crate::stream::{AuditStream, Diagnosis, DiagnosisPhase, StallEvidence};
use crate::version_table::{NameHash, VersionTable};

/// Time between evidence and its evaluation, in which the stream may still deliver the change.
const EVALUATION_DELAY: Duration = Duration::from_secs(8);

/// Time after which an undelivered change is no longer tracked.
const MAX_CHANGE_AGE: Duration = Duration::from_secs(900);

/// Maximum number of objects without a deletion that are checked concurrently.
const MAX_MISSING: usize = 1000;

/// Interval between two searches for the cause of one absent change.
const DIAGNOSIS_INTERVAL: Duration = Duration::from_secs(15);

/// Time for which a version must have been known before an absent bookmark counts.
const BOOKMARK_GRACE: Duration = Duration::from_secs(180);

/// Number of names in the evidence of a finding.
const MAX_NAMES: usize = 3;

/// Start or end of a finding of one endpoint.
#[derive(Debug)]
pub(crate) struct Judgement {
    pub(crate) endpoint: usize,
    pub(crate) kind: AuditFindingKind,
    pub(crate) is_active: bool,
    pub(crate) evidence: String,
}

impl Judgement {
    fn start(endpoint: usize, kind: AuditFindingKind, evidence: String) -> Self {
        Self { endpoint, kind, is_active: true, evidence }
    }

    fn end(endpoint: usize, kind: AuditFindingKind, evidence: &str) -> Self {
        Self { endpoint, kind, is_active: false, evidence: evidence.to_owned() }
    }
}

/// State of one resource.
#[derive(Debug)]
pub(crate) struct ResourceState {
    /// Streams by endpoint.
    pub(crate) streams: Vec<AuditStream>,
    pub(crate) listing: Option<Listing>,
    pub(crate) list_due: Instant,
    pub(crate) list_endpoint: usize,
    /// Number of objects in the last list.
    pub(crate) count: u64,
    /// End of the last complete list.
    pub(crate) last_list: Option<Instant>,
    /// Divides the size of pages after a page was too large.
    pub(crate) page_divisor: u64,
    log: ChangeLog,
    missing: Vec<MissingDeletion>,
    /// False if the versions of different objects have no order, as on some aggregated API servers.
    pub(crate) is_ordered: bool,
    seed: u64,
}

impl ResourceState {
    pub(crate) fn new(endpoints: usize, now: Instant, seed: u64) -> Self {
        Self {
            streams: (0..endpoints).map(|_| AuditStream::new(now)).collect(),
            listing: None,
            list_due: now,
            list_endpoint: 0,
            count: 0,
            last_list: None,
            page_divisor: 1,
            log: ChangeLog::default(),
            missing: Vec::new(),
            is_ordered: true,
            seed,
        }
    }

    /// Forgets all versions, after the history of the cluster was replaced. Returns the requests of the streams.
    pub(crate) fn reset(&mut self, now: Instant) -> Vec<u64> {
        let requests = self.streams.iter().filter_map(AuditStream::request).collect();
        for stream in &mut self.streams {
            stream.close(now, false);
            (stream.table, stream.position, stream.verified) = (None, 0, 0);
            (stream.touched, stream.stalled_at, stream.behind_at) = (None, None, None);
        }
        self.log.clear();
        self.missing.clear();
        self.list_due = now;
        requests
    }

    /// Restarts all ages after a time in which this process did not run.
    pub(crate) fn restart_ages(&mut self, now: Instant) {
        self.log.restart_ages(now);
        for missing in &mut self.missing {
            missing.since = now;
        }
        for stream in &mut self.streams {
            (stream.last_record, stream.last_check, stream.last_bookmark) = (now, now, now);
            (stream.evidence, stream.diagnosis, stream.bookmark_due) = (None, None, None);
        }
    }

    /// Returns the age of the oldest change that the stream has not delivered.
    pub(crate) fn lag(&self, endpoint: usize, now: Instant) -> Duration {
        self.log.oldest_pending(endpoint).map_or(Duration::ZERO, |change| now.since(change.first_seen))
    }

    /// Accepts a record of the stream of `endpoint`.
    pub(crate) fn record(&mut self, now: Instant, endpoint: usize, record: &AuditRecord) {
        let stream = &mut self.streams[endpoint];
        stream.last_record = now;
        let (object, is_deletion) = match record {
            AuditRecord::Bookmark(version) => {
                stream.bookmark(now, *version);
                return;
            }
            AuditRecord::Changed(object) => (object, false),
            AuditRecord::Deleted(object) => (object, true),
        };
        let (key, version) = (NameHash::new(self.seed, object), object.version);
        let known = stream.version_of(key);
        if version > stream.position {
            stream.position = version;
            stream.observe_version(now, version, false);
            stream.store(key, version, is_deletion);
            if is_deletion {
                self.log.supersede(endpoint, key, version);
            }
            self.deliver(now, endpoint, object, key, is_deletion);
        } else if known.is_none_or(|known| known < version) {
            // The event is a repetition of a resumed watch, or the resource has no order between its objects.
            if known.is_some() && self.is_ordered {
                self.is_ordered = false;
                self.log.clear();
            }
            stream.store(key, version, is_deletion);
        }
    }

    fn deliver(&mut self, now: Instant, endpoint: usize, object: &ObservedObject, key: NameHash, is_deletion: bool) {
        let version = object.version;
        if let Some(change) = self.log.find(version, key) {
            change.settled.insert(endpoint);
            self.streams[endpoint].record_delay(now.since(change.first_seen));
            return;
        }
        self.streams[endpoint].record_delay(Duration::ZERO);
        let mut settled = EndpointSet::default();
        for (other, stream) in self.streams.iter().enumerate() {
            if other == endpoint || stream.has_settled(key, version) {
                settled.insert(other);
            }
        }
        self.add(now, object, key, is_deletion, settled);
    }

    fn add(&mut self, now: Instant, object: &ObservedObject, key: NameHash, is_deletion: bool, settled: EndpointSet) {
        let is_pending = (0..self.streams.len()).any(|endpoint| !settled.contains(endpoint));
        if is_pending && self.is_ordered {
            let name = display_name(object);
            self.log.insert(Change {
                version: object.version,
                key,
                name,
                first_seen: now,
                is_deletion,
                settled,
                superseded: EndpointSet::default(),
            });
        }
    }

    /// Starts a list on `endpoint`.
    pub(crate) fn start_list(&mut self, now: Instant, endpoint: usize) {
        self.listing = Some(Listing::new(endpoint, now));
        for stream in &mut self.streams {
            stream.touched = stream.table.as_ref().map(|_| HashMap::new());
        }
    }

    /// Abandons the list, and tries again at `retry_at` on another endpoint.
    pub(crate) fn abandon_list(&mut self, retry_at: Instant) {
        self.listing = None;
        self.list_due = retry_at;
        self.list_endpoint += 1;
        for stream in &mut self.streams {
            stream.touched = None;
        }
    }

    /// Compares a page with the streams.
    pub(crate) fn compare_page(&mut self, now: Instant, objects: &[ObservedObject]) {
        for object in objects {
            let (key, version) = (NameHash::new(self.seed, object), object.version);
            if let Some(listing) = &mut self.listing {
                listing.listed.push((key, version));
            }
            let mut settled = EndpointSet::default();
            for (endpoint, stream) in self.streams.iter().enumerate() {
                let known = stream.version_of(key);
                let is_settled = match (&stream.touched, known) {
                    (None, _) => true,
                    (Some(_), Some(known)) => known >= version,
                    // The object is settled if the stream deleted the object during the list.
                    (Some(touched), None) => touched.get(&key).is_some_and(|touched| *touched >= version),
                };
                if is_settled {
                    settled.insert(endpoint);
                }
            }
            if self.log.find(version, key).is_none() {
                self.add(now, object, key, false, settled);
            }
        }
    }

    /// Completes the list: streams without a table receive the objects, and the others are checked for deletions.
    pub(crate) fn finish_list(&mut self, now: Instant) -> Vec<Judgement> {
        let Some(Listing { version: Some(version), mut listed, .. }) = self.listing.take() else { return Vec::new() };
        listed.sort_unstable();
        let mut judgements = Vec::new();
        for (endpoint, stream) in self.streams.iter_mut().enumerate() {
            let touched = stream.touched.take();
            let Some(table) = &stream.table else {
                let mut table = VersionTable::with_capacity_and_hasher(listed.len(), BuildHasherDefault::default());
                table.extend(listed.iter().copied());
                stream.table = Some(table);
                (stream.position, stream.verified) = (version, version);
                self.log.settle_until(endpoint, version);
                continue;
            };
            let Some(touched) = touched else { continue };
            for (&key, &known) in table {
                let is_listed = listed.binary_search_by_key(&key, |(key, _)| *key).is_ok();
                if !is_listed && known <= version && !touched.contains_key(&key) && self.missing.len() < MAX_MISSING {
                    let list_version = version;
                    self.missing.push(MissingDeletion { endpoint, key, version: known, list_version, since: now });
                }
            }
            if !std::mem::take(&mut stream.has_recent_loss) {
                let evidence = "a whole audit period passed without a loss";
                judgements.push(Judgement::end(endpoint, AuditFindingKind::LostEvents, evidence));
            }
        }
        (self.count, self.last_list) = (listed.len() as u64, Some(now));
        judgements
    }

    /// Evaluates the evidence about all streams. Also returns the endpoints whose stream must be opened again.
    pub(crate) fn judge(&mut self, now: Instant, settings: &AuditSettings) -> (Vec<Judgement>, Vec<usize>) {
        let (mut judgements, mut stalled) = (Vec::new(), Vec::new());
        for endpoint in 0..self.streams.len() {
            let Some(since) = self.streams[endpoint].open_since() else { continue };
            let mut lost = self.passed_changes(now, endpoint, since);
            let late = self.late_version(now, endpoint, since, settings.late_after);
            let (undeleted, list_version) = self.undeleted(now, endpoint);
            let stream = &mut self.streams[endpoint];
            let later = |version, is_change| {
                let phase = DiagnosisPhase::Cache;
                Diagnosis { version, is_change, phase, not_before: now }
            };
            // A change takes precedence: each watch cache must reach its version.
            stream.diagnosis = match (late, list_version) {
                (Some(version), _) => Some(stream.diagnosis.filter(|it| it.is_change).unwrap_or(later(version, true))),
                (None, Some(version)) => {
                    Some(stream.diagnosis.filter(|it| !it.is_change).unwrap_or(later(version, false)))
                }
                (None, None) => None,
            };
            lost.extend(undeleted);
            judgements.extend(self.report_loss(endpoint, &lost));
            if self.is_stalled(now, endpoint, &mut judgements) {
                stalled.push(endpoint);
            }
            self.judge_ends(now, endpoint, late.is_some(), &mut judgements);
            self.judge_bookmarks(now, endpoint, settings, &mut judgements);
        }
        let streams = &self.streams;
        self.log.retain(|change| {
            let mut open = streams.iter().enumerate().filter(|(_, stream)| stream.open_since().is_some());
            now.since(change.first_seen) < MAX_CHANGE_AGE && open.any(|(at, _)| !change.settled.contains(at))
        });
        (judgements, stalled)
    }

    /// Settles the changes that the stream has passed without delivering them, and returns their names.
    fn passed_changes(&mut self, now: Instant, endpoint: usize, open_since: Instant) -> Vec<String> {
        let stream = &mut self.streams[endpoint];
        let (position, mut lost) = (stream.position, Vec::new());
        for change in self.log.iter_mut().take_while(|change| change.version <= position) {
            let age = now.since(change.first_seen.max(open_since));
            if !change.settled.contains(endpoint) && age >= EVALUATION_DELAY {
                change.settled.insert(endpoint);
                lost.push(format!("{} at version {}", change.name, change.version));
                repair(stream, endpoint, change);
            }
        }
        lost
    }

    /// Returns the version of the oldest change that is late.
    fn late_version(&self, now: Instant, endpoint: usize, open_since: Instant, late_after: Duration) -> Option<u64> {
        let change = self.log.oldest_pending(endpoint)?;
        let age = now.since(change.first_seen.max(open_since));
        (age >= late_after && change.version > self.streams[endpoint].position).then_some(change.version)
    }

    /// Returns the objects whose deletion was lost, and the version of a list whose deletions are not delivered yet.
    fn undeleted(&mut self, now: Instant, endpoint: usize) -> (Vec<String>, Option<u64>) {
        let stream = &mut self.streams[endpoint];
        let (mut lost, mut waiting) = (Vec::new(), None);
        self.missing.retain(|missing| {
            if missing.endpoint != endpoint {
                return true;
            }
            if stream.version_of(missing.key) != Some(missing.version) {
                return false;
            }
            let age = now.since(missing.since);
            if stream.position >= missing.list_version && age >= EVALUATION_DELAY {
                stream.store(missing.key, missing.version, true);
                lost.push(format!("a deletion before version {}", missing.list_version));
                return false;
            }
            if stream.position < missing.list_version && age >= EVALUATION_DELAY * 2 {
                waiting = Some(missing.list_version);
            }
            true
        });
        (lost, waiting)
    }

    fn report_loss(&mut self, endpoint: usize, lost: &[String]) -> Option<Judgement> {
        if lost.is_empty() {
            return None;
        }
        let stream = &mut self.streams[endpoint];
        stream.lost_events += lost.len() as u64;
        stream.has_recent_loss = true;
        let names = lost.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
        let rest = if lost.len() > MAX_NAMES { ", …" } else { "" };
        let evidence = format!("{} events were not delivered: {names}{rest}", lost.len());
        Some(Judgement::start(endpoint, AuditFindingKind::LostEvents, evidence))
    }

    fn is_stalled(&mut self, now: Instant, endpoint: usize, judgements: &mut Vec<Judgement>) -> bool {
        let stream = &mut self.streams[endpoint];
        let Some(evidence) = stream.evidence else { return false };
        if stream.position >= evidence.version {
            stream.evidence = None;
            return false;
        }
        if now.since(evidence.since) < EVALUATION_DELAY {
            return false;
        }
        let message = format!(
            "a new watch delivered version {}, and the open watch is at version {}; the watch is opened again",
            evidence.version, stream.position
        );
        (stream.evidence, stream.stalled_at) = (None, Some(evidence.version));
        judgements.push(Judgement::start(endpoint, AuditFindingKind::StalledStream, message));
        true
    }

    fn judge_ends(&mut self, now: Instant, endpoint: usize, is_late: bool, judgements: &mut Vec<Judgement>) {
        let stream = &mut self.streams[endpoint];
        if stream.stalled_at.is_some_and(|version| stream.position >= version) {
            stream.stalled_at = None;
            let evidence = "the new watch has delivered the changes";
            judgements.push(Judgement::end(endpoint, AuditFindingKind::StalledStream, evidence));
        }
        if stream.behind_at.is_some_and(|version| stream.position >= version) && !is_late {
            stream.behind_at = None;
            let evidence = format!("the watch has reached version {}", stream.position);
            judgements.push(Judgement::end(endpoint, AuditFindingKind::ReplicaBehind, &evidence));
        }
        if now.since(stream.last_bookmark) < Duration::from_secs(2) {
            judgements.push(Judgement::end(endpoint, AuditFindingKind::MissingBookmarks, "a bookmark arrived"));
        }
    }

    fn judge_bookmarks(
        &mut self,
        now: Instant,
        endpoint: usize,
        settings: &AuditSettings,
        judgements: &mut Vec<Judgement>,
    ) {
        let stream = &self.streams[endpoint];
        let silence = now.since(stream.last_bookmark);
        if silence >= settings.bookmark_timeout
            && stream.bookmark_due.is_some_and(|due| now.since(due) >= BOOKMARK_GRACE)
        {
            let evidence = format!("no bookmark for {} s, although the version has risen", silence.as_secs());
            judgements.push(Judgement::start(endpoint, AuditFindingKind::MissingBookmarks, evidence));
        }
    }

    /// Accepts the result of [`DiagnosisPhase::Cache`].
    pub(crate) fn cache_checked(
        &mut self,
        now: Instant,
        endpoint: usize,
        version: u64,
        reached: bool,
    ) -> Option<Judgement> {
        let stream = &mut self.streams[endpoint];
        let diagnosis = stream.diagnosis.as_mut().filter(|diagnosis| diagnosis.version == version)?;
        if reached {
            diagnosis.phase = DiagnosisPhase::Watch;
            return None;
        }
        diagnosis.not_before = now + DIAGNOSIS_INTERVAL;
        // Without a change of this resource, the version of a watch cache may rise late.
        if !diagnosis.is_change || stream.position >= version {
            return None;
        }
        stream.behind_at = Some(version);
        let evidence = format!(
            "version {version} is known for {} s elsewhere, and the endpoint has not reached it; the watch is at {}",
            self.lag(endpoint, now).as_secs(),
            self.streams[endpoint].position
        );
        Some(Judgement::start(endpoint, AuditFindingKind::ReplicaBehind, evidence))
    }

    /// Accepts the result of a short watch from `from` to its end.
    pub(crate) fn watch_checked(
        &mut self,
        now: Instant,
        endpoint: usize,
        from: u64,
        seen: Option<u64>,
        bookmark: Option<u64>,
    ) -> Option<Judgement> {
        let stream = &mut self.streams[endpoint];
        stream.last_check = now;
        if let Some(version) = seen.filter(|version| *version > stream.position) {
            stream.evidence.get_or_insert(StallEvidence { version, since: now });
            return None;
        }
        if seen.is_none() {
            stream.verified = stream.verified.max(bookmark.unwrap_or_default());
        }
        let diagnosis = stream.diagnosis.filter(|diagnosis| diagnosis.phase == DiagnosisPhase::Watch)?;
        stream.diagnosis = None;
        // The watch must have covered the absent change.
        if seen.is_some() || from > stream.position || stream.position >= diagnosis.version {
            return None;
        }
        let mut lost = Vec::new();
        for change in self.log.iter_mut().take_while(|change| change.version <= diagnosis.version) {
            if !change.settled.contains(endpoint) {
                change.settled.insert(endpoint);
                lost.push(format!("{} at version {}", change.name, change.version));
                repair(stream, endpoint, change);
            }
        }
        self.missing.retain(|missing| {
            let is_lost = missing.endpoint == endpoint
                && missing.list_version <= diagnosis.version
                && stream.version_of(missing.key) == Some(missing.version);
            if is_lost {
                stream.store(missing.key, missing.version, true);
                lost.push(format!("a deletion before version {}", missing.list_version));
            }
            !is_lost
        });
        self.report_loss(endpoint, &lost)
    }
}

/// Stores a lost change, unless the stream has a newer state. Later lists then report the loss only once.
fn repair(stream: &mut AuditStream, endpoint: usize, change: &Change) {
    let known = stream.version_of(change.key);
    if !change.superseded.contains(endpoint) && known.is_none_or(|known| known < change.version) {
        stream.store(change.key, change.version, change.is_deletion);
    }
}

/// Returns namespace and name, with control characters escaped.
fn display_name(object: &ObservedObject) -> Box<str> {
    let ObservedObject { namespace, name, .. } = object;
    let text = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
    text.escape_debug().to_string().into_boxed_str()
}
