//! Simulates the coordinator of Kubernetes (KEP-4355). It pings candidates. Among the candidates that respond, the one
//! with the oldest emulation version receives the lease. Expiry follows the coordinator's wall clock, which may be
//! wrong. Tests can also make the coordinator take harmful decisions.

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
use steadfast_testing::TestError;
use tokio::time::{Instant, sleep};

/// Name of the coordinated lease.
pub(crate) const LEASE: &str = "it";
const STRATEGY: &str = "OldestEmulationVersion";
/// Duration of a new lease, in seconds. The holder extends the lease by renewals.
const LEASE_DURATION_SECONDS: i64 = 5;
/// Timeout for a candidate's response, and maximum age of a response.
const RESPONSE_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);
/// Initial wall clock time, equal to that of the embedded server.
const INITIAL_WALL_CLOCK: i64 = 1_767_225_600;
/// Maximum error of any process's wall clock, in seconds.
pub(crate) const MAX_WALL_CLOCK_ERROR_SECONDS: i64 = 1_000_000;

/// Coordinator on one server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Coordinator {
    server: Arc<ApiServer>,
    start: Instant,
    /// Jump of the wall clock, in seconds.
    clock_jump_seconds: Arc<AtomicI64>,
    is_suspended: Arc<AtomicBool>,
    /// `true` after the repair: the coordinator injects no more faults.
    is_repaired: Arc<AtomicBool>,
}

/// Registered candidate.
struct RegisteredCandidate {
    name: String,
    /// Order of preference: emulation version, binary version, age.
    rank: (Vec<u64>, Vec<u64>, Option<Timestamp>),
    pinged_at: Option<Timestamp>,
    responded_at: Option<Timestamp>,
}

impl RegisteredCandidate {
    fn has_responded(&self) -> bool {
        self.pinged_at.is_none_or(|pinged_at| self.responded_at.is_some_and(|responded_at| pinged_at <= responded_at))
    }
}

impl Coordinator {
    /// Starts a coordinator on `server`, and registers the type of the candidates. `random` determines the times of
    /// its checks.
    pub(crate) fn start(server: Arc<ApiServer>, mut random: Random) -> Result<Self, TestError> {
        server.create(&definition())?;
        let start = Instant::now();
        let coordinator = Self {
            server,
            start,
            clock_jump_seconds: Arc::default(),
            is_suspended: Arc::default(),
            is_repaired: Arc::default(),
        };
        let checking = coordinator.clone();
        tokio::spawn(async move {
            loop {
                sleep(random.between(Duration::from_millis(100), Duration::from_secs(3))).await;
                if !checking.is_suspended.load(Ordering::Relaxed) {
                    checking.check_once().expect("the server takes what a coordinator writes");
                }
            }
        });
        Ok(coordinator)
    }

    /// Repairs the coordinator. Its wall clock then exceeds all earlier timestamps, and it injects no more faults.
    pub(crate) fn repair(&self) {
        self.is_repaired.store(true, Ordering::Relaxed);
        self.clock_jump_seconds.store(2 * MAX_WALL_CLOCK_ERROR_SECONDS, Ordering::Relaxed);
        self.is_suspended.store(false, Ordering::Relaxed);
    }

    /// Returns `true` if the coordinator injects no more faults.
    pub(crate) fn is_repaired(&self) -> bool {
        self.is_repaired.load(Ordering::Relaxed)
    }

    /// Sets the jump of the wall clock to `to` seconds.
    pub(crate) fn jump(&self, to: i64) {
        self.clock_jump_seconds.store(to, Ordering::Relaxed);
    }

    /// Suspends the coordinator for this duration.
    pub(crate) fn suspend_for(&self, duration: Duration) {
        self.is_suspended.store(true, Ordering::Relaxed);
        let is_suspended = self.is_suspended.clone();
        tokio::spawn(async move {
            sleep(duration).await;
            is_suspended.store(false, Ordering::Relaxed);
        });
    }

