//! Sharding: distributes keys among processes, so that each key belongs to at most one of them.
//!
//! [`membership`] contains the proof.

mod gains;
mod group;
mod member;
mod membership;
mod rendezvous;
mod state;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use steadfast::{Cacheable, Connection, Informer, ObjectKey, kube};
use tokio::sync::watch;

use gains::GainTracker;
use member::Member;
use state::MemberState;

use super::lease_error::LeaseErrors;
use super::state::Term;
use super::{ElectionError, LeaderElection, LeaderElectionBuilder, LeaseError};

/// One of several replicas that share all keys. At any time each key belongs to at most one replica. While replicas
/// join or leave, a key may belong to none. Cheap to clone.
///
/// The replica takes part until it is [stopped](Self::stop) or its last clone is dropped. Afterwards the clients of its
/// key guards send no more requests.
///
/// Use [`Controller::sharded_by`](crate::Controller::sharded_by) with a controller. Reconciles then run only for own
/// keys. Gained keys wait until the caches contain the writes of their previous owner. Hold the key in each reconcile
/// before reading anything, and use the client of the guard.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use steadfast::{Connection, InformerFactory, ObjectKey, Scope, kube};
/// # use steadfast_controller::{Action, Controller, Sharding, back_off};
/// async fn reconcile(object: Arc<ConfigMap>, shares: Arc<Sharding>) -> Result<Action, kube::Error> {
///     let meta = &object.metadata;
///     let key = ObjectKey::namespaced(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
///     // No longer our key: the controller reconciles the key again when gained.
///     let Some(held) = shares.hold(&key) else { return Ok(Action::await_change()) };
///     let client = held.client();
///     // Create or update the children of `object` with this client.
/// #   drop(client);
///     Ok(Action::await_change())
/// }
///
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let informers = InformerFactory::new(&connection);
/// let shares = Sharding::builder(&connection, "default", "my-controller").start()?;
/// let controller = Controller::<ConfigMap>::new(&informers, Scope::all())
///     .sharded_by(&shares)
///     .run(reconcile, back_off, Arc::new(shares.clone()))?;
/// # controller.stop(Duration::from_secs(30)).await;
/// shares.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sharding {
    handle: Arc<ShardingHandle>,
}

/// Stops the member task on drop.
struct ShardingHandle {
    state: Arc<MemberState>,
}

impl Drop for ShardingHandle {
    fn drop(&mut self) {
        self.state.stopping.send_replace(true);
    }
}

/// Builder of [`Sharding`]: the settings of an election, applied to each replica's own lease.
pub struct ShardingBuilder(LeaderElectionBuilder);

impl ShardingBuilder {
    /// Identity of this replica in its lease: [`LeaderElectionBuilder::identity`]. Defaults to the host name.
    #[must_use]
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self(self.0.identity(identity))
    }

    /// Time after which other replicas may take over the keys of a silent replica:
    /// [`LeaderElectionBuilder::lease_duration`]. Defaults to 15 s.
    #[must_use]
    pub fn lease_duration(self, lease_duration: Duration) -> Self {
        Self(self.0.lease_duration(lease_duration))
    }

    /// Time for which a replica without a successful renewal keeps acting: [`LeaderElectionBuilder::renew_deadline`]. A
    /// hand-over waits at most this long for the guards of the replica. Defaults to 10 s.
    #[must_use]
    pub fn renew_deadline(self, renew_deadline: Duration) -> Self {
        Self(self.0.renew_deadline(renew_deadline))
    }

    /// Interval between renewals, and between reads of all leases: [`LeaderElectionBuilder::retry_period`]. Defaults to
    /// 2 s.
    #[must_use]
    pub fn retry_period(self, retry_period: Duration) -> Self {
        Self(self.0.retry_period(retry_period))
    }

    /// Clock for the times in the lease: [`LeaderElectionBuilder::wall_clock`].
    #[must_use]
    pub fn wall_clock(self, wall_clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(self.0.wall_clock(wall_clock))
    }

    /// Injects a fault. Tests use this to prove that the fault is detected.
    #[cfg(feature = "fault-injection")]
    #[doc(hidden)]
    #[must_use]
    pub fn inject_fault(mut self, fault: super::InjectedShardingFault) -> Self {
        self.0.timing.faults.sharding = Some(fault);
        self
    }

    /// Starts the replica.
    ///
    /// # Errors
    ///
    /// Returns an error if the durations are inconsistent, or a name is empty or invalid.
    pub fn start(self) -> Result<Sharding, ElectionError> {
        self.0.check()?;
        if !is_valid_group(&self.0.name) {
            return Err(ElectionError::Group(self.0.name));
        }
        let identity = self.0.identity_or_host()?;
        let LeaderElectionBuilder { connection, namespace, name: group, timing, wall_clock, .. } = self.0;
        let environment = connection.environment().clone();
        // A restarted process is another member, because requests of its predecessor may still be in flight.
        let ending = format!("{:016x}", environment.random());
        let state = Arc::new(MemberState {
            environment: environment.clone(),
            namespace,
            name: format!("{group}-{ending}"),
            group,
            identity: format!("{identity}_{ending}"),
            status: watch::Sender::default(),
            stopping: watch::Sender::new(false),
            lease_errors: LeaseErrors::default(),
            readers: Mutex::default(),
        });
        let member = Member::new(connection, state.clone(), timing, wall_clock);
        // The task must outlive its handle, to release the lease first.
        drop(environment.spawn(Box::pin(member.run())));
        let publisher = state.clone();
        drop(environment.spawn(Box::pin(async move { publisher.publish_gains().await })));
        Ok(Sharding { handle: Arc::new(ShardingHandle { state }) })
    }
}

