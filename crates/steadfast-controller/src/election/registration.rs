//! The `LeaseCandidate` by which a coordinator knows us: is there, and answers when the coordinator asks whether we are.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use steadfast::Connection;
use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResourceList, MicroTime};
use steadfast::k8s_openapi::jiff::{SignedDuration, Timestamp, TimestampRound, Unit};
use steadfast::kube;
use steadfast::kube::api::{DeleteParams, GetParams, PostParams};
use steadfast::kube::core::{Request, Resource as _, request};

use super::candidate::Candidate;
use super::office::Office;
use super::requests::Requests;
use super::timing::{Timing, WallClock};
use super::trouble::{Asked, ElectionTrouble};

/// How far ahead of the server's clock an answer may be: who is gone would be taken to be there for longer.
const AHEAD: SignedDuration = SignedDuration::from_secs(2);
/// How old an answer may be that nobody has asked for: after half an hour the coordinator takes us to be gone, and deletes it.
const OLD: SignedDuration = SignedDuration::from_mins(10);

/// What the server's clock says, by which a coordinator judges all times that it reads: the last time that it has told, and what has
/// passed since.
#[derive(Clone, Copy, Debug, Default)]
struct ServerClock(Option<(Timestamp, Instant)>);

impl ServerClock {
    /// The server has written `time`; seen at `now`.
    fn hear(&mut self, time: Timestamp, now: Instant) {
        if self.0.is_none_or(|(heard, _)| heard != time) {
            self.0 = Some((time, now));
        }
    }

    /// What it says at `now`; what our own one does, `wall`, where the server has told nothing.
    fn time(self, now: Instant, wall: Timestamp) -> Timestamp {
        let time = self.0.map_or(wall, |(heard, since)| heard.checked_add(now.since(since)).unwrap_or(heard));
        time.round(TimestampRound::new().smallest(Unit::Microsecond)).unwrap_or(time)
    }
}

/// The resource of the requests.
const RESOURCE: &str = "leasecandidates";

/// The `LeaseCandidate` of a candidate.
pub(super) struct Registration {
    requests: Requests,
    request: Request,
    candidate: Candidate,
    office: Arc<Office>,
    period: Duration,
    clock: ServerClock,
    due: Instant,
    /// The last request had no answer.
    unanswered: bool,
    is_known: bool,
}

impl Registration {
    /// As `candidate` for `office`; nothing is written yet.
    pub(super) fn new(connection: Connection, office: Arc<Office>, candidate: Candidate, timing: &Timing) -> Self {
        Self {
            due: connection.environment().boot_time(),
            // It must not keep the lease from being renewed.
            requests: Requests::new(connection, timing.patience() / 2),
            request: Request::new(LeaseCandidate::url_path(&(), Some(&office.namespace))),
            candidate,
            office,
            period: timing.retry,
            clock: ServerClock::default(),
            unanswered: false,
            is_known: false,
        }
    }

    /// When there is something to be done next.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// What the server's clock says, if that is known, or `wall`.
    pub(super) fn wall(&self, wall: Timestamp) -> Timestamp {
        self.clock.time(self.now(), wall)
    }

    /// Sees to it that we are known, and answers where the coordinator has asked.
    pub(super) async fn keep(&mut self, wall: &WallClock) {
        self.due = self.now() + self.period;
        let kept = self.look(wall).await;
        self.unanswered = kept.is_err();
        let Office { namespace, name, identity, .. } = &*self.office;
        match kept {
            Ok(()) if self.is_known => {}
            Ok(()) => tracing::info!(%namespace, %name, %identity, "known to the coordinator as a candidate"),
            Err(problem) => {
                if self.office.troubles.add(problem.clone()) {
                    tracing::warn!(%namespace, %name, %identity, %problem, "not known to the coordinator as a candidate; again");
                } else {
                    tracing::debug!(%namespace, %name, %identity, %problem, "not known to the coordinator as a candidate; again");
                }
            }
        }
        self.is_known = !self.unanswered;
    }

    /// One look, and at most one write.
    async fn look(&mut self, wall: &WallClock) -> Result<(), ElectionTrouble> {
        let office = self.office.clone();
        let asked =
            |verb| Asked { verb, resource: RESOURCE, namespace: &office.namespace, name: Some(&office.identity) };
        let get = self.request.get(&office.identity, &GetParams::default());
        let found = self.requests.ask::<LeaseCandidate>(get, self.unanswered).await;
        let (verb, body) = match found.map_err(|why| asked("get").failed(why))? {
            Ok(entry) => {
                let now = self.now();
                if let Some(MicroTime(time)) = entry.spec.ping_time {
                    self.clock.hear(time, now);
                }
                office.troubles.end("get", RESOURCE);
                office.troubles.end("create", RESOURCE);
                match answer(entry, self.clock.time(now, wall())) {
                    Some(entry) => {
                        let body = encode(&entry)
                            .and_then(|body| self.request.replace(&office.identity, &PostParams::default(), body));
                        ("update", body)
                    }
                    None => return Ok(()),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                office.troubles.end("get", RESOURCE);
                let Office { namespace, name, identity, .. } = &*office;
                let entry = self.candidate.entry(namespace, identity, name, self.wall(wall()));
                ("create", encode(&entry).and_then(|body| self.request.create(&PostParams::default(), body)))
            }
            Err(error) => return Err(asked("get").answered(&error)),
        };
        let written = self.requests.ask::<LeaseCandidate>(body, false).await;
        match written.map_err(|why| asked(verb).failed(why))? {
            Ok(entry) => {
                let now = self.now();
                office.troubles.end(verb, RESOURCE);
                // It tells what time it is there, if nobody has asked anything yet.
                if let Some(created) = entry.metadata.creation_timestamp.filter(|_| self.clock.0.is_none()) {
                    self.clock.hear(created.0, now);
                    self.due = now;
                }
                Ok(())
            }
            // The coordinator asks at this moment.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.due = self.now();
                Ok(())
            }
            Err(error) => Err(asked(verb).answered(&error)),
        }
    }

