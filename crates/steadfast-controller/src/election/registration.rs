//! `LeaseCandidate` object that registers a candidate with a coordinator, and confirms its liveness.

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

use super::candidate_versions::CandidateVersions;
use super::lease_error::{LeaseError, RequestInfo};
use super::requests::Requests;
use super::state::ElectionState;
use super::timing::Timing;
use crate::wall_clock::WallClock;

/// Maximum lead of a confirmation over the server's clock. With a larger lead, the coordinator would consider a dead
/// candidate alive for too long.
const MAX_CLOCK_LEAD: SignedDuration = SignedDuration::from_secs(2);
/// Age at which a confirmation is renewed without a ping. The coordinator deletes candidates whose confirmation is
/// older than half an hour.
const MAX_CONFIRMATION_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Estimate of the server's clock, which the coordinator uses for all times: the last time seen from the server, plus
/// the elapsed time.
#[derive(Clone, Copy, Debug, Default)]
struct ServerClock(Option<(Timestamp, Instant)>);

impl ServerClock {
    /// Records a time that the server wrote, seen at `now`.
    fn observe(&mut self, time: Timestamp, now: Instant) {
        // Repeated reads of one ping must not restart the clock.
        if self.0.is_none_or(|(last_time, _)| last_time != time) {
            self.0 = Some((time, now));
        }
    }

    /// Returns the server's time at `now`. Returns the local `wall_time` if no server time is known.
    fn time(self, now: Instant, wall_time: Timestamp) -> Timestamp {
        // The server's last known time plus the local elapsed time. The local wall clock may be wrong.
        let time =
            self.0.map_or(wall_time, |(reported, since)| reported.checked_add(now.since(since)).unwrap_or(reported));
        time.round(TimestampRound::new().smallest(Unit::Microsecond)).unwrap_or(time)
    }
}

/// Resource of the requests.
const RESOURCE: &str = "leasecandidates";

/// Maintains the `LeaseCandidate` of a candidate.
pub(super) struct Registration {
    requests: Requests,
    request: Request,
    versions: CandidateVersions,
    state: Arc<ElectionState>,
    period: Duration,
    clock: ServerClock,
    due: Instant,
    /// True if the last call of `maintain` failed.
    last_request_failed: bool,
    /// True if the last call of `maintain` succeeded, so that the coordinator knows the candidate.
    is_registered: bool,
}

impl Registration {
    /// Builds the registration of a candidate with `versions`. Writes nothing yet.
    pub(super) fn new(
        connection: Connection,
        state: Arc<ElectionState>,
        versions: CandidateVersions,
        timing: &Timing,
    ) -> Self {
        Self {
            due: connection.environment().boot_time(),
            // This request must not delay the renewal of the lease.
            requests: Requests::new(connection, timing.request_timeout() / 2),
            request: Request::new(LeaseCandidate::url_path(&(), Some(&state.namespace))),
            versions,
            state,
            period: timing.retry,
            clock: ServerClock::default(),
            last_request_failed: false,
            is_registered: false,
        }
    }

    /// Returns the time of the next action.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Returns the server's time if known, otherwise `wall_time`.
    pub(super) fn server_time(&self, wall_time: Timestamp) -> Timestamp {
        self.clock.time(self.now(), wall_time)
    }

    /// Creates the object if missing, and responds to pings of the coordinator.
    pub(super) async fn maintain(&mut self, wall_clock: &WallClock) {
        self.due = self.now() + self.period;
        let result = self.update(wall_clock).await;
        // After a failure, the next request uses a new or recent connection, because the last connection may be dead.
        self.last_request_failed = result.is_err();
        let ElectionState { namespace, name, identity, .. } = &*self.state;
        match result {
            Ok(()) if self.is_registered => {}
            Ok(()) => tracing::info!(%namespace, %name, %identity, "candidate registered with the coordinator"),
            Err(problem) => {
                if self.state.lease_errors.add(problem.clone()) {
                    tracing::warn!(%namespace, %name, %identity, %problem, "cannot register the candidate with the \
                     coordinator; retrying");
                } else {
                    tracing::debug!(%namespace, %name, %identity, %problem, "cannot register the candidate with the \
                     coordinator; retrying");
                }
            }
        }
        self.is_registered = !self.last_request_failed;
    }

