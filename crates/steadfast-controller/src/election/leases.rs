//! Requests of a candidate.

use std::time::Duration;

use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{GetParams, PostParams, WatchParams};
use steadfast::kube::core::{Request, Resource as _, request};

use super::lease_error::{LeaseError, LeaseErrors, RequestInfo};
use super::machine::{Step, StepResult};
use super::record;
use super::requests::Requests;

/// Resource of the requests.
pub(super) const RESOURCE: &str = "leases";

/// Requests about one lease.
pub(super) struct Leases {
    requests: Requests,
    request: Request,
    namespace: String,
    name: String,
}

/// Result of a request, with the error if there is no usable response.
pub(super) struct RequestResult {
    pub(super) result: StepResult,
    pub(super) problem: Option<LeaseError>,
}

impl Leases {
    /// Builds requests about the lease `name` in `namespace` with this `timeout`.
    pub(super) fn new(connection: Connection, namespace: &str, name: &str, timeout: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        Self {
            requests: Requests::new(connection, timeout),
            request,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Executes `step`. `on_recent_connection` requests a recently opened connection, after a request without a
    /// response.
    pub(super) async fn send(&self, step: &Step, on_recent_connection: bool) -> RequestResult {
        let request = match step {
            Step::Wait(_) => unreachable!("a wait is not a request"),
            Step::Get => self.request.get(&self.name, &GetParams::default()),
            Step::Create(lease) => encode(lease).and_then(|body| self.request.create(&PostParams::default(), body)),
            Step::Update(lease) => {
                encode(lease).and_then(|body| self.request.replace(&self.name, &PostParams::default(), body))
            }
            Step::ReadHistory { after, until } => return self.read_history(after, until, on_recent_connection).await,
        };
        let info = self.request_info(step);
        let unknown = |problem| RequestResult { result: StepResult::Unknown, problem: Some(problem) };
        match self.requests.send::<Lease>(request, on_recent_connection).await {
            Err(problem) => unknown(info.no_response(problem)),
            Ok(Ok(lease)) => RequestResult { result: StepResult::Lease(Box::new(lease)), problem: None },
            // A 404 to a create request concerns the namespace.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && !matches!(step, Step::Create(_)) => {
                RequestResult { result: StepResult::Missing, problem: None }
            }
            // Another candidate wrote in between. The response contains no lease, so the next step reads the lease.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                RequestResult { result: StepResult::Conflict, problem: None }
            }
            Ok(Err(error)) => unknown(info.error_response(&error)),
        }
    }

    /// Reads all states after one version, up to and including another.
    async fn read_history(&self, after: &str, until: &str, on_recent_connection: bool) -> RequestResult {
        let name = format!("metadata.name={}", self.name);
        // The field selector limits the watch to this lease; the permission can then be limited by name as well.
        let watch = self.request.watch(&WatchParams::default().fields(&name).disable_bookmarks(), after);
        let states = self
            .requests
            .read_events_until::<Lease>(watch, on_recent_connection, |state| record::version(state) == until)
            .await;
        match states {
            Ok(states) => RequestResult { result: StepResult::States(states), problem: None },
            Err(problem) => {
                let problem = RequestInfo { verb: "watch", ..self.request_info(&Step::Get) }.no_response(problem);
                RequestResult { result: StepResult::Unknown, problem: Some(problem) }
            }
        }
    }

    /// Describes the request of `step` for error messages.
    fn request_info(&self, step: &Step) -> RequestInfo<'_> {
        let (namespace, name) = (&*self.namespace, Some(&*self.name));
        RequestInfo { verb: verb(step), resource: RESOURCE, namespace, name }
    }
}

/// Clears the lease errors that the response to `step` disproves.
pub(super) fn end_lease_errors(lease_errors: &LeaseErrors, step: &Step, result: &StepResult) {
    if *result == StepResult::Unknown {
        return;
    }
    lease_errors.end(verb(step), RESOURCE);
    match (step, result) {
        // An existing lease needs no `create`, and a missing lease needs no `update`. So an earlier lease error with
        // that verb is obsolete.
        (Step::Get, StepResult::Lease(_)) => lease_errors.end("create", RESOURCE),
        (Step::Get, StepResult::Missing) => lease_errors.end("update", RESOURCE),
        _ => {}
    }
}

/// Returns the verb of the request of `step`, as in a role.
fn verb(step: &Step) -> &'static str {
    match step {
        Step::Wait(_) | Step::Get => "get",
        Step::Create(_) => "create",
        Step::Update(_) => "update",
        Step::ReadHistory { .. } => "watch",
    }
}

fn encode(lease: &Lease) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(lease).map_err(request::Error::SerializeBody)
}
