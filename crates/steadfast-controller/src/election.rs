//! Leader election by a lease.

mod candidate_versions;
mod earlier_holders;
mod fault_injection;
mod lease_error;
mod leases;
mod machine;
#[cfg(feature = "metrics")]
mod metrics;
mod record;
mod registration;
mod requests;
mod sharding;
mod state;
mod task;
mod timing;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use steadfast::Connection;
use steadfast::k8s_openapi::jiff::Timestamp;
use steadfast::kube;

use registration::Registration;
use state::{ElectionState, ElectionStatus, Term};
use task::ElectionTask;
use timing::Timing;

use crate::events::EventRecorder;
use crate::panics;
use crate::wall_clock::WallClock;

pub use candidate_versions::CandidateVersions;
#[cfg(feature = "fault-injection")]
pub use fault_injection::{InjectedElectionFault, InjectedShardingFault};
pub use lease_error::LeaseError;
pub use sharding::{KeyGuard, Sharding, ShardingBuilder};
pub use timing::ElectionError;

/// Candidate for one lease, and its leadership while the candidate holds the lease. Cheap to clone.
///
/// The election runs until it is [stopped](Self::stop), or until all clones and all [`Leader`] values are dropped. A
/// leader that loses its lease becomes a candidate again. Renewals run on the connection's own threads, so blocking
/// code of the program cannot delay them.
///
/// ```no_run
/// # use steadfast::Connection;
/// # use steadfast_controller::LeaderElection;
/// # async fn work(client: steadfast::kube::Client) {}
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let election = LeaderElection::builder(&connection, "default", "my-controller").start()?;
/// while let Some(leader) = election.until_leader().await {
///     tokio::select! {
///         () = leader.until_lost() => {}
///         () = work(leader.client()) => break,
///     }
/// }
/// election.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderElection {
    handle: Arc<ElectionHandle>,
}

/// Stops the election task on drop.
struct ElectionHandle {
    state: Arc<ElectionState>,
}

impl Drop for ElectionHandle {
    fn drop(&mut self) {
        self.state.stopping.send_replace(true);
    }
}

/// Builder of a [`LeaderElection`].
pub struct LeaderElectionBuilder {
    connection: Connection,
    namespace: String,
    name: String,
    identity: Option<String>,
    timing: Timing,
    wall_clock: WallClock,
    events: Option<EventRecorder>,
}

impl LeaderElectionBuilder {
    /// Records an event about the lease at the start and the end of each term, with client-go's reason
    /// `LeaderElection`. Disabled by default.
    #[must_use]
    pub fn events(mut self, recorder: &EventRecorder) -> Self {
        self.events = Some(recorder.clone());
        self
    }

    /// Identity of this candidate in the lease. Defaults to the host name, which is the pod's name in a cluster.
    ///
    /// A random suffix is appended, so that no two processes share an identity. A restarted process must not be taken
    /// for its predecessor, whose requests may still be in flight.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Time after which other candidates may take over from a silent leader, in whole seconds. Defaults to 15 s.
    #[must_use]
    pub fn lease_duration(mut self, lease_duration: Duration) -> Self {
        self.timing.lease = lease_duration;
        self
    }

    /// Time for which a leader without a successful renewal keeps acting, counted from just before the last successful
    /// renewal was sent. Limited to four fifths of the lease duration. Defaults to 10 s.
    ///
    /// The rest of the lease duration is reserved for requests in flight and their processing at the server.
    #[must_use]
    pub fn renew_deadline(mut self, renew_deadline: Duration) -> Self {
        self.timing.renew = renew_deadline;
        self
    }

    /// Interval between renewals of the leader, and between requests of other candidates. Other candidates add a random
    /// delay of up to 120 % of the interval. Defaults to 2 s.
    #[must_use]
    pub fn retry_period(mut self, retry_period: Duration) -> Self {
        self.timing.retry = retry_period;
        self
    }

