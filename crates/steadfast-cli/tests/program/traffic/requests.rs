//! The traffic: a constant rate of requests through the load balancer, and the checks of their responses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Requests per second.
const RATE: u32 = 200;

/// Timeout of one request. Longer than all retries of the load balancer together.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// A finished request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) start_time: Instant,
    pub(crate) end_time: Instant,
    /// Name of the pod that responded, or the reason for the failure.
    pub(crate) outcome: Result<String, String>,
}

/// Running traffic.
#[derive(Debug)]
pub(crate) struct Traffic {
    runtime: Handle,
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Request>>,
}

impl Traffic {
    /// Starts to send [`RATE`] requests per second to `front`, each over a connection of its own.
    pub(crate) fn start(runtime: &Handle, front: SocketAddr) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let task = runtime.spawn(send(front, stop.clone()));
        Self { runtime: runtime.clone(), stop, task }
    }

    /// Stops, waits for the requests in flight, and returns all requests.
    pub(crate) fn finish(self) -> Vec<Request> {
        self.stop.store(true, Ordering::Relaxed);
        self.runtime.block_on(self.task).expect("the sender does not panic")
    }
}

async fn send(front: SocketAddr, stop: Arc<AtomicBool>) -> Vec<Request> {
    let (mut requests, mut in_flight) = (Vec::new(), JoinSet::new());
    let mut ticks = interval(Duration::from_secs(1) / RATE);
    // A busy machine must not reduce the number of requests.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        in_flight.spawn(request(front));
        while let Some(finished) = in_flight.try_join_next() {
            requests.push(finished.expect("a request does not panic"));
        }
    }
    while let Some(finished) = in_flight.join_next().await {
        requests.push(finished.expect("a request does not panic"));
    }
    requests.sort_by_key(|request| request.start_time);
    requests
}

async fn request(front: SocketAddr) -> Request {
    let start_time = Instant::now();
    let outcome = match timeout(REQUEST_TIMEOUT, exchange(front)).await {
        Ok(Ok(response)) => parse_body(&response),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no response within {REQUEST_TIMEOUT:?}")),
    };
    Request { start_time, end_time: Instant::now(), outcome }
}

async fn exchange(front: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(front).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

fn parse_body(response: &str) -> Result<String, String> {
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") && !body.is_empty() => Ok(body.to_owned()),
        Some((head, _)) => Err(head.lines().next().unwrap_or_default().to_owned()),
        None => Err(format!("a response of {} bytes", response.len())),
    }
}

/// Periods in which failed requests are allowed: restarts of the load balancer, and crashes of pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowances {
    /// Periods in which a request in flight may fail.
    pub(crate) windows: Vec<(Instant, Instant)>,
}

impl Allowances {
    fn covers(&self, request: &Request) -> bool {
        let overlaps = |(from, to): &(Instant, Instant)| request.start_time <= *to && request.end_time >= *from;
        self.windows.iter().any(overlaps)
    }
}

/// Result of a run without an unexpected failure.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) requests: usize,
    /// Number of failed requests that the [`Allowances`] cover.
    pub(crate) allowed_failures: usize,
    /// Number of responses by the name of the pod.
    pub(crate) response_counts: BTreeMap<String, usize>,
}

/// Returns an error if a request failed outside of `allowances`, or if a pod that is not in `pods` responded.
pub(crate) fn check_requests(
    start: Instant,
    requests: &[Request],
    allowances: &Allowances,
    pods: &BTreeSet<String>,
) -> Result<Verdict, String> {
    let (mut response_counts, mut allowed_failures, mut failures) = (BTreeMap::<String, usize>::new(), 0, Vec::new());
    for request in requests {
        let fault = match &request.outcome {
            Ok(name) if pods.contains(name) => {
                *response_counts.entry(name.clone()).or_default() += 1;
                continue;
            }
            Ok(name) => format!("{name} responded, which is not a pod of this backend"),
            Err(_) if allowances.covers(request) => {
                allowed_failures += 1;
                continue;
            }
            Err(error) => error.clone(),
        };
        let (from, to) = (request.start_time - start, request.end_time - start);
        failures.push(format!("{from:.3?} to {to:.3?}: {fault}"));
    }
    if failures.is_empty() {
        return Ok(Verdict { requests: requests.len(), allowed_failures, response_counts });
    }
    let shown_failures = failures.iter().take(3).chain(failures.iter().rev().take(3).rev());
    let shown_failures: Vec<_> = shown_failures.map(String::as_str).collect();
    Err(format!(
        "{} of {} requests failed, among them\n  {}",
        failures.len(),
        requests.len(),
        shown_failures.join("\n  ")
    ))
}

mod tests {
    use super::*;

    fn requests(start: Instant, outcomes: &[(u64, u64, Result<&str, &str>)]) -> Vec<Request> {
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let request_of = |(from, to, outcome): &(u64, u64, Result<&str, &str>)| Request {
            start_time: at(*from),
            end_time: at(*to),
            outcome: outcome.map(str::to_owned).map_err(str::to_owned),
        };
        outcomes.iter().map(request_of).collect()
    }

    #[test]
    fn failure_outside_allowances_is_reported() {
        let start = Instant::now();
        let pods = BTreeSet::from(["web-1".to_owned()]);
        let requests = requests(start, &[(0, 5, Ok("web-1")), (10, 12, Err("503")), (30, 31, Err("502"))]);
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut allowances = Allowances { windows: vec![(at(11), at(20))] };
        let fault = check_requests(start, &requests, &allowances, &pods).expect_err("the request at 30 ms failed");
        assert!(fault.contains("1 of 3 requests failed") && fault.contains("502"), "{fault}");
        allowances.windows.push((at(30), at(30)));
        let verdict = check_requests(start, &requests, &allowances, &pods).expect("both failures are allowed");
        assert_eq!((verdict.requests, verdict.allowed_failures, verdict.response_counts["web-1"]), (3, 2, 1));
    }

    #[test]
    fn response_of_foreign_pod_is_reported() {
        let start = Instant::now();
        let requests = requests(start, &[(0, 5, Ok("tenant-1"))]);
        let allowances = Allowances { windows: vec![(start, start + Duration::from_secs(1))] };
        let fault =
            check_requests(start, &requests, &allowances, &BTreeSet::from(["web-1".to_owned()])).expect_err("foreign");
        assert!(fault.contains("tenant-1 responded"), "{fault}");
    }

    #[test]
    fn error_status_and_cut_response_are_failures() {
        assert_eq!(parse_body("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nweb-1"), Ok("web-1".to_owned()));
        assert_eq!(
            parse_body("HTTP/1.1 503 Service Unavailable\r\n\r\n"),
            Err("HTTP/1.1 503 Service Unavailable".to_owned())
        );
        assert!(parse_body("HTTP/1.1 200 OK\r\n\r\n").is_err() && parse_body("").is_err());
    }
}
