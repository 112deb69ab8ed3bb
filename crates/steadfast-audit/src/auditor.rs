//! The auditor: a state machine that sends requests, and evaluates the replies.

use std::collections::HashMap;
use std::time::Duration;

use steadfast::environment::Instant;

use crate::change_log::EndpointSet;
use crate::endpoint_state::{EndpointState, Probe, ProbeEffect};
use crate::finding::{AuditFinding, AuditFindingKind, AuditSubject, FindingLog};
use crate::message::{AuditFailure, AuditInput, AuditOutput, AuditQuery, AuditRecord, AuditReply};
use crate::resource_state::{Judgement, ResourceState};
use crate::schedule::{next_probe, page_limit};
use crate::settings::AuditSettings;
use crate::stats::{AuditStats, EndpointStats, StreamStats};
use crate::stream::{AuditStream, StreamState};

/// Deadline of a page of a list.
const PAGE_DEADLINE: Duration = Duration::from_secs(30);

/// Deadline for the head of the response of a watch.
const WATCH_DEADLINE: Duration = Duration::from_secs(20);

/// Delay before a failed list is tried again.
const LIST_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Delay before a rejected watch is tried again.
const REJECTED_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Gap between two inputs from which the process counts as suspended.
const MAX_GAP: Duration = Duration::from_secs(5);

/// Longest quoted text of a server.
const MAX_QUOTED_CHARS: usize = 200;

/// Age of a pending consistent read from which a request without storage is sent.
const COMPANION_DELAY: Duration = Duration::from_secs(2);

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Purpose {
    Page,
    Stream,
    Probe,
    /// Sign of life during a slow probe.
    Alive,
}

/// Request without a final reply.
#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    endpoint: usize,
    resource: usize,
    purpose: Purpose,
    /// Position of the stream when the request was sent. A consistent read is at least as new; 0 for other requests.
    position: u64,
}

/// Checks the API server endpoints of a cluster. Has no I/O and no clock.
///
/// The caller passes an [`AuditInput::Tick`] each second, and each reply to the requests of the outputs.
#[derive(Debug)]
pub struct Auditor {
    settings: AuditSettings,
    endpoints: Vec<EndpointState>,
    resource_names: Vec<String>,
    resources: Vec<ResourceState>,
    requests: HashMap<u64, PendingRequest>,
    next_request: u64,
    next_page: Instant,
    last_input: Instant,
    findings: FindingLog,
    outputs: Vec<AuditOutput>,
}

impl Auditor {
    /// Creates the auditor of `endpoints` and `resources`, by their names in findings. Endpoints above the 32nd are
    /// ignored.
    pub fn new(now: Instant, endpoints: &[String], resources: &[String], settings: AuditSettings) -> Self {
        let endpoints = &endpoints[..endpoints.len().min(EndpointSet::MAX)];
        Self {
            endpoints: endpoints.iter().map(|name| EndpointState::new(name.clone(), now)).collect(),
            resource_names: resources.to_vec(),
            resources: resources.iter().map(|_| ResourceState::new(endpoints.len(), now, settings.seed)).collect(),
            settings,
            requests: HashMap::new(),
            next_request: 0,
            next_page: now,
            last_input: now,
            findings: FindingLog::default(),
            outputs: Vec::new(),
        }
    }

    /// Accepts an input, and returns the outputs in their order.
    pub fn step(&mut self, now: Instant, input: AuditInput) -> Vec<AuditOutput> {
        if now.since(self.last_input) > MAX_GAP {
            self.restart_ages(now);
        }
        self.last_input = now;
        match input {
            AuditInput::Tick => self.tick(now),
            AuditInput::Reply(request, reply) => self.reply(now, request, reply),
        }
        self.report();
        std::mem::take(&mut self.outputs)
    }

    /// Restarts the timers of all resources and endpoints, because a suspended process receives nothing.
    fn restart_ages(&mut self, now: Instant) {
        self.resources.iter_mut().for_each(|resource| resource.restart_ages(now));
        self.endpoints.iter_mut().for_each(|endpoint| endpoint.restart_ages(now));
    }

