//! Simulates the coordinator of Kubernetes (KEP-4355). Pings candidates, and gives the lease to the oldest emulation
//! version among those that respond. Expiry follows the coordinator's wall clock, which may be wrong. Tests can also
//! order harmful decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::coordination::v1beta1::LeaseCandidate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;
use steadfast_core::random::Random;
use steadfast_testing::WorldError;
use tokio::time::{Instant, sleep};

/// Name of the coordinated lease.
pub(crate) const LEASE: &str = "it";
const STRATEGY: &str = "OldestEmulationVersion";
/// Duration of a new lease, in seconds. The holder extends the lease by renewals.
const LASTS: i64 = 5;
/// Timeout for a candidate's response, and maximum age of a response.
const ANSWERS: SignedDuration = SignedDuration::from_secs(5);
/// Initial wall clock time, equal to that of the embedded server.
const BEGINS: i64 = 1_767_225_600;
/// Maximum error of any process's wall clock, in seconds.
pub(crate) const WRONG: i64 = 1_000_000;

/// Coordinator on one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Coordinator {
    server: Arc<ApiServer>,
    began: Instant,
    /// Jump of the wall clock, in seconds.
    jumped: Arc<AtomicI64>,
    away: Arc<AtomicBool>,
    /// `true` after the repair: the coordinator injects no more faults.
    sane: Arc<AtomicBool>,
}

/// Registered candidate.
struct Registered {
    name: String,
    /// Order of preference: emulation version, binary version, age.
    rank: (Vec<u64>, Vec<u64>, Option<Timestamp>),
    asked: Option<Timestamp>,
    answered: Option<Timestamp>,
}

impl Registered {
    fn has_answered(&self) -> bool {
        self.asked.is_none_or(|asked| self.answered.is_some_and(|answered| asked <= answered))
    }
}

impl Coordinator {
    /// Starts a coordinator on `server`, and registers the type of the candidates. `random` determines the times of
    /// its checks.
    pub(crate) fn start(server: Arc<ApiServer>, mut random: Random) -> Result<Self, WorldError> {
        server.create(&definition())?;
        let began = Instant::now();
        let coordinator = Self { server, began, jumped: Arc::default(), away: Arc::default(), sane: Arc::default() };
        let looking = coordinator.clone();
        tokio::spawn(async move {
            loop {
                sleep(random.between(Duration::from_millis(100), Duration::from_secs(3))).await;
                if !looking.away.load(Ordering::Relaxed) {
                    looking.look().expect("the server takes what a coordinator writes");
                }
            }
        });
        Ok(coordinator)
    }

    /// Repairs the coordinator. Its wall clock then exceeds all earlier timestamps, and it injects no more faults.
    pub(crate) fn is_set_right(&self) {
        self.sane.store(true, Ordering::Relaxed);
        self.jumped.store(2 * WRONG, Ordering::Relaxed);
        self.away.store(false, Ordering::Relaxed);
    }

    /// Returns `true` if the coordinator injects no more faults.
    pub(crate) fn is_sane(&self) -> bool {
        self.sane.load(Ordering::Relaxed)
    }

    /// Moves the wall clock.
    pub(crate) fn jump(&self, to: i64) {
        self.jumped.store(to, Ordering::Relaxed);
    }

    /// Suspends the coordinator for this duration.
    pub(crate) fn goes_away(&self, lasts: Duration) {
        self.away.store(true, Ordering::Relaxed);
        let away = self.away.clone();
        tokio::spawn(async move {
            sleep(lasts).await;
            away.store(false, Ordering::Relaxed);
        });
    }