    /// Is no candidate any more.
    pub(super) async fn withdraw(&self) {
        let delete = self.request.delete(&self.office.identity, &DeleteParams::default());
        let problem = match self.requests.ask::<Value>(delete, self.unanswered).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => error.to_string(),
            Err(problem) => problem,
        };
        let Office { namespace, name, identity, .. } = &*self.office;
        tracing::warn!(%namespace, %name, %identity, problem, "the LeaseCandidate is not deleted: the coordinator finds out that nobody answers");
    }

    fn now(&self) -> Instant {
        self.office.environment.boot_time()
    }
}

/// What is to be written where `time` is the server's, if anything: the coordinator has asked, or what it believes is wrong or old.
fn answer(mut entry: LeaseCandidate, time: Timestamp) -> Option<LeaseCandidate> {
    let [asked, answered] = [&entry.spec.ping_time, &entry.spec.renew_time].map(|at| at.as_ref().map(|at| at.0));
    let stands = answered.is_some_and(|answered| {
        let age = time.duration_since(answered);
        asked.is_none_or(|asked| asked <= answered) && -AHEAD <= age && age <= OLD
    });
    entry.spec.renew_time = Some(MicroTime(asked.map_or(time, |asked| asked.max(time))));
    (!stands).then_some(entry)
}

/// Whether the server of `connection` has `LeaseCandidates`; none if it has not said.
pub(super) async fn is_served(connection: &Connection, timing: &Timing) -> Option<bool> {
    let group = format!("/apis/{}/{}", LeaseCandidate::group(&()), LeaseCandidate::version(&()));
    let get = http::Request::get(group).body(Vec::new()).map_err(request::Error::BuildRequest);
    let requests = Requests::new(connection.clone(), timing.patience());
    match requests.ask::<APIResourceList>(get, false).await {
        Ok(Ok(list)) => Some(list.resources.iter().any(|resource| resource.name == LeaseCandidate::plural(&()))),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Some(false),
        Ok(Err(_)) | Err(_) => None,
    }
}

fn encode(entry: &impl Serialize) -> Result<Vec<u8>, request::Error> {
    serde_json::to_vec(entry).map_err(request::Error::SerializeBody)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
    }

    fn asked_and_answered(asked: Option<i64>, answered: i64) -> LeaseCandidate {
        let mut entry = Candidate::new("1.0.0").entry("default", "me", "it", at(answered));
        entry.spec.ping_time = asked.map(|asked| MicroTime(at(asked)));
        entry
    }

    fn answered(asked: Option<i64>, before: i64, time: i64) -> Option<Timestamp> {
        answer(asked_and_answered(asked, before), at(time)).and_then(|entry| entry.spec.renew_time).map(|time| time.0)
    }

    #[test]
    fn who_is_asked_answers_once() {
        assert_eq!(answered(None, 0, 5), None);
        assert_eq!(answered(Some(10), 0, 11), Some(at(11)));
        assert_eq!(answered(Some(10), 11, 12), None);
    }

    #[test]
    fn an_answer_that_looked_older_than_the_question_was_taken_for_none() {
        assert_eq!(answered(Some(10), 0, 7), Some(at(10)), "a clock that is late");
    }

    #[test]
    fn a_candidate_whose_clock_was_ahead_was_taken_to_be_there_when_it_was_gone() {
        assert_eq!(answered(None, 3600, 0), Some(at(0)));
        assert_eq!(answered(None, -3600, 0), Some(at(0)), "and one that is behind to be gone");
    }

    #[test]
    fn the_servers_clock_goes_on_from_what_it_has_told() {
        let instant = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut clock = ServerClock::default();
        assert_eq!(clock.time(instant(5), at(77)), at(77), "our own, before");
        clock.hear(at(0), instant(10));
        clock.hear(at(0), instant(20));
        assert_eq!(clock.time(instant(25), at(77)), at(15), "what is heard twice was said once");
        clock.hear(at(100), instant(30));
        assert_eq!(clock.time(instant(31), at(77)), at(101));
    }
}
