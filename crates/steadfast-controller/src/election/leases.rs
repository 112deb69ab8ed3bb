//! The requests of a candidate.

use std::time::Duration;

use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{GetParams, PostParams, WatchParams};
use steadfast::kube::core::{Request, Resource as _, request};

use super::candidacy::{Answer, Step};
use super::record;
use super::requests::Requests;
use super::trouble::{Asked, ElectionTrouble, Troubles};

/// The resource of the requests.
pub(super) const RESOURCE: &str = "leases";

/// One lease at a server.
pub(super) struct Leases {
    requests: Requests,
    request: Request,
    namespace: String,
    name: String,
}

/// An answer, and what went wrong where it says nothing.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) problem: Option<ElectionTrouble>,
}

impl Leases {
    /// The lease `name` in `namespace`, of which one request may take so long.
    pub(super) fn new(connection: Connection, namespace: &str, name: &str, patience: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        Self {
            requests: Requests::new(connection, patience),
            request,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Does what `step` says; where the last answer did not come, on a connection that is new (`elsewhere`).
    pub(super) async fn send(&self, step: &Step, elsewhere: bool) -> Answered {
        let request = match step {
            Step::Wait(_) => unreachable!("a candidate that waits asks nothing"),
            Step::Get => self.request.get(&self.name, &GetParams::default()),
            Step::Create(lease) => encode(lease).and_then(|body| self.request.create(&PostParams::default(), body)),
            Step::Update(lease) => {
                encode(lease).and_then(|body| self.request.replace(&self.name, &PostParams::default(), body))
            }
            Step::Follow { after, until } => return self.follow(after, until, elsewhere).await,
        };
        let asked = self.asked(step);
        let unknown = |problem| Answered { answer: Answer::None, problem: Some(problem) };
        match self.requests.ask::<Lease>(request, elsewhere).await {
            Err(problem) => unknown(asked.failed(problem)),
            Ok(Ok(lease)) => Answered { answer: Answer::Lease(Box::new(lease)), problem: None },
            // Of what is created, it is the namespace that is missing.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && !matches!(step, Step::Create(_)) => {
                Answered { answer: Answer::Missing, problem: None }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                Answered { answer: Answer::Conflict, problem: None }
            }
            Ok(Err(error)) => unknown(asked.answered(&error)),
        }
    }

    /// All states after one version, up to and with another.
    async fn follow(&self, after: &str, until: &str, elsewhere: bool) -> Answered {
        let name = format!("metadata.name={}", self.name);
        let watch = self.request.watch(&WatchParams::default().fields(&name).disable_bookmarks(), after);
        let states = self.requests.follow::<Lease>(watch, elsewhere, |state| record::version(state) == until).await;
        match states {
            Ok(states) => Answered { answer: Answer::States(states), problem: None },
            Err(problem) => {
                let problem = Asked { verb: "watch", ..self.asked(&Step::Get) }.failed(problem);
                Answered { answer: Answer::None, problem: Some(problem) }
            }
        }
    }

    /// The request of `step`, as errors name it.
    fn asked(&self, step: &Step) -> Asked<'_> {
        let (namespace, name) = (&*self.namespace, Some(&*self.name));
        Asked { verb: verb(step), resource: RESOURCE, namespace, name }
    }
}

/// Ends the troubles that the response to the request of `step` disproves.
pub(super) fn end_troubles(troubles: &Troubles, step: &Step, answer: &Answer) {
    if *answer == Answer::None {
        return;
    }
    troubles.end(verb(step), RESOURCE);
    match (step, answer) {
        // A lease that exists is not created, and one that does not is not updated.
        (Step::Get, Answer::Lease(_)) => troubles.end("create", RESOURCE),
        (Step::Get, Answer::Missing) => troubles.end("update", RESOURCE),
        _ => {}
    }
}

/// The verb of the request of `step`, as a role states it.
fn verb(step: &Step) -> &'static str {
    match step {
        Step::Wait(_) | Step::Get => "get",
        Step::Create(_) => "create",
        Step::Update(_) => "update",
        Step::Follow { .. } => "watch",
    }
}

fn encode(lease: &Lease) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(lease).map_err(request::Error::SerializeBody)
}