    /// Gives the lease to this candidate, regardless of the current holder.
    pub(crate) fn give(&self, who: &str) -> Result<(), WorldError> {
        let now = MicroTime(self.wall());
        if self.lease()?.is_some() {
            let given = json!({
                "holderIdentity": who, "strategy": STRATEGY, "renewTime": now, "leaseDurationSeconds": LASTS,
                "acquireTime": null, "preferredHolder": null,
            });
            self.change_lease(&given)
        } else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "namespace": "default", "name": LEASE },
                "spec": { "holderIdentity": who, "strategy": STRATEGY, "renewTime": now, "leaseDurationSeconds": LASTS },
            });
            self.server.create(&lease)?;
            Ok(())
        }
    }

    /// Requests that the current holder yields to this candidate.
    pub(crate) fn prefer(&self, who: &str) -> Result<(), WorldError> {
        self.change_lease(&json!({ "preferredHolder": who, "strategy": STRATEGY }))
    }

    /// Deletes the lease.
    pub(crate) fn delete(&self) -> Result<(), WorldError> {
        self.server.delete_named("leases", "default", LEASE)?;
        Ok(())
    }

    /// Returns the holder of the lease, if any.
    pub(crate) fn holder(&self) -> Result<Option<String>, WorldError> {
        let holder = self.lease()?.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    }

    /// Checks lease and candidates once, and acts like the coordinator of Kubernetes.
    fn look(&self) -> Result<(), WorldError> {
        let now = self.wall();
        let candidates = self.candidates()?;
        let holder = self.holder()?;
        let expired = self.lease()?.is_none_or(|lease| is_expired(&lease, now));
        let best = candidates.iter().min_by(|a, b| a.rank.cmp(&b.rank));
        let Some(best) = best else { return Ok(()) };
        if !expired && holder.as_ref() == Some(&best.name) {
            return Ok(());
        }
        let (here, silent): (Vec<_>, Vec<_>) = candidates.iter().partition(|candidate| candidate.has_answered());
        if silent.iter().any(|candidate| candidate.asked.is_some_and(|asked| now < asked + ANSWERS)) {
            return Ok(());
        }
        for candidate in &silent {
            self.server.delete_named("leasecandidates", "default", &candidate.name)?;
        }
        let is_old = |candidate: &&Registered| candidate.answered.is_none_or(|answered| answered + ANSWERS < now);
        if silent.is_empty() && here.iter().copied().any(|candidate| is_old(&candidate)) {
            for candidate in &candidates {
                let asked = json!({ "spec": { "pingTime": MicroTime(now) } });
                self.server.merge_patch("leasecandidates", "default", &candidate.name, asked)?;
            }
            return Ok(());
        }
        let elected = here.into_iter().min_by(|a, b| a.rank.cmp(&b.rank));
        match elected {
            Some(elected) if expired || holder.is_none() => self.give(&elected.name),
            Some(elected) if holder.as_ref() != Some(&elected.name) => self.prefer(&elected.name),
            _ => Ok(()),
        }
    }

    fn wall(&self) -> Timestamp {
        let jumped = SignedDuration::from_secs(BEGINS + self.jumped.load(Ordering::Relaxed));
        Timestamp::UNIX_EPOCH + jumped + SignedDuration::from_micros(self.began.elapsed().as_micros() as i64)
    }

    fn lease(&self) -> Result<Option<Lease>, WorldError> {
        match self.server.get("leases", "default", LEASE) {
            Ok(lease) => Ok(serde_json::from_value(lease)?),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    fn change_lease(&self, spec: &Value) -> Result<(), WorldError> {
        self.server.merge_patch("leases", "default", LEASE, json!({ "spec": spec }))?;
        Ok(())
    }

    /// Returns all candidates of the lease.
    fn candidates(&self) -> Result<Vec<Registered>, WorldError> {
        let history = self.server.history();
        let states = history.of("coordination.k8s.io", "leasecandidates");
        let last: BTreeMap<_, _> = states.map(|change| (&change.name, change.object.as_deref())).collect();
        let mut candidates = Vec::new();
        for object in last.into_values().flatten() {
            let LeaseCandidate { metadata, spec } = serde_json::from_value(object.clone())?;
            let emulated = spec.emulation_version.as_ref().unwrap_or(&spec.binary_version);
            candidates.push(Registered {
                rank: (parts(emulated), parts(&spec.binary_version), metadata.creation_timestamp.map(|time| time.0)),
                name: metadata.name.unwrap_or_default(),
                asked: spec.ping_time.map(|time| time.0),
                answered: spec.renew_time.map(|time| time.0),
            });
        }
        Ok(candidates)
    }
}

/// Returns the comparison key of a version.
fn parts(version: &str) -> Vec<u64> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}

fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
    spec.renew_time.is_none_or(|renewed| renewed.0 + lasts < now)
}

/// Returns the definition of the candidates' type. With this type, the library treats a server as coordinating.
fn definition() -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "leasecandidates.coordination.k8s.io" },
        "spec": {
            "group": "coordination.k8s.io",
            "scope": "Namespaced",
            "names": { "plural": "leasecandidates", "singular": "leasecandidate", "kind": "LeaseCandidate" },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": any } }],
        },
    })
}
