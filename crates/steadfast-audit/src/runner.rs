//! Runs an auditor on connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use parking_lot::Mutex;
use steadfast::Connection;
use steadfast::connection::SendError;
use steadfast::environment::Instant;
use steadfast::transport::{Deadlines, ResponseBody, TransportError};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout, timeout_at};

use crate::auditor::Auditor;
use crate::finding::AuditFinding;
use crate::message::{AuditFailure, AuditInput, AuditOutput, AuditQuery, AuditReply};
use crate::settings::AuditSettings;
use crate::stats::AuditStats;
use crate::wire::{accept, decode_list, decode_record, path, rejection};

/// Maximum size of a page of a list. Larger pages are requested again with fewer objects.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// Maximum size of a record of a watch, and of the body of a rejection.
const MAX_RECORD_BYTES: usize = 4 << 20;

/// Maximum number of replies that wait for the auditor. At this limit, reads from the connections pause.
const MAX_PENDING_REPLIES: usize = 256;

/// Interval of [`AuditInput::Tick`].
const TICK: Duration = Duration::from_secs(1);

/// API server endpoint to audit.
#[derive(Clone, Debug)]
pub struct AuditEndpoint {
    /// Name in findings and metrics, such as the address.
    pub name: String,
    /// Connection to this endpoint alone.
    pub connection: Connection,
}

/// Resource to audit.
#[derive(Clone, Debug)]
pub struct AuditResource {
    /// Name in findings and metrics: `deployments.apps`.
    pub name: String,
    /// Path of the collection: `/apis/apps/v1/deployments`.
    pub path: String,
}

/// Running audit. Dropping it ends the audit.
///
/// ```no_run
/// # async fn example(connection: steadfast::Connection) {
/// use steadfast_audit::{Audit, AuditEndpoint, AuditResource, AuditSettings};
///
/// let endpoints = vec![AuditEndpoint { name: "10.0.0.1:6443".to_owned(), connection }];
/// let resources = vec![AuditResource { name: "pods".to_owned(), path: "/api/v1/pods".to_owned() }];
/// let audit = Audit::start(endpoints, resources, AuditSettings::default(), |finding| eprintln!("{finding}"));
/// println!("{:?}", audit.stats());
/// # }
/// ```
#[derive(Debug)]
pub struct Audit {
    auditor: Arc<Mutex<Auditor>>,
    started: tokio::time::Instant,
    task: JoinHandle<()>,
}

impl Audit {
    /// Starts an audit on the current tokio runtime. `on_finding` is called for each start and end of a finding, and must
    /// not block.
    ///
    /// At most 32 endpoints are audited.
    pub fn start(
        endpoints: Vec<AuditEndpoint>,
        resources: Vec<AuditResource>,
        settings: AuditSettings,
        on_finding: impl Fn(&AuditFinding) + Send + 'static,
    ) -> Self {
        let endpoint_names: Vec<String> = endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
        let resource_names: Vec<String> = resources.iter().map(|resource| resource.name.clone()).collect();
        let auditor = Auditor::new(Instant::ZERO, &endpoint_names, &resource_names, settings);
        let (auditor, started) = (Arc::new(Mutex::new(auditor)), tokio::time::Instant::now());
        let task = tokio::spawn(run(auditor.clone(), started, endpoints, resources, on_finding));
        Self { auditor, started, task }
    }

    /// Returns the current state and counters.
    pub fn stats(&self) -> AuditStats {
        self.auditor.lock().stats(Instant::from_zero(self.started.elapsed()))
    }

    /// Returns whether the audit has ended unexpectedly.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Task of a request. Dropping the handle aborts the task.
struct RequestTask(JoinHandle<()>);

impl Drop for RequestTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(
    auditor: Arc<Mutex<Auditor>>,
    started: tokio::time::Instant,
    endpoints: Vec<AuditEndpoint>,
    resources: Vec<AuditResource>,
    on_finding: impl Fn(&AuditFinding),
) {
    let (replies, mut received) = channel(MAX_PENDING_REPLIES);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tasks: HashMap<u64, RequestTask> = HashMap::new();
    loop {
        // `biased` processes all received records before the tick that evaluates them.
        let input = tokio::select! {
            biased;
            Some((request, reply)) = received.recv() => AuditInput::Reply(request, reply),
            _ = ticks.tick() => AuditInput::Tick,
        };
        if let AuditInput::Tick = input {
            tasks.retain(|_, task| !task.0.is_finished());
        }
        let outputs = auditor.lock().step(Instant::from_zero(started.elapsed()), input);
        for output in outputs {
            match output {
                AuditOutput::Send { request, endpoint, resource, query, deadline } => {
                    let collection = &resources[resource].path;
                    let exchange = Exchange {
                        connection: endpoints[endpoint].connection.clone(),
                        path: path(collection, &query, request),
                        query,
                        deadline,
                        request,
                        replies: replies.clone(),
                    };
                    tasks.insert(request, RequestTask(tokio::spawn(exchange.run())));
                }
                AuditOutput::Cancel { request } => drop(tasks.remove(&request)),
                AuditOutput::Finding(finding) => on_finding(&finding),
            }
        }
    }
}

/// A request and its replies.
struct Exchange {
    connection: Connection,
    path: String,
    query: AuditQuery,
    deadline: Duration,
    request: u64,
    replies: Sender<(u64, AuditReply)>,
}

impl Exchange {
    async fn run(self) {
        let result = if self.query.is_watch() { self.watch().await } else { self.list().await };
        self.reply(result.unwrap_or_else(AuditReply::Failed)).await;
    }