    /// Sends one read, and at most one write.
    async fn update(&mut self, wall_clock: &WallClock) -> Result<(), LeaseError> {
        let state = self.state.clone();
        let info =
            |verb| RequestInfo { verb, resource: RESOURCE, namespace: &state.namespace, name: Some(&state.identity) };
        let get = self.request.get(&state.identity, &GetParams::default());
        let found = self.requests.send::<LeaseCandidate>(get, self.last_request_failed).await;
        let (verb, body) = match found.map_err(|reason| info("get").no_response(reason))? {
            Ok(entry) => {
                let now = self.now();
                if let Some(MicroTime(time)) = entry.spec.ping_time {
                    self.clock.observe(time, now);
                }
                state.lease_errors.end("get", RESOURCE);
                state.lease_errors.end("create", RESOURCE);
                match confirmation(entry, self.clock.time(now, wall_clock())) {
                    Some(entry) => {
                        let body = encode(&entry)
                            .and_then(|body| self.request.replace(&state.identity, &PostParams::default(), body));
                        ("update", body)
                    }
                    None => return Ok(()),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                state.lease_errors.end("get", RESOURCE);
                let ElectionState { namespace, name, identity, .. } = &*state;
                let entry = self.versions.entry(namespace, identity, name, self.server_time(wall_clock()));
                ("create", encode(&entry).and_then(|body| self.request.create(&PostParams::default(), body)))
            }
            Err(error) => return Err(info("get").error_response(&error)),
        };
        let written = self.requests.send::<LeaseCandidate>(body, false).await;
        match written.map_err(|reason| info(verb).no_response(reason))? {
            Ok(entry) => {
                let now = self.now();
                state.lease_errors.end(verb, RESOURCE);
                // The creation time initializes the server's clock.
                if let Some(created) = entry.metadata.creation_timestamp.filter(|_| self.clock.0.is_none()) {
                    self.clock.observe(created.0, now);
                    // Another pass follows immediately: the renew time of the new entry came from the local clock.
                    self.due = now;
                }
                Ok(())
            }
            // The coordinator has just written a ping.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                self.due = self.now();
                Ok(())
            }
            Err(error) => Err(info(verb).error_response(&error)),
        }
    }

    /// Deletes the object.
    pub(super) async fn unregister(&self) {
        let delete = self.request.delete(&self.state.identity, &DeleteParams::default());
        let problem = match self.requests.send::<Value>(delete, self.last_request_failed).await {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => error.to_string(),
            Err(problem) => problem,
        };
        let ElectionState { namespace, name, identity, .. } = &*self.state;
        tracing::warn!(%namespace, %name, %identity, problem, "cannot delete the LeaseCandidate; the coordinator removes \
         it after a ping without response");
    }

    fn now(&self) -> Instant {
        self.state.environment.boot_time()
    }
}

/// Returns the update to write at the server's `time`. Returns `None` if the last confirmation is correct and recent,
/// and no ping is pending.
fn confirmation(mut entry: LeaseCandidate, time: Timestamp) -> Option<LeaseCandidate> {
    let [pinged, confirmed] = [&entry.spec.ping_time, &entry.spec.renew_time].map(|at| at.as_ref().map(|at| at.0));
    let is_confirmed = confirmed.is_some_and(|confirmed| {
        let age = time.duration_since(confirmed);
        // A confirmation must not precede its ping, and must be recent by the server's clock.
        pinged.is_none_or(|pinged| pinged <= confirmed) && -MAX_CLOCK_LEAD <= age && age <= MAX_CONFIRMATION_AGE
    });
    entry.spec.renew_time = Some(MicroTime(pinged.map_or(time, |pinged| pinged.max(time))));
    (!is_confirmed).then_some(entry)
}

/// Returns true if the server of `connection` has `LeaseCandidates`. None without a usable response.
pub(super) async fn is_served(connection: &Connection, timing: &Timing) -> Option<bool> {
    let group = format!("/apis/{}/{}", LeaseCandidate::group(&()), LeaseCandidate::version(&()));
    let get = http::Request::get(group).body(Vec::new()).map_err(request::Error::BuildRequest);
    // Discovery needs no additional permission; every authenticated client may read it.
    let requests = Requests::new(connection.clone(), timing.request_timeout());
    match requests.send::<APIResourceList>(get, false).await {
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

    fn candidate_with_times(pinged: Option<i64>, confirmed: i64) -> LeaseCandidate {
        let mut entry = CandidateVersions::new("1.0.0").entry("default", "me", "it", at(confirmed));
        entry.spec.ping_time = pinged.map(|pinged| MicroTime(at(pinged)));
        entry
    }

    fn confirmed(pinged: Option<i64>, before: i64, time: i64) -> Option<Timestamp> {
        confirmation(candidate_with_times(pinged, before), at(time))
            .and_then(|entry| entry.spec.renew_time)
            .map(|time| time.0)
    }

    #[test]
    fn ping_is_confirmed_once() {
        assert_eq!(confirmed(None, 0, 5), None);
        assert_eq!(confirmed(Some(10), 0, 11), Some(at(11)));
        assert_eq!(confirmed(Some(10), 11, 12), None);
    }

    #[test]
    fn confirmation_is_never_older_than_ping() {
        assert_eq!(confirmed(Some(10), 0, 7), Some(at(10)), "a slow clock");
    }

    #[test]
    fn wrong_clock_is_corrected() {
        assert_eq!(confirmed(None, 3600, 0), Some(at(0)));
        assert_eq!(confirmed(None, -3600, 0), Some(at(0)), "a slow clock too");
    }

    #[test]
    fn server_clock_advances_from_last_time() {
        let instant = |seconds| Instant::from_zero(Duration::from_secs(seconds));
        let mut clock = ServerClock::default();
        assert_eq!(clock.time(instant(5), at(77)), at(77), "the local clock at first");
        clock.observe(at(0), instant(10));
        clock.observe(at(0), instant(20));
        assert_eq!(clock.time(instant(25), at(77)), at(15), "a repeated time counts once");
        clock.observe(at(100), instant(30));
        assert_eq!(clock.time(instant(31), at(77)), at(101));
    }
}
