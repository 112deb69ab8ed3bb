//! Who of several processes acts: the holder of a lease, and nobody beyond the time for which it is held.

mod breach;
mod campaign;
mod candidacy;
mod candidate;
mod leases;
#[cfg(feature = "metrics")]
mod metrics;
mod office;
mod record;
mod registration;
mod requests;
mod shares;
mod succession;
mod timing;
mod trouble;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use steadfast::Connection;
use steadfast::k8s_openapi::jiff::Timestamp;
use steadfast::kube;

use breach::Breaches;
use campaign::Campaign;
use office::{Office, Standing, Term};
use registration::Registration;
use timing::{Timing, WallClock};

use crate::events::EventRecorder;
use crate::panics;

#[cfg(feature = "breach")]
pub use breach::ElectionBreach;
pub use candidate::Candidate;
#[cfg(feature = "breach")]
pub use shares::ShardingBreach;
pub use shares::{Held, Sharding, ShardingBuilder};
pub use timing::ElectionError;
pub use trouble::ElectionTrouble;

/// A candidate for one lease, and its leadership while it holds that. Cheap to clone.
///
/// It begins when it is built, and goes on until it is [stopped](Self::stop) or until all that came of it is dropped: a leader
/// that has lost its lease is a candidate again. Renewals run on the connection's own threads, which the program cannot block.
///
/// ```no_run
/// # use steadfast::Connection;
/// # use steadfast_controller::LeaderElection;
/// # async fn work(client: steadfast::kube::Client) {}
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let election = LeaderElection::builder(&connection, "default", "my-controller").build()?;
/// while let Some(leader) = election.until_leader().await {
///     tokio::select! {
///         () = leader.lost() => {}
///         () = work(leader.client()) => break,
///     }
/// }
/// election.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LeaderElection {
    handle: Arc<Handle>,
}

/// Has the campaign stop when nobody holds it any more.
struct Handle {
    office: Arc<Office>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.office.stopping.send_replace(true);
    }
}

/// What a [`LeaderElection`] is made of.
pub struct LeaderElectionBuilder {
    connection: Connection,
    namespace: String,
    name: String,
    identity: Option<String>,
    timing: Timing,
    wall: WallClock,
    events: Option<EventRecorder>,
}

impl LeaderElectionBuilder {
    /// Records an event about the lease when this becomes the leader, and when it no longer is: reason `LeaderElection`, as
    /// client-go has it. None unless it is set.
    #[must_use]
    pub fn events(mut self, recorder: &EventRecorder) -> Self {
        self.events = Some(recorder.clone());
        self
    }

    /// Who this is, for those who read the lease; the host's name unless it is said, which is the pod's in a cluster.
    ///
    /// A random ending is added, so that no two processes are taken for the same holder: not those of one name, nor one that
    /// was started again for the one before it, of which something may still be under way.
    #[must_use]
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// For how long a leader of whom nothing is seen is waited for; whole seconds. 15 s.
    #[must_use]
    pub fn lease_duration(mut self, lease_duration: Duration) -> Self {
        self.timing.lease = lease_duration;
        self
    }

    /// For how long a leader acts that cannot renew its lease, counted from before the last renewal was sent; at most four
    /// fifths of the lease's duration. 10 s.
    ///
    /// What is left of the lease then is the time for what was sent to arrive and to be acted on.
    #[must_use]
    pub fn renew_deadline(mut self, renew_deadline: Duration) -> Self {
        self.timing.renew = renew_deadline;
        self
    }

    /// How often a leader renews; and others ask, drawn out by up to 1.2 of it by chance. 2 s.
    #[must_use]
    pub fn retry_period(mut self, retry_period: Duration) -> Self {
        self.timing.retry = retry_period;
        self
    }