    fn tick(&mut self, now: Instant) {
        self.request_pages(now);
        for resource in 0..self.resources.len() {
            let (judgements, stalled) = self.resources[resource].judge(now, &self.settings);
            self.apply(now, resource, judgements);
            for endpoint in stalled {
                self.close_stream(now, endpoint, resource);
            }
            for endpoint in 0..self.endpoints.len() {
                self.open_stream(now, endpoint, resource);
            }
        }
        for endpoint in 0..self.endpoints.len() {
            self.probe(now, endpoint);
        }
    }

    fn send(
        &mut self,
        endpoint: usize,
        resource: usize,
        purpose: Purpose,
        query: AuditQuery,
        deadline: Duration,
    ) -> u64 {
        self.next_request += 1;
        let request = self.next_request;
        let position = match &query {
            AuditQuery::Newest => self.resources[resource].streams[endpoint].position,
            // Later pages have the version of the first one.
            AuditQuery::Page { continue_token, .. } if continue_token.is_empty() => {
                self.resources[resource].streams[endpoint].position
            }
            _ => 0,
        };
        self.requests.insert(request, PendingRequest { endpoint, resource, purpose, position });
        self.endpoints[endpoint].requests += 1;
        self.outputs.push(AuditOutput::Send { request, endpoint, resource, query, deadline });
        request
    }

    fn cancel(&mut self, request: u64) {
        if self.requests.remove(&request).is_some() {
            self.outputs.push(AuditOutput::Cancel { request });
        }
    }

    fn open_stream(&mut self, now: Instant, endpoint: usize, resource: usize) {
        let stream = &self.resources[resource].streams[endpoint];
        let StreamState::Closed { retry_at } = stream.state else { return };
        if retry_at > now || stream.table.is_none() || self.endpoints[endpoint].is_unresponsive {
            return;
        }
        let from = stream.position.max(stream.verified);
        let request = self.send(endpoint, resource, Purpose::Stream, AuditQuery::Watch { from }, WATCH_DEADLINE);
        self.resources[resource].streams[endpoint].state = StreamState::Opening { request };
    }

    fn close_stream(&mut self, now: Instant, endpoint: usize, resource: usize) {
        let stream = &mut self.resources[resource].streams[endpoint];
        let request = stream.request();
        stream.close(now, false);
        if let Some(request) = request {
            self.cancel(request);
        }
    }

    /// Requests the next page of the list in progress, or of the next list.
    fn request_pages(&mut self, now: Instant) {
        if now < self.next_page {
            return;
        }
        let active = self.resources.iter().position(|resource| resource.listing.is_some());
        let Some(resource) = active.or_else(|| self.start_next_list(now)) else { return };
        let state = &self.resources[resource];
        let limit = page_limit(state.count, state.page_divisor);
        let Some(listing) = &state.listing else { return };
        if listing.request.is_some() {
            return;
        }
        let (endpoint, continue_token) = (listing.endpoint, listing.continue_token.clone());
        let query = AuditQuery::Page { limit, continue_token };
        let request = self.send(endpoint, resource, Purpose::Page, query, PAGE_DEADLINE);
        self.next_page = now + self.settings.page_interval;
        if let Some(listing) = &mut self.resources[resource].listing {
            listing.request = Some(request);
        }
    }

    /// Starts the list that is due first, and returns its resource.
    fn start_next_list(&mut self, now: Instant) -> Option<usize> {
        let due = self.resources.iter().enumerate().filter(|(_, resource)| resource.list_due <= now);
        let (resource, _) = due.min_by_key(|(_, resource)| resource.list_due)?;
        let (first, count) = (self.resources[resource].list_endpoint + resource, self.endpoints.len());
        let mut endpoints = (0..count).map(|offset| (first + offset) % count);
        let endpoint = endpoints.find(|endpoint| !self.endpoints[*endpoint].is_unresponsive)?;
        self.resources[resource].start_list(now, endpoint);
        Some(resource)
    }