    /// Gives the lease to this candidate, regardless of the current holder.
    pub(crate) fn give(&self, candidate: &str) -> Result<(), TestError> {
        let now = MicroTime(self.wall_clock());
        if self.lease()?.is_some() {
            let spec = json!({
                "holderIdentity": candidate, "strategy": STRATEGY, "renewTime": now, "leaseDurationSeconds": LEASE_DURATION_SECONDS,
                "acquireTime": null, "preferredHolder": null,
            });
            self.change_lease(&spec)
        } else {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "namespace": "default", "name": LEASE },
                "spec": { "holderIdentity": candidate, "strategy": STRATEGY, "renewTime": now, "leaseDurationSeconds": LEASE_DURATION_SECONDS },
            });
            self.server.create(&lease)?;
            Ok(())
        }
    }

    /// Requests that the current holder yields to this candidate.
    pub(crate) fn prefer(&self, candidate: &str) -> Result<(), TestError> {
        self.change_lease(&json!({ "preferredHolder": candidate, "strategy": STRATEGY }))
    }

    /// Deletes the lease.
    pub(crate) fn delete(&self) -> Result<(), TestError> {
        self.server.delete_named("leases", "default", LEASE)?;
        Ok(())
    }

    /// Returns the holder of the lease, if any.
    pub(crate) fn holder(&self) -> Result<Option<String>, TestError> {
        let holder = self.lease()?.and_then(|lease| lease.spec?.holder_identity);
        Ok(holder.filter(|holder| !holder.is_empty()))
    }

    /// Checks lease and candidates once, and acts like the coordinator of Kubernetes.
    fn check_once(&self) -> Result<(), TestError> {
        let now = self.wall_clock();
        let candidates = self.candidates()?;
        let holder = self.holder()?;
        let expired = self.lease()?.is_none_or(|lease| is_expired(&lease, now));
        let preferred = candidates.iter().min_by(|a, b| a.rank.cmp(&b.rank));
        let Some(preferred) = preferred else { return Ok(()) };
        if !expired && holder.as_ref() == Some(&preferred.name) {
            return Ok(());
        }
        let (responsive, silent): (Vec<_>, Vec<_>) = candidates.iter().partition(|candidate| candidate.has_responded());
        if silent.iter().any(|candidate| candidate.pinged_at.is_some_and(|ping| now < ping + RESPONSE_TIMEOUT)) {
            return Ok(());
        }
        for candidate in &silent {
            self.server.delete_named("leasecandidates", "default", &candidate.name)?;
        }
        let is_old = |candidate: &&RegisteredCandidate| {
            candidate.responded_at.is_none_or(|responded_at| responded_at + RESPONSE_TIMEOUT < now)
        };
        if silent.is_empty() && responsive.iter().copied().any(|candidate| is_old(&candidate)) {
            for candidate in &candidates {
                let ping = json!({ "spec": { "pingTime": MicroTime(now) } });
                self.server.merge_patch("leasecandidates", "default", &candidate.name, ping)?;
            }
            return Ok(());
        }
        let elected = responsive.into_iter().min_by(|a, b| a.rank.cmp(&b.rank));
        match elected {
            Some(elected) if expired || holder.is_none() => self.give(&elected.name),
            Some(elected) if holder.as_ref() != Some(&elected.name) => self.prefer(&elected.name),
            _ => Ok(()),
        }
    }

    fn wall_clock(&self) -> Timestamp {
        let jumped = SignedDuration::from_secs(INITIAL_WALL_CLOCK + self.clock_jump_seconds.load(Ordering::Relaxed));
        Timestamp::UNIX_EPOCH + jumped + SignedDuration::from_micros(self.start.elapsed().as_micros() as i64)
    }

    fn lease(&self) -> Result<Option<Lease>, TestError> {
        match self.server.get("leases", "default", LEASE) {
            Ok(lease) => Ok(serde_json::from_value(lease)?),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    fn change_lease(&self, spec: &Value) -> Result<(), TestError> {
        self.server.merge_patch("leases", "default", LEASE, json!({ "spec": spec }))?;
        Ok(())
    }

    /// Returns all candidates of the lease.
    fn candidates(&self) -> Result<Vec<RegisteredCandidate>, TestError> {
        let history = self.server.history();
        let states = history.changes_of("coordination.k8s.io", "leasecandidates");
        let last: BTreeMap<_, _> = states.map(|change| (&change.name, change.object.as_deref())).collect();
        let mut candidates = Vec::new();
        for object in last.into_values().flatten() {
            let LeaseCandidate { metadata, spec } = serde_json::from_value(object.clone())?;
            let emulated = spec.emulation_version.as_ref().unwrap_or(&spec.binary_version);
            candidates.push(RegisteredCandidate {
                rank: (parts(emulated), parts(&spec.binary_version), metadata.creation_timestamp.map(|time| time.0)),
                name: metadata.name.unwrap_or_default(),
                pinged_at: spec.ping_time.map(|time| time.0),
                responded_at: spec.renew_time.map(|time| time.0),
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
    let lease_duration = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
    spec.renew_time.is_none_or(|renewed| renewed.0 + lease_duration < now)
}

/// Returns the definition of the candidates' type. With this type, the library treats a server as coordinating.
fn definition() -> Value {
    let any_object = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "leasecandidates.coordination.k8s.io" },
        "spec": {
            "group": "coordination.k8s.io",
            "scope": "Namespaced",
            "names": { "plural": "leasecandidates", "singular": "leasecandidate", "kind": "LeaseCandidate" },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": { "openAPIV3Schema": any_object } }],
        },
    })
}