    async fn reply(&self, reply: AuditReply) {
        // The receiver ends only with the audit.
        let _ = self.replies.send((self.request, reply)).await;
    }

    /// Sends the request, and returns the body of a successful response.
    async fn send(&self) -> Result<ResponseBody, AuditFailure> {
        let request = Request::get(&self.path).header("accept", accept(&self.query));
        // `self.deadline` must expire first, so the deadline for the headers is longer. A watch may be silent, so its
        // body has no deadline.
        let deadlines = Deadlines { headers: Some(self.deadline * 2), progress: None };
        let request = request.extension(deadlines).body(Body::empty());
        let request = request.map_err(|error| AuditFailure::Unusable(format!("the path is not valid: {error}")))?;
        let response = self.connection.send(request).await.map_err(send_failure)?;
        let (head, body) = response.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        // Without a complete body, a rejection still has its status.
        let body = timeout(self.deadline, collect(body, MAX_RECORD_BYTES)).await;
        Err(rejection(head.status.as_u16(), &body.ok().and_then(Result::ok).unwrap_or_default()))
    }

    async fn list(&self) -> Result<AuditReply, AuditFailure> {
        let body = timeout(self.deadline, async { collect(self.send().await?, MAX_PAGE_BYTES).await });
        let body = body.await.unwrap_or(Err(AuditFailure::Deadline))?;
        match self.query {
            // Any response is a sign of life.
            AuditQuery::Alive => Ok(AuditReply::Ended),
            _ => decode_list(&body),
        }
    }

    async fn watch(&self) -> Result<AuditReply, AuditFailure> {
        let mut body = timeout(self.deadline, self.send()).await.unwrap_or(Err(AuditFailure::Deadline))?;
        self.reply(AuditReply::Opened).await;
        match self.query {
            AuditQuery::ShortWatch { duration, .. } => {
                let end = tokio::time::Instant::now() + duration;
                timeout_at(end, self.read(&mut body)).await.unwrap_or(Ok(()))?;
            }
            _ => self.read(&mut body).await?,
        }
        Ok(AuditReply::Ended)
    }

    /// Passes the records of a watch to the auditor until the server ends the watch.
    async fn read(&self, body: &mut ResponseBody) -> Result<(), AuditFailure> {
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| AuditFailure::NoResponse(error.cause()))?;
            let Ok(data) = frame.into_data() else { continue };
            for part in data.split_inclusive(|byte| *byte == b'\n') {
                pending.extend_from_slice(part);
                if pending.len() > MAX_RECORD_BYTES {
                    let reason = format!("a record of the watch is longer than {} MiB", MAX_RECORD_BYTES >> 20);
                    return Err(AuditFailure::Unusable(reason));
                }
                if part.ends_with(b"\n") {
                    let record = decode_record(&pending)?;
                    pending.clear();
                    self.reply(AuditReply::Record(record)).await;
                }
            }
        }
        Ok(())
    }
}

/// Reads a body of at most `limit` bytes.
async fn collect(body: ResponseBody, limit: usize) -> Result<Vec<u8>, AuditFailure> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(AuditFailure::Unusable(format!("the response is longer than {} MiB", limit >> 20)))
        }
        Err(error) => {
            let cause = error.downcast_ref::<TransportError>().map(TransportError::cause);
            Err(AuditFailure::NoResponse(cause.unwrap_or_else(|| error.to_string())))
        }
    }
}

/// Returns the cause of a failed request, without advice for writes, which the audit does not send.
fn send_failure(error: SendError) -> AuditFailure {
    AuditFailure::NoResponse(match error {
        SendError::Transport(error) => error.cause(),
        other => other.to_string(),
    })
}
