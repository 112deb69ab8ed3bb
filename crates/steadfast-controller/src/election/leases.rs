//! The requests of a candidate.

use std::time::Duration;

use steadfast::Connection;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::kube;
use steadfast::kube::api::{GetParams, PostParams};
use steadfast::kube::core::{Request, Resource as _, request};
use steadfast::transport::{Deadlines, Placement};

use super::candidacy::{Answer, Step};

/// One lease at a server.
pub(super) struct Leases {
    connection: Connection,
    client: kube::Client,
    request: Request,
    name: String,
    /// How long one request may take.
    patience: Duration,
}

/// An answer, and what went wrong where it says nothing.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) problem: Option<String>,
}

impl Leases {
    /// The lease `name` in `namespace`, of which one request may take so long.
    pub(super) fn new(connection: Connection, namespace: &str, name: &str, patience: Duration) -> Self {
        let client = connection.client();
        let request = Request::new(Lease::url_path(&(), Some(namespace)));
        Self { connection, client, request, name: name.to_owned(), patience }
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
        };
        let mut request = match request {
            Ok(request) => request,
            Err(error) => return Answered { answer: Answer::None, problem: Some(error.to_string()) },
        };
        let patience = Some(self.patience);
        request.extensions_mut().insert(Deadlines { headers: patience, progress: patience });
        if elsewhere {
            request.extensions_mut().insert(Placement::Elsewhere);
        }
        let environment = self.connection.environment();
        // Also all attempts together that are made where the server is too busy.
        let answer = tokio::select! {
            biased;
            answer = self.client.request::<Lease>(request) => answer,
            () = environment.sleep_until(environment.now() + self.patience) => {
                let problem = format!("no answer within {:.1} s", self.patience.as_secs_f64());
                return Answered { answer: Answer::None, problem: Some(problem) };
            }
        };
        match answer {
            Ok(lease) => Answered { answer: Answer::Lease(Box::new(lease)), problem: None },
            // Of what is created, it is the namespace that is missing.
            Err(kube::Error::Api(status)) if status.code == 404 && !matches!(step, Step::Create(_)) => {
                Answered { answer: Answer::Missing, problem: None }
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Answered { answer: Answer::Conflict, problem: None },
            Err(error) => Answered { answer: Answer::None, problem: Some(error.to_string()) },
        }
    }
}

fn encode(lease: &Lease) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(lease).map_err(request::Error::SerializeBody)
}
