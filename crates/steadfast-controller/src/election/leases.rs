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

/// One lease at a server.
pub(super) struct Leases {
    requests: Requests,
    request: Request,
    name: String,
}

/// An answer, and what went wrong where it says nothing.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) problem: Option<String>,
}

impl Leases {
    /// The lease `name` in `namespace`, of which one request may take so long.
    pub(super) fn new(connection: Connection, namespace: &str, name: &str, patience: Duration) -> Self {
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        Self { requests: Requests::new(connection, patience), request, name: name.to_owned() }
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
        let unknown = |problem: String| Answered { answer: Answer::None, problem: Some(problem) };
        match self.requests.ask::<Lease>(request, elsewhere).await {
            Err(problem) => unknown(problem),
            Ok(Ok(lease)) => Answered { answer: Answer::Lease(Box::new(lease)), problem: None },
            // Of what is created, it is the namespace that is missing.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && !matches!(step, Step::Create(_)) => {
                Answered { answer: Answer::Missing, problem: None }
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                Answered { answer: Answer::Conflict, problem: None }
            }
            Ok(Err(error)) => unknown(error.to_string()),
        }
    }

    /// All states after one version, up to and with another.
    async fn follow(&self, after: &str, until: &str, elsewhere: bool) -> Answered {
        let name = format!("metadata.name={}", self.name);
        let watch = self.request.watch(&WatchParams::default().fields(&name).disable_bookmarks(), after);
        let states = self.requests.follow::<Lease>(watch, elsewhere, |state| record::version(state) == until).await;
        match states {
            Ok(states) => Answered { answer: Answer::States(states), problem: None },
            Err(problem) => Answered { answer: Answer::None, problem: Some(problem) },
        }
    }
}

fn encode(lease: &Lease) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(lease).map_err(request::Error::SerializeBody)
}