impl fmt::Debug for ShardingBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardingBuilder").field(&self.0).finish()
    }
}

/// Returns true if `group` is valid as a label value and as the prefix of a lease name.
fn is_valid_group(group: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [group.as_bytes().first(), group.as_bytes().last()];
    group.len() <= 63
        && ends.iter().all(|end| end.is_some_and(|byte| plain(*byte)))
        && group.bytes().all(|byte| plain(byte) || byte == b'-')
}

impl Sharding {
    /// Returns a builder of a replica of `group`, with leases in `namespace`.
    ///
    /// Requires `list`, `get`, `create`, `update` and `delete` on `leases` in `coordination.k8s.io` in this namespace.
    pub fn builder(connection: &Connection, namespace: impl Into<String>, group: impl Into<String>) -> ShardingBuilder {
        ShardingBuilder(LeaderElection::builder(connection, namespace, group))
    }

    /// Returns the identity of this replica, as written into its lease.
    pub fn identity(&self) -> &str {
        &self.handle.state.identity
    }

    /// Returns the last error of lease requests, with the missing permission if that is the cause. None after success.
    ///
    /// The first error of each cause is logged as a warning. The replica keeps trying.
    pub fn lease_error(&self) -> Option<LeaseError> {
        self.handle.state.lease_errors.last()
    }

    /// Returns true if `key` belongs to this replica now. The result may be outdated immediately: to act on the key,
    /// [hold](Self::hold) it.
    pub fn owns(&self, key: &ObjectKey) -> bool {
        self.hold(key).is_some()
    }

    /// Holds `key` if it belongs to this replica.
    ///
    /// A hand-over waits for all guards of this replica that exist at its start, also for those of keys that the
    /// replica keeps. The hand-over waits for at most the renew deadline (10 s by default). After that wait, or if the
    /// lease may have expired, the clients of these guards send nothing more.
    pub fn hold(&self, key: &ObjectKey) -> Option<KeyGuard> {
        // The borrow lock is held while the term is cloned, so the guard belongs to the current distribution.
        let status = self.handle.state.status.borrow();
        let term = status.term_for(key).filter(|term| term.fence.is_open())?;
        Some(KeyGuard { term: term.clone() })
    }

    /// Waits until the set of owned keys changes. `seen` must start at 0, and is updated. Returns false after the stop.
    pub async fn changed(&self, seen: &mut u64) -> bool {
        let mut status = self.handle.state.status.subscribe();
        let changed = status.wait_for(|status| status.number != *seen || status.stopped.is_some()).await;
        changed.is_ok_and(|status| {
            *seen = status.number;
            status.stopped.is_none()
        })
    }