    /// Where the times that are written into the lease come from; the system's clock unless it is said.
    ///
    /// They are for those who read it: nothing is judged by them.
    #[must_use]
    pub fn wall_clock(mut self, wall_clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.wall = Arc::new(move || {
            // One that panics is no reason to stand no longer.
            let now = catch_unwind(AssertUnwindSafe(&wall_clock)).unwrap_or_else(|panic| {
                drop(panics::told(panic));
                SystemTime::now()
            });
            Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH)
        });
        self
    }

    /// The candidate, which stands from now on.
    ///
    /// # Errors
    ///
    /// The times do not fit together, or something has no name.
    pub fn build(self) -> Result<LeaderElection, ElectionError> {
        self.stand(None, Breaches::default())
    }

    /// Has a coordinator of the server's say who leads (KEP-4355): the candidate of the oldest emulation version, which others make
    /// way for. Without, whoever comes first leads.
    #[must_use]
    pub fn coordinated(self, candidate: Candidate) -> CoordinatedElectionBuilder {
        CoordinatedElectionBuilder { settings: self, candidate, breaches: Breaches::default() }
    }

    fn stand(self, candidate: Option<Candidate>, breaches: Breaches) -> Result<LeaderElection, ElectionError> {
        self.check()?;
        let identity = self.who()?;
        let Self { connection, namespace, name, timing, wall, events, .. } = self;
        let environment = connection.environment().clone();
        // Of a coordinated candidate it is the name of an object.
        let joint = if candidate.is_some() { '-' } else { '_' };
        let identity = format!("{identity}{joint}{:016x}", environment.random());
        let office = Arc::new(Office::new(environment.clone(), namespace, name, identity));
        let registration =
            candidate.map(|candidate| Registration::new(connection.clone(), office.clone(), candidate, &timing));
        let campaign = Campaign::new(connection, office.clone(), timing, (wall, events), registration, breaches);
        // Goes on without its handle, which would only end it before it has released the lease.
        drop(environment.spawn(Box::pin(campaign.run())));
        Ok(LeaderElection { handle: Arc::new(Handle { office }) })
    }

    /// Whether the times fit together, and what has to have a name has one.
    fn check(&self) -> Result<(), ElectionError> {
        self.timing.check()?;
        if self.namespace.is_empty() || self.name.is_empty() {
            return Err(ElectionError::Name { namespace: self.namespace.clone(), name: self.name.clone() });
        }
        Ok(())
    }

    /// Who this is, without the random ending.
    fn who(&self) -> Result<String, ElectionError> {
        match &self.identity {
            Some(identity) if identity.is_empty() => Err(ElectionError::Identity),
            Some(identity) => Ok(identity.clone()),
            None => Ok(host()),
        }
    }
}

/// What this machine is called; a pod's machine has the pod's name.
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

/// What a [`LeaderElection`] is made of in which a coordinator says who leads.
///
/// All candidates for the lease are to be such ones, with the same lease duration.
///
/// ```no_run
/// # use steadfast::Connection;
/// # use steadfast_controller::{Candidate, LeaderElection};
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let candidate = Candidate::new("1.31.0").emulation_version("1.30.0");
/// let election =
///     LeaderElection::builder(&connection, "default", "my-controller").coordinated(candidate).start().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CoordinatedElectionBuilder {
    settings: LeaderElectionBuilder,
    candidate: Candidate,
    breaches: Breaches,
}

impl CoordinatedElectionBuilder {
    /// Has it break the rules: for the tests that prove that this is found.
    #[cfg(feature = "breach")]
    #[doc(hidden)]
    #[must_use]
    pub fn breach(mut self, breach: ElectionBreach) -> Self {
        self.breaches.committed = Some(breach);
        self
    }

    /// The candidate, which stands from now on, if the server has a coordinator; where it does not answer, that is not known, and
    /// the candidate stands.
    ///
    /// It needs `get` and `update` of `leases` and `get`, `create`, `update` and `delete` of `leasecandidates` in
    /// `coordination.k8s.io`, in its namespace; and `watch` of `leases`, without which it leads some seconds later than it could.
    ///
    /// # Errors
    ///
    /// The times or versions do not fit together, something has no name that it can have, or the server has no `LeaseCandidates`.
    pub async fn start(self) -> Result<LeaderElection, ElectionError> {
        let Self { settings, candidate, breaches } = self;
        settings.check()?;
        candidate.check()?;
        let who = settings.who()?;
        if !candidate::can_be_a_name(&format!("{who}-0123456789abcdef")) {
            return Err(ElectionError::CandidateName(who));
        }
        match registration::is_served(&settings.connection, &settings.timing).await {
            Some(false) => Err(ElectionError::NotCoordinated),
            Some(true) | None => settings.stand(Some(candidate), breaches),
        }
    }
}