    fn probe(&mut self, now: Instant, endpoint: usize) {
        let state = &mut self.endpoints[endpoint];
        if let Some(probe) = &mut state.probe
            && probe.query == AuditQuery::Newest
            && !probe.has_companion
            && now.since(probe.sent) >= COMPANION_DELAY
        {
            // This request distinguishes a frozen storage from a frozen endpoint.
            probe.has_companion = true;
            let deadline = self.settings.probe_deadline.saturating_sub(COMPANION_DELAY);
            self.send(endpoint, 0, Purpose::Alive, AuditQuery::Alive, deadline);
            return;
        }
        let state = &self.endpoints[endpoint];
        if state.probe.is_some() || now < state.next_probe || self.resources.is_empty() {
            return;
        }
        let streams: Vec<&AuditStream> = self.resources.iter().map(|resource| &resource.streams[endpoint]).collect();
        let (resource, query) = next_probe(now, endpoint, state.probes, &streams, &self.settings);
        let deadline = self.settings.probe_deadline;
        self.send(endpoint, resource, Purpose::Probe, query.clone(), deadline);
        let state = &mut self.endpoints[endpoint];
        state.probes += 1;
        state.next_probe = now + self.settings.probe_interval;
        state.probe = Some(Probe { query, sent: now, seen: None, bookmark: None, has_companion: false });
    }

    fn reply(&mut self, now: Instant, request: u64, reply: AuditReply) {
        let Some(pending) = self.requests.get(&request).copied() else { return };
        let is_final = matches!(reply, AuditReply::Page { .. } | AuditReply::Ended | AuditReply::Failed(_));
        if is_final {
            self.requests.remove(&request);
        }
        if !matches!(reply, AuditReply::Failed(AuditFailure::NoResponse(_) | AuditFailure::Deadline)) {
            self.endpoints[pending.endpoint].last_alive = Some(now);
        }
        match pending.purpose {
            Purpose::Page => self.page(now, pending, reply),
            Purpose::Stream => self.stream_reply(now, pending, reply),
            Purpose::Probe => self.probe_reply(now, pending, reply),
            Purpose::Alive => {}
        }
    }

    fn page(&mut self, now: Instant, pending: PendingRequest, reply: AuditReply) {
        let PendingRequest { endpoint, resource, .. } = pending;
        let retry_at = now + LIST_RETRY_DELAY;
        let AuditReply::Page { version, objects, continue_token, remaining } = reply else {
            if let AuditReply::Failed(failure) = reply {
                let state = &mut self.resources[resource];
                if matches!(failure, AuditFailure::Unusable(_)) {
                    state.page_divisor = (state.page_divisor * 2).min(64);
                }
                self.rejected(now, endpoint, resource, &failure);
            }
            return self.resources[resource].abandon_list(retry_at);
        };
        if self.is_history_reset(now, pending, version) {
            return self.resources[resource].abandon_list(now);
        }
        self.accepted(now, endpoint, resource);
        let state = &mut self.resources[resource];
        let Some(listing) = &mut state.listing else { return };
        if listing.version.is_some_and(|first| first != version) {
            // Pages of different versions are not one state.
            return state.abandon_list(retry_at);
        }
        (listing.version, listing.request) = (Some(version), None);
        let started = listing.started;
        continue_token.clone_into(&mut listing.continue_token);
        if let (None, Some(remaining)) = (state.last_list, remaining) {
            state.count = objects.len() as u64 + remaining;
        }
        state.compare_page(now, &objects);
        if continue_token.is_empty() {
            let judgements = state.finish_list(now);
            // The next list starts before the period ends, because the comparison follows the list.
            state.list_due = started + self.settings.period.mul_f64(0.9);
            state.list_endpoint += 1;
            self.apply(now, resource, judgements);
            for endpoint in 0..self.endpoints.len() {
                let subject = AuditSubject { endpoint, resource: Some(resource) };
                self.findings.end(now, AuditFindingKind::HistoryReset, subject, "the objects are listed again");
            }
        }
    }

    /// Returns true if a consistent read is older than the stream of the same endpoint. Only a restore can cause this.
    fn is_history_reset(&mut self, now: Instant, pending: PendingRequest, version: u64) -> bool {
        let PendingRequest { endpoint, resource, position, .. } = pending;
        let state = &mut self.resources[resource];
        if version >= position || !state.is_ordered {
            return false;
        }
        let requests = state.reset(now);
        for request in requests {
            self.cancel(request);
        }
        // Requests in flight have positions of the old history.
        for pending in self.requests.values_mut().filter(|pending| pending.resource == resource) {
            pending.position = 0;
        }
        let evidence = format!("a list has version {version}, and the watch was at version {position}");
        let subject = AuditSubject { endpoint, resource: Some(resource) };
        self.findings.start(now, AuditFindingKind::HistoryReset, subject, evidence);
        true
    }

