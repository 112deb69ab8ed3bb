//! Requests and memory of an audit of 10 resources with 100,000 objects on 3 endpoints.

use std::collections::VecDeque;
use std::time::Duration;

use peak_alloc::PeakAlloc;
use steadfast::environment::Instant;
use steadfast_audit::{
    AuditInput, AuditOutput, AuditQuery, AuditRecord, AuditReply, AuditSettings, Auditor, ObservedObject,
};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const ENDPOINTS: u64 = 3;
const RESOURCES: u64 = 10;
const OBJECTS_PER_RESOURCE: u64 = 10_000;
const MAX_MEMORY: usize = 40_000_000;

/// Responses of a healthy server with unchanged objects.
struct Server {
    version: u64,
    replies: VecDeque<(u64, AuditReply)>,
    streams: Vec<u64>,
    requests: Vec<Instant>,
}

impl Server {
    fn accept(&mut self, now: Instant, outputs: Vec<AuditOutput>) {
        for output in outputs {
            match output {
                AuditOutput::Send { request, resource, query, .. } => {
                    self.requests.push(now);
                    let reply = self.respond(request, resource, &query);
                    self.replies.extend(reply.into_iter().map(|reply| (request, reply)));
                }
                AuditOutput::Finding(finding) => panic!("{finding}"),
                AuditOutput::Cancel { .. } => {}
            }
        }
    }

    fn respond(&mut self, request: u64, resource: usize, query: &AuditQuery) -> Vec<AuditReply> {
        let version = self.version;
        match query {
            AuditQuery::Page { limit, continue_token } => {
                // All pages have the version of the first one.
                let (start, version) = match continue_token.split_once('@') {
                    Some((start, version)) => (start.parse().expect("a number"), version.parse().expect("a number")),
                    None => (0, version),
                };
                let end = (start + limit).min(OBJECTS_PER_RESOURCE);
                let object = |number| ObservedObject {
                    namespace: format!("namespace-{}", number % 100),
                    name: format!("object-{resource}-{number}"),
                    version: number + 1,
                };
                let token = if end < OBJECTS_PER_RESOURCE { format!("{end}@{version}") } else { String::new() };
                let (objects, remaining) = ((start..end).map(object).collect(), Some(OBJECTS_PER_RESOURCE - end));
                vec![AuditReply::Page { version, objects, continue_token: token, remaining }]
            }
            AuditQuery::Watch { .. } => {
                self.streams.push(request);
                vec![AuditReply::Opened]
            }
            AuditQuery::ShortWatch { .. } => {
                vec![AuditReply::Opened, AuditReply::Record(AuditRecord::Bookmark(version)), AuditReply::Ended]
            }
            _ => {
                vec![AuditReply::Page { version, objects: Vec::new(), continue_token: String::new(), remaining: None }]
            }
        }
    }
}

fn names(prefix: &str, count: u64) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

#[test]
fn cost_stays_within_bounds() {
    let settings = AuditSettings::default();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let mut auditor =
        Auditor::new(Instant::ZERO, &names("endpoint", ENDPOINTS), &names("resource", RESOURCES), settings);
    let mut server = Server { version: 1_000_000, replies: VecDeque::new(), streams: Vec::new(), requests: Vec::new() };
    for second in 0..3600 {
        let now = Instant::from_zero(Duration::from_secs(second));
        server.version += 1;
        let outputs = auditor.step(now, AuditInput::Tick);
        server.accept(now, outputs);
        if second % 60 == 0 {
            let bookmark = AuditReply::Record(AuditRecord::Bookmark(server.version));
            server.replies.extend(server.streams.iter().map(|stream| (*stream, bookmark.clone())));
        }
        while let Some((request, reply)) = server.replies.pop_front() {
            let outputs = auditor.step(now, AuditInput::Reply(request, reply));
            server.accept(now, outputs);
        }
    }
    let stats = auditor.stats(Instant::from_zero(Duration::from_secs(3600)));
    let objects: u64 = stats.endpoints.iter().flat_map(|it| &it.streams).map(|stream| stream.objects).sum();
    assert_eq!(objects, ENDPOINTS * RESOURCES * OBJECTS_PER_RESOURCE);
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(peak <= MAX_MEMORY, "{peak} bytes");
    // After the first 5 minutes, the limit of requests holds in each interval of 5 minutes.
    for start in (300..3600).step_by(300) {
        let times = server.requests.iter().map(|at| at.since_zero().as_secs());
        let count = times.filter(|at| (start..start + 300).contains(at)).count();
        assert!(count <= 300, "{count} requests in 300 s");
    }
}