    /// Clock for the times in the lease. Defaults to the system clock.
    ///
    /// These times inform readers only. The election never depends on them.
    #[must_use]
    pub fn wall_clock(mut self, wall_clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.wall_clock = Arc::new(move || {
            // A panic of the clock must not end the candidacy.
            let now = catch_unwind(AssertUnwindSafe(&wall_clock)).unwrap_or_else(|panic| {
                drop(panics::message(panic));
                SystemTime::now()
            });
            Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH)
        });
        self
    }

    /// Starts the candidate.
    ///
    /// # Errors
    ///
    /// Returns an error if the durations are inconsistent, or the namespace, the name or the identity is empty.
    pub fn start(self) -> Result<LeaderElection, ElectionError> {
        self.start_candidate(None)
    }

    /// Lets a coordinator at the server choose the leader (KEP-4355): the candidate with the oldest emulation version.
    /// Without this setting, the first candidate leads.
    #[must_use]
    pub fn coordinated(self, versions: CandidateVersions) -> CoordinatedElectionBuilder {
        CoordinatedElectionBuilder { settings: self, versions }
    }

    fn start_candidate(self, versions: Option<CandidateVersions>) -> Result<LeaderElection, ElectionError> {
        self.check()?;
        let identity = self.identity_or_host()?;
        let Self { connection, namespace, name, timing, wall_clock, events, .. } = self;
        let environment = connection.environment().clone();
        // The identity of a coordinated candidate is the name of an object.
        let separator = if versions.is_some() { '-' } else { '_' };
        // Random, so that a restarted process never mistakes its predecessor's lease for its own.
        let identity = format!("{identity}{separator}{:016x}", environment.random());
        let state = Arc::new(ElectionState::new(environment.clone(), namespace, name, identity));
        let registration =
            versions.map(|versions| Registration::new(connection.clone(), state.clone(), versions, &timing));
        let task = ElectionTask::new(connection, state.clone(), timing, (wall_clock, events), registration);
        // The task must outlive its handle, to release the lease first.
        drop(environment.spawn(Box::pin(task.run())));
        Ok(LeaderElection { handle: Arc::new(ElectionHandle { state }) })
    }

    /// Checks the durations and the names.
    fn check(&self) -> Result<(), ElectionError> {
        self.timing.check()?;
        if self.namespace.is_empty() || self.name.is_empty() {
            return Err(ElectionError::Name { namespace: self.namespace.clone(), name: self.name.clone() });
        }
        Ok(())
    }

    /// Returns the identity without the random suffix.
    fn identity_or_host(&self) -> Result<String, ElectionError> {
        match &self.identity {
            Some(identity) if identity.is_empty() => Err(ElectionError::Identity),
            Some(identity) => Ok(identity.clone()),
            None => Ok(host()),
        }
    }
}

/// Returns the host name. In a pod, this is the pod's name.
fn host() -> String {
    let name = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

impl fmt::Debug for LeaderElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElectionBuilder")
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .field("timing", &self.timing)
            .finish_non_exhaustive()
    }
}

/// Builder of a [`LeaderElection`] whose leader a coordinator chooses.
///
/// All candidates for the lease must be coordinated, with the same lease duration.
///
/// ```no_run
/// # use steadfast::Connection;
/// # use steadfast_controller::{CandidateVersions, LeaderElection};
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let versions = CandidateVersions::new("1.31.0").emulation_version("1.30.0");
/// let election =
///     LeaderElection::builder(&connection, "default", "my-controller").coordinated(versions).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CoordinatedElectionBuilder {
    settings: LeaderElectionBuilder,
    versions: CandidateVersions,
}

impl CoordinatedElectionBuilder {
    /// Injects a fault. Tests use this to prove that the fault is detected.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    #[must_use]
    pub fn inject_fault(mut self, fault: InjectedElectionFault) -> Self {
        self.settings.timing.faults.election = Some(fault);
        self
    }