    fn stream_reply(&mut self, now: Instant, pending: PendingRequest, reply: AuditReply) {
        let PendingRequest { endpoint, resource, .. } = pending;
        match reply {
            AuditReply::Opened => {
                self.resources[resource].streams[endpoint].open(now);
                self.accepted(now, endpoint, resource);
            }
            AuditReply::Record(record) => self.resources[resource].record(now, endpoint, &record),
            AuditReply::Failed(failure) => {
                let is_rejected = self.rejected(now, endpoint, resource, &failure);
                let state = &mut self.resources[resource];
                let stream = &mut state.streams[endpoint];
                stream.close(now, true);
                if is_rejected {
                    stream.state = StreamState::Closed { retry_at: now + REJECTED_RETRY_DELAY };
                }
                if matches!(failure, AuditFailure::Status(410, _)) {
                    // The events in between are not available any more, so the stream starts with a new list.
                    stream.table = None;
                    state.list_due = state.list_due.min(now);
                }
            }
            AuditReply::Ended | AuditReply::Page { .. } => {
                self.resources[resource].streams[endpoint].close(now, false);
            }
        }
    }

    fn probe_reply(&mut self, now: Instant, pending: PendingRequest, reply: AuditReply) {
        let PendingRequest { endpoint, resource, .. } = pending;
        let Some(mut probe) = self.endpoints[endpoint].probe.take() else { return };
        let effect = match reply {
            AuditReply::Opened => {
                let effect = self.endpoints[endpoint].responded();
                self.endpoints[endpoint].probe = Some(probe);
                effect
            }
            AuditReply::Record(record) => {
                match record {
                    AuditRecord::Bookmark(version) => probe.bookmark = Some(version),
                    AuditRecord::Changed(object) | AuditRecord::Deleted(object) => {
                        probe.seen.get_or_insert(object.version);
                    }
                }
                self.endpoints[endpoint].probe = Some(probe);
                ProbeEffect::None
            }
            AuditReply::Page { version, .. } => self.probe_page(now, pending, &probe, version),
            AuditReply::Ended => {
                if let AuditQuery::ShortWatch { from, .. } = probe.query {
                    let state = &mut self.resources[resource];
                    let judgement = state.watch_checked(now, endpoint, from, probe.seen, probe.bookmark);
                    self.apply(now, resource, judgement);
                }
                self.endpoints[endpoint].responded()
            }
            AuditReply::Failed(failure) => self.probe_failed(now, endpoint, resource, &probe, &failure),
        };
        self.apply_probe(now, endpoint, effect);
    }

    fn probe_page(&mut self, now: Instant, pending: PendingRequest, probe: &Probe, version: u64) -> ProbeEffect {
        let PendingRequest { endpoint, resource, .. } = pending;
        if let AuditQuery::Reached { version } = probe.query {
            let judgement = self.resources[resource].cache_checked(now, endpoint, version, true);
            self.apply(now, resource, judgement);
            return self.endpoints[endpoint].responded();
        }
        if !self.is_history_reset(now, pending, version) {
            let stream = &mut self.resources[resource].streams[endpoint];
            if stream.open_since().is_some() {
                stream.observe_version(now, version, true);
            }
        }
        self.endpoints[endpoint].read()
    }

    fn probe_failed(
        &mut self,
        now: Instant,
        endpoint: usize,
        resource: usize,
        probe: &Probe,
        failure: &AuditFailure,
    ) -> ProbeEffect {
        match (&probe.query, failure) {
            (AuditQuery::Reached { version }, AuditFailure::Status(code, message))
                if *code == 504 || message.to_ascii_lowercase().contains("too large resource version") =>
            {
                let judgement = self.resources[resource].cache_checked(now, endpoint, *version, false);
                self.apply(now, resource, judgement);
            }
            (AuditQuery::ShortWatch { .. }, AuditFailure::Status(410, _)) => {
                // The stream cannot be verified any more, so it starts with a new list.
                self.close_stream(now, endpoint, resource);
                let state = &mut self.resources[resource];
                state.streams[endpoint].table = None;
                state.list_due = state.list_due.min(now);
            }
            _ => {}
        }
        self.resources[resource].streams[endpoint].last_check = now;
        self.endpoints[endpoint].failed(now, probe, failure, &self.settings)
    }