    /// Returns a stream of gained keys from the cache of `informer`, for work that this replica missed before the gain.
    ///
    /// A controller with [`sharded_by`](crate::Controller::sharded_by) reconciles gained keys automatically. Other
    /// users receive keys as soon as they are gained, and their caches may lack the writes of the previous owner.
    ///
    /// The stream ends after the stop, and does not delay the stop.
    pub fn gained<K: Cacheable>(&self, informer: &Informer<K>) -> impl Stream<Item = ObjectKey> + Send + use<K> {
        let informer = informer.clone();
        self.gained_among(move || informer.snapshot().iter().map(|entry| entry.key().clone()).collect())
    }

    /// Returns a stream of gained keys among those that `keys` returns at the time of the gain.
    pub(crate) fn gained_among<F>(&self, keys: F) -> impl Stream<Item = ObjectKey> + Send + use<F>
    where
        F: Fn() -> Vec<ObjectKey> + Send + 'static,
    {
        let changes = futures::stream::unfold(
            // Stores only the gains: the whole status would keep its term alive while the stream is not polled.
            (self.handle.state.status.subscribe(), 0, GainTracker::default(), keys),
            |(mut statuses, number, before, keys)| async move {
                let now = statuses.wait_for(|now| now.number != number || now.stopped.is_some()).await.ok()?.clone();
                if now.stopped.is_some() {
                    return None;
                }
                // Intermediate changes are unknown: any key may have been lost and gained again.
                let had = |key: &ObjectKey| now.number == number + 1 && before.owns(key);
                let gained = |key: &ObjectKey| now.term_for(key).is_some() && !had(key);
                let gained: Vec<_> = keys().into_iter().filter(gained).collect();
                Some((futures::stream::iter(gained), (statuses, now.number, now.gains, keys)))
            },
        );
        futures::StreamExt::flatten(changes)
    }

    /// Withholds each gained key until the caches have caught up. `catch_up` is called after the gain, and the key is
    /// available when its future has completed. Applies until the returned reader ends.
    pub(crate) fn add_cache_reader(
        &self,
        catch_up: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> CacheReader {
        let state = self.handle.state.clone();
        CacheReader { number: state.add_reader(Arc::new(catch_up)), state }
    }

    /// Stops taking part: closes the clients of all guards, then releases the lease. Returns true if the lease was
    /// released, so that other replicas can take the keys immediately.
    ///
    /// If requests have no response yet, the release waits until the server must have processed them. If the lease
    /// expires earlier, it is not released. So finish all work first. The stop takes at most the lease duration.
    /// Returns false immediately if the connection's runtime has ended.
    pub async fn stop(&self) -> bool {
        let state = &self.handle.state;
        state.stopping.send_replace(true);
        let mut status = state.status.subscribe();
        let stopped = status.wait_for(|status| status.stopped.is_some()).await;
        stopped.ok().and_then(|status| status.stopped).unwrap_or(false)
    }
}

/// Registration of a cache reader. Gained keys wait for its caches.
pub(crate) struct CacheReader {
    number: u64,
    state: Arc<MemberState>,
}

impl CacheReader {
    /// Removes the registration.
    pub(crate) fn end(&self) {
        self.state.remove_reader(self.number);
    }
}

impl fmt::Debug for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sharding")
            .field("namespace", &self.handle.state.namespace)
            .field("group", &self.handle.state.group)
            .field("identity", &self.handle.state.identity)
            .finish_non_exhaustive()
    }
}

/// Guard of a key that belongs to this replica, until its drop or until its [loss](Self::until_lost).
///
/// Hold the guard for one piece of work only: a new replica waits for its keys while guards exist.
pub struct KeyGuard {
    term: Arc<Term>,
}

impl KeyGuard {
    /// Returns a client whose requests are sent while the key belongs to this replica, or not at all. The guarantees
    /// match [`Leader::client`](super::Leader::client).
    pub fn client(&self) -> kube::Client {
        self.term.client.clone()
    }

    /// Returns a client with the guarantees of [`client`](Self::client), whose requests run on `runtime`: see
    /// [`Connection::client_on`](steadfast::Connection::client_on). Each client starts a task.
    pub fn client_on(&self, runtime: &tokio::runtime::Handle) -> kube::Client {
        self.term.client_on(runtime)
    }

    /// Returns true if requests may be sent now.
    pub fn is_held(&self) -> bool {
        self.term.fence.is_open()
    }

    /// Waits until no request may be sent any more.
    pub async fn until_lost(&self) {
        self.term.fence.closed().await;
    }
}

impl fmt::Debug for KeyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyGuard").field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}