    /// Starts the candidate if the server supports coordination. If the server does not respond, the candidate starts
    /// anyway.
    ///
    /// Requires `get` and `update` on `leases`, and `get`, `create`, `update` and `delete` on `leasecandidates` in
    /// `coordination.k8s.io`, in the namespace of the lease. Without the permission `watch` on `leases`, the candidate
    /// becomes the leader some seconds later.
    ///
    /// # Errors
    ///
    /// Returns an error if durations or versions are inconsistent, a name is invalid, or the server has no
    /// `LeaseCandidates`.
    pub async fn start(self) -> Result<LeaderElection, ElectionError> {
        let Self { settings, versions } = self;
        settings.check()?;
        versions.check()?;
        let identity = settings.identity_or_host()?;
        // The suffix counts toward the length limit of object names.
        if !candidate_versions::is_valid_name(&format!("{identity}-0123456789abcdef")) {
            return Err(ElectionError::CandidateName(identity));
        }
        match registration::is_served(&settings.connection, &settings.timing).await {
            // `None`: the server did not respond. The candidate starts anyway and retries.
            Some(false) => Err(ElectionError::NotCoordinated),
            Some(true) | None => settings.start_candidate(Some(versions)),
        }
    }
}

impl LeaderElection {
    /// Returns a builder of a candidate for the lease `name` in `namespace`.
    ///
    /// Requires `get`, `create` and `update` on `leases` in `coordination.k8s.io` in this namespace.
    pub fn builder(
        connection: &Connection,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> LeaderElectionBuilder {
        LeaderElectionBuilder {
            connection: connection.clone(),
            namespace: namespace.into(),
            name: name.into(),
            identity: None,
            timing: Timing::default(),
            wall_clock: Arc::new(Timestamp::now),
            events: None,
        }
    }

    /// Checks the lease duration, the renew deadline and the retry period of an election, in this order.
    ///
    /// # Errors
    ///
    /// Returns an error if an election with these durations cannot start.
    pub fn check_durations([lease, renew, retry]: [Duration; 3]) -> Result<(), ElectionError> {
        Timing { lease, renew, retry, ..Timing::default() }.check()
    }

    /// Returns the identity of this candidate, as written into the lease.
    pub fn identity(&self) -> &str {
        &self.handle.state.identity
    }

    /// Returns true if this candidate is the leader now. The result may be outdated immediately: send all requests that
    /// need leadership through [`Leader::client`].
    pub fn is_leader(&self) -> bool {
        self.handle.state.term().is_some()
    }

    /// Returns the last known holder of the lease. None if the lease is free or was not read yet.
    pub fn holder(&self) -> Option<String> {
        self.handle.state.status.borrow().holder.clone()
    }

    /// Waits until the holder differs from `known`, a result of [`holder`](Self::holder), or the election stops.
    /// Returns the holder.
    pub async fn holder_changed(&self, known: Option<&str>) -> Option<String> {
        let mut status = self.handle.state.status.subscribe();
        let is_changed = |status: &ElectionStatus| status.holder.as_deref() != known || status.stopped.is_some();
        // The handle owns the sender, so the wait cannot fail.
        status.wait_for(is_changed).await.ok()?.holder.clone()
    }

    /// Returns the last error of lease requests, with the missing permission if that is the cause. None after success.
    ///
    /// The first error of each cause is logged as a warning. The candidate keeps trying.
    pub fn lease_error(&self) -> Option<LeaseError> {
        self.handle.state.lease_errors.last()
    }

    /// Waits until this candidate is the leader. Returns none after the stop of the election.
    ///
    /// A candidate that lacks a permission waits too; [`lease_error`](Self::lease_error) returns the missing
    /// permission.
    pub async fn until_leader(&self) -> Option<Leader> {
        let mut status = self.handle.state.status.subscribe();
        loop {
            {
                let status = status.borrow_and_update();
                if status.stopped.is_some() || *self.handle.state.stopping.borrow() {
                    return None;
                }
                // A term with a closed fence has already expired, although the task has not removed it yet.
                if let Some(term) = status.term.clone().filter(|term| term.fence.is_open()) {
                    return Some(Leader { term, handle: self.handle.clone() });
                }
            }
            // The handle owns the sender, so the wait cannot fail.
            status.changed().await.ok()?;
        }
    }

    /// Stops the election: closes the leader's client, then releases the lease if held. Returns true if the lease was
    /// released, so that another candidate can lead immediately.
    ///
    /// If requests of the leader have no response yet, the release waits until the server must have processed them. If
    /// the lease expires earlier, it is not released. So finish all work first. If a request that may acquire the lease
    /// is in flight, the stop waits for its response, for at most half of the renew deadline. Returns false immediately
    /// if the connection's runtime has ended.
    pub async fn stop(&self) -> bool {
        let state = &self.handle.state;
        state.stopping.send_replace(true);
        // `wait_for` also checks the current value, so an end before the subscription is not missed.
        let mut status = state.status.subscribe();
        let stopped = status.wait_for(|status| status.stopped.is_some()).await;
        stopped.ok().and_then(|status| status.stopped).unwrap_or(false)
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("namespace", &self.handle.state.namespace)
            .field("name", &self.handle.state.name)
            .field("identity", &self.handle.state.identity)
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}

/// One term as the leader. Cheap to clone. The candidate stays active while any clone exists.
///
/// An ended term never resumes: wait for the [next term](LeaderElection::until_leader).
#[derive(Clone)]
pub struct Leader {
    term: Arc<Term>,
    handle: Arc<ElectionHandle>,
}

impl Leader {
    /// Returns a client whose requests are sent within this term or not at all.
    ///
    /// - Each write to a socket checks whether the lease may have expired, by a clock that includes suspend time of the
    ///   machine. Later requests fail unsent with `TransportError::Fenced` in `kube::Error::Service`.
    /// - The client uses separate sockets. At the end of the term they are aborted, and requests in flight fail. The
    ///   kernel stops retransmissions within half of the time from the end of the term to the expiry of the lease, by
    ///   default 2.5 s. Only Linux supports this limit.
    /// - The server may still process requests that it has already read. The other half of that time is reserved for
    ///   such requests. A slower or suspended server can process them during the next leader's term. To exclude this
    ///   too, write with the `resourceVersion` that was read: late writes then conflict.
    pub fn client(&self) -> kube::Client {
        self.term.client.clone()
    }

    /// Returns a client with the guarantees of [`client`](Self::client), whose requests run on `runtime`: see
    /// [`Connection::client_on`](steadfast::Connection::client_on).
    ///
    /// Create one client per term, not one per request: each client starts a task.
    pub fn client_on(&self, runtime: &tokio::runtime::Handle) -> kube::Client {
        self.term.client_on(runtime)
    }

    /// Returns true if the term has not ended yet.
    pub fn is_leader(&self) -> bool {
        self.term.fence.is_open()
    }

    /// Returns the remaining time of the term if no further renewal succeeds.
    pub fn remaining(&self) -> Duration {
        self.term.fence.remaining()
    }

    /// Returns the fencing token of the term: a number that increases with each term of any candidate for the lease. A
    /// system that compares tokens can reject writes of earlier leaders.
    ///
    /// The token is the version of the write that acquired the lease. After a restore of the API server from a backup,
    /// tokens can be lower than before.
    pub fn fencing_token(&self) -> u64 {
        self.term.token
    }

    /// Waits until the term ends.
    pub async fn until_lost(&self) {
        self.term.fence.closed().await;
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("identity", &self.handle.state.identity)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// Prometheus collector for elections, under client-go's names. Register one collector for all elections of a program.
///
/// `leader_election_master_status` is 1 for the leader, and `leader_election_slowpath_total` counts renewals that
/// failed at the first attempt. The collector does not keep an election alive.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct ElectionMetrics(metrics::Elections);

#[cfg(feature = "metrics")]
impl ElectionMetrics {
    /// Adds `election` with the label `name`. client-go uses the name of the lease.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, election: &LeaderElection) -> Self {
        self.0.add(name.into(), Arc::downgrade(&election.handle.state));
        self
    }
}

#[cfg(feature = "metrics")]
impl prometheus_client::collector::Collector for ElectionMetrics {
    fn encode(&self, encoder: prometheus_client::encoding::DescriptorEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }
}

#[cfg(feature = "metrics")]
impl fmt::Debug for ElectionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionMetrics").field("elections", &self.0.len()).finish()
    }
}