    fn apply_probe(&mut self, now: Instant, endpoint: usize, effect: ProbeEffect) {
        use AuditFindingKind::{ReadsFailing, Unresponsive};
        let subject = AuditSubject { endpoint, resource: None };
        match effect {
            ProbeEffect::None => {}
            ProbeEffect::Responsive => self.findings.end(now, Unresponsive, subject, "the endpoint responds"),
            ProbeEffect::Consistent => {
                self.findings.end(now, Unresponsive, subject, "the endpoint responds");
                self.findings.end(now, ReadsFailing, subject, "a consistent read succeeded");
            }
            ProbeEffect::ReadsFailing(reason) => self.findings.start(now, ReadsFailing, subject, quote(&reason)),
            ProbeEffect::Unresponsive(reason) => {
                if self.findings.active_since(Unresponsive, subject).is_none() {
                    // Packets may have been lost, so that the open watches never end.
                    (0..self.resources.len()).for_each(|resource| self.close_stream(now, endpoint, resource));
                }
                self.findings.start(now, Unresponsive, subject, quote(&reason));
            }
        }
    }

    /// Starts the finding of a rejected resource. Returns false for failures that a retry may solve.
    fn rejected(&mut self, now: Instant, endpoint: usize, resource: usize, failure: &AuditFailure) -> bool {
        let reason = match failure {
            AuditFailure::Status(code @ (400..=409 | 415 | 422), message) => format!("{code} {message}"),
            AuditFailure::Unusable(reason) => reason.clone(),
            _ => return false,
        };
        let subject = AuditSubject { endpoint, resource: Some(resource) };
        self.findings.start(now, AuditFindingKind::NotAudited, subject, quote(&reason));
        true
    }

    fn accepted(&mut self, now: Instant, endpoint: usize, resource: usize) {
        let subject = AuditSubject { endpoint, resource: Some(resource) };
        self.findings.end(now, AuditFindingKind::NotAudited, subject, "the endpoint accepts the requests");
    }

    fn apply(&mut self, now: Instant, resource: usize, judgements: impl IntoIterator<Item = Judgement>) {
        for Judgement { endpoint, kind, is_active, evidence } in judgements {
            let subject = AuditSubject { endpoint, resource: Some(resource) };
            if is_active {
                self.findings.start(now, kind, subject, evidence);
            } else {
                self.findings.end(now, kind, subject, &evidence);
            }
        }
    }

    fn report(&mut self) {
        for (kind, AuditSubject { endpoint, resource }, state, evidence) in self.findings.take() {
            self.outputs.push(AuditOutput::Finding(AuditFinding {
                kind,
                endpoint: self.endpoints[endpoint].name.clone(),
                resource: resource.map(|resource| self.resource_names[resource].clone()),
                state,
                evidence,
            }));
        }
    }

    /// Returns the current state and counters, for metrics.
    pub fn stats(&self, now: Instant) -> AuditStats {
        let findings = |kind: AuditFindingKind, endpoint| {
            (kind, self.findings.active_count(kind, endpoint), self.findings.total(kind, endpoint))
        };
        let stream = |name: &String, resource: &ResourceState, endpoint: usize| {
            let stream = &resource.streams[endpoint];
            StreamStats {
                resource: name.clone(),
                is_open: stream.open_since().is_some(),
                objects: stream.table.as_ref().map_or(0, |table| table.len() as u64),
                lag: resource.lag(endpoint, now),
                delays: stream.delays.clone(),
                lost_events: stream.lost_events,
                bookmark_age: stream.open_since().map(|_| now.since(stream.last_bookmark)),
                last_list_age: resource.last_list.map(|last| now.since(last)),
            }
        };
        let endpoints = self.endpoints.iter().enumerate().map(|(at, endpoint)| EndpointStats {
            endpoint: endpoint.name.clone(),
            is_responsive: !endpoint.is_unresponsive,
            requests: endpoint.requests,
            last_response_age: endpoint.last_alive.map(|alive| now.since(alive)),
            findings: AuditFindingKind::ALL.map(|kind| findings(kind, at)).to_vec(),
            streams: self.resource_names.iter().zip(&self.resources).map(|(name, it)| stream(name, it, at)).collect(),
        });
        AuditStats { endpoints: endpoints.collect() }
    }
}

/// Returns a text of the server, limited and with control characters escaped.
fn quote(text: &str) -> String {
    let mut quoted: String = text.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_QUOTED_CHARS).is_some() {
        quoted.push('…');
    }
    quoted
}