impl LeaderElection {
    /// A candidate for the lease `name` in `namespace`, with more to say about it.
    ///
    /// It needs `get`, `create` and `update` of `leases` in `coordination.k8s.io` there.
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
            wall: Arc::new(Timestamp::now),
            events: None,
        }
    }

    /// Checks the lease duration, the renew deadline and the retry period of an election, in this order.
    ///
    /// # Errors
    ///
    /// If no election can be built with them.
    pub fn check_durations([lease, renew, retry]: [Duration; 3]) -> Result<(), ElectionError> {
        Timing { lease, renew, retry }.check()
    }

    /// Who this is, as the lease has it when it is the leader.
    pub fn identity(&self) -> &str {
        &self.handle.office.identity
    }

    /// Whether this is the leader at this moment. It may not be at the next: what must not be done by anyone else is to be
    /// requested by [`Leader::client`].
    pub fn is_leader(&self) -> bool {
        self.handle.office.term().is_some()
    }

    /// Who holds the lease, by what was last seen of it; none if nobody does or nothing was seen.
    pub fn holder(&self) -> Option<String> {
        self.handle.office.standing.borrow().holder.clone()
    }

    /// Waits until the holder is not `known`, as returned by [`holder`](Self::holder), or the election is stopped; returns the
    /// holder then.
    pub async fn holder_changed(&self, known: Option<&str>) -> Option<String> {
        let mut standing = self.handle.office.standing.subscribe();
        let is_changed = |standing: &Standing| standing.holder.as_deref() != known || standing.over.is_some();
        // Its sender is what this is a handle of.
        standing.wait_for(is_changed).await.ok()?.holder.clone()
    }

    /// Why the lease cannot be read or written: the last error, with the missing permission if that is the cause. None if the
    /// last requests succeeded.
    ///
    /// The first error of each cause is logged as a warning. The candidate tries again all the same.
    pub fn trouble(&self) -> Option<ElectionTrouble> {
        self.handle.office.troubles.last()
    }

    /// Waits until this is the leader; none once the election is stopped.
    ///
    /// A candidate that lacks a permission waits as any other: see [`trouble`](Self::trouble).
    pub async fn until_leader(&self) -> Option<Leader> {
        let mut standing = self.handle.office.standing.subscribe();
        loop {
            {
                let standing = standing.borrow_and_update();
                if standing.over.is_some() || *self.handle.office.stopping.borrow() {
                    return None;
                }
                if let Some(term) = standing.term.clone().filter(|term| term.fence.is_open()) {
                    return Some(Leader { term, handle: self.handle.clone() });
                }
            }
            // Its sender is what this is a handle of.
            standing.changed().await.ok()?;
        }
    }

    /// Stops being a candidate, and a leader: first nothing is sent any more by its client, then the lease is released if it
    /// is still ours. Says whether it was, so that another may be the leader at once.
    ///
    /// Where something was sent to which no answer has come, the lease is released later, when the server has had the time to
    /// act on it, or is left to expire. So end the work first. Where the runtime of the connection is gone, on which this would be
    /// done, it says at once that it was not.
    pub async fn stop(&self) -> bool {
        let office = &self.handle.office;
        office.stopping.send_replace(true);
        let mut standing = office.standing.subscribe();
        let over = standing.wait_for(|standing| standing.over.is_some()).await;
        over.ok().and_then(|standing| standing.over).unwrap_or(false)
    }
}

impl fmt::Debug for LeaderElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElection")
            .field("namespace", &self.handle.office.namespace)
            .field("name", &self.handle.office.name)
            .field("identity", &self.handle.office.identity)
            .field("is_leader", &self.is_leader())
            .finish_non_exhaustive()
    }
}

/// One term as the leader. Cheap to clone; the candidate stands as long as any of its clones is there.
///
/// A term that is over does not begin again: wait for the [next](LeaderElection::until_leader).
#[derive(Clone)]
pub struct Leader {
    term: Arc<Term>,
    handle: Arc<Handle>,
}

impl Leader {
    /// A client whose requests are sent within this term or not at all.
    ///
    /// - Whether the lease may have lapsed is judged at each write to a socket, by a clock that goes on while the machine is
    ///   suspended. A request that comes later fails unsent: `TransportError::Fenced`, in `kube::Error::Service`.
    /// - Its sockets are nobody else's. When the term ends they are aborted, and the requests under way fail; nor does the
    ///   kernel send anything again that was not acknowledged in half of the time by which the lease outlasts the term, with
    ///   the usual settings 2.5 s. Linux alone keeps that.
    /// - What the server has read by then it may still act on, and has the other half of that time for it. One that takes
    ///   longer, or is stopped in the middle of a request, can act on it when another is the leader. Where that must not be
    ///   either, write with the `resourceVersion` that was read: then what is late conflicts.
    pub fn client(&self) -> kube::Client {
        self.term.client.clone()
    }

    /// Whether the term is not over at this moment.
    pub fn is_leader(&self) -> bool {
        self.term.fence.is_open()
    }

    /// How long the term lasts if the lease is not renewed.
    pub fn remaining(&self) -> Duration {
        self.term.fence.remaining()
    }

    /// Returns the fencing token of the term: a number that is higher in each later term of any candidate for the lease, so that
    /// a system which compares it can reject the writes of an earlier leader.
    ///
    /// It is the version of the write that acquired the lease. After a restore of the API server from a backup, it can be lower
    /// than before.
    pub fn fencing_token(&self) -> u64 {
        self.term.token
    }

    /// Waits until the term is over.
    pub async fn lost(&self) {
        self.term.fence.closed().await;
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader")
            .field("identity", &self.handle.office.identity)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// The metrics of some elections, under client-go's names; to be registered once for all elections of a program.
///
/// `leader_election_master_status` is 1 for the leader, and `leader_election_slowpath_total` counts the renewals that failed at
/// the first attempt. It keeps no election alive.
#[cfg(feature = "metrics")]
#[derive(Default)]
pub struct ElectionMetrics(metrics::Elections);

#[cfg(feature = "metrics")]
impl ElectionMetrics {
    /// These and those of `election`, with `name` as their label; client-go's is that of the lease.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, election: &LeaderElection) -> Self {
        self.0.add(name.into(), Arc::downgrade(&election.handle.office));
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
