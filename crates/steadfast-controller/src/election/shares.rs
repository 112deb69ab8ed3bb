//! Several processes share what is to be done: each acts on keys of its own, and no two on one.
//!
//! Why that is so is in [`membership`].

mod breach;
mod gains;
mod group;
mod member;
mod membership;
mod office;
mod rendezvous;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::Stream;
use futures::future::BoxFuture;
use steadfast::{Connection, Informer, Kept, ObjectKey, kube};
use tokio::sync::watch;

use breach::Breaches;
use gains::Gains;
use member::Member;
use office::Office;

use super::office::Term;
use super::trouble::Troubles;
use super::{ElectionError, ElectionTrouble, LeaderElection, LeaderElectionBuilder};

#[cfg(feature = "breach")]
pub use breach::ShardingBreach;

/// One of several replicas that share all keys: each key is one replica's own, or for a while nobody's, and never two
/// replicas'. Cheap to clone.
///
/// It takes part from when it is built until it is [stopped](Self::stop) or its last clone is dropped; what is held is cut off
/// then.
///
/// With a controller: have it [shared by](crate::Controller::shared_by) this. Then it calls for those keys alone that are its own, and
/// for what it gains when its caches have what the one before has written. Hold the key in each call, before anything is read, and act
/// by the client of what is held.
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
///     // Not ours any more: it is called again when it is.
///     let Some(held) = shares.hold(&key) else { return Ok(Action::await_change()) };
///     let client = held.client();
///     // Make the world as `object` says, by this client.
/// #   drop(client);
///     Ok(Action::await_change())
/// }
///
/// # async fn example(connection: Connection) -> Result<(), Box<dyn std::error::Error>> {
/// let informers = InformerFactory::new(&connection);
/// let shares = Sharding::builder(&connection, "default", "my-controller").build()?;
/// let controller = Controller::<ConfigMap>::new(&informers, Scope::all())
///     .shared_by(&shares)
///     .run(reconcile, back_off, Arc::new(shares.clone()))?;
/// # controller.stop(Duration::from_secs(30)).await;
/// shares.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sharding {
    handle: Arc<Handle>,
}

/// Has the member stop when nobody holds it any more.
struct Handle {
    office: Arc<Office>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.office.stopping.send_replace(true);
    }
}

/// What [`Sharding`] are made of: the settings of an election, of which each replica's own lease has the times.
pub struct ShardingBuilder(LeaderElectionBuilder, Breaches);

impl ShardingBuilder {
    /// Who this is, for those who read the leases: [`LeaderElectionBuilder::identity`].
    #[must_use]
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self(self.0.identity(identity), self.1)
    }

    /// For how long a replica of which nothing is seen is waited for: [`LeaderElectionBuilder::lease_duration`]. 15 s.
    #[must_use]
    pub fn lease_duration(self, lease_duration: Duration) -> Self {
        Self(self.0.lease_duration(lease_duration), self.1)
    }

    /// For how long a replica acts that cannot renew its lease: [`LeaderElectionBuilder::renew_deadline`]; and for how long at
    /// most a hand-over waits for what acts on keys. 10 s.
    #[must_use]
    pub fn renew_deadline(self, renew_deadline: Duration) -> Self {
        Self(self.0.renew_deadline(renew_deadline), self.1)
    }

    /// How often each replica renews its lease, and reads those of all: [`LeaderElectionBuilder::retry_period`]. 2 s.
    #[must_use]
    pub fn retry_period(self, retry_period: Duration) -> Self {
        Self(self.0.retry_period(retry_period), self.1)
    }

    /// Where the times that are written into the lease come from: [`LeaderElectionBuilder::wall_clock`].
    #[must_use]
    pub fn wall_clock(self, wall_clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(self.0.wall_clock(wall_clock), self.1)
    }

    /// Has it break the protocol: for the tests that prove that this is found.
    #[cfg(feature = "breach")]
    #[doc(hidden)]
    #[must_use]
    pub fn breach(self, breach: ShardingBreach) -> Self {
        Self(self.0, Breaches { committed: Some(breach) })
    }

    /// The replica, which takes part from now on.
    ///
    /// # Errors
    ///
    /// The times do not fit together, or something has no name that can be that of a lease.
    pub fn build(self) -> Result<Sharding, ElectionError> {
        self.0.check()?;
        if !can_be_a_group(&self.0.name) {
            return Err(ElectionError::Group(self.0.name));
        }
        let identity = self.0.who()?;
        let LeaderElectionBuilder { connection, namespace, name: group, timing, wall, .. } = self.0;
        let environment = connection.environment().clone();
        // What was started again is another member: of the one before something may still be under way.
        let ending = format!("{:016x}", environment.random());
        let office = Arc::new(Office {
            environment: environment.clone(),
            namespace,
            name: format!("{group}-{ending}"),
            group,
            identity: format!("{identity}_{ending}"),
            standing: watch::Sender::default(),
            stopping: watch::Sender::new(false),
            troubles: Troubles::default(),
            readers: Mutex::default(),
        });
        let member = Member::new(connection, office.clone(), timing, wall, self.1);
        // Goes on without its handle, which would only end it before it has released the lease.
        drop(environment.spawn(Box::pin(member.run())));
        let gives_out = office.clone();
        drop(environment.spawn(Box::pin(async move { gives_out.give_out().await })));
        Ok(Sharding { handle: Arc::new(Handle { office }) })
    }
}

impl fmt::Debug for ShardingBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShardingBuilder").field(&self.0).finish()
    }
}

/// Whether it can be the value of a label, and begin a lease's name.
fn can_be_a_group(group: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [group.as_bytes().first(), group.as_bytes().last()];
    group.len() <= 63
        && ends.iter().all(|end| end.is_some_and(|byte| plain(*byte)))
        && group.bytes().all(|byte| plain(byte) || byte == b'-')
}

impl Sharding {
    /// A replica of `group`, whose leases are in `namespace`, with more to say about it.
    ///
    /// It needs `list`, `get`, `create`, `update` and `delete` of `leases` in `coordination.k8s.io` there.
    pub fn builder(connection: &Connection, namespace: impl Into<String>, group: impl Into<String>) -> ShardingBuilder {
        ShardingBuilder(LeaderElection::builder(connection, namespace, group), Breaches::default())
    }

    /// Who this is, as its lease has it.
    pub fn identity(&self) -> &str {
        &self.handle.office.identity
    }

    /// Why leases cannot be read or written: the last error, with the missing permission if that is the cause. None if the last
    /// requests succeeded.
    ///
    /// The first error of each cause is logged as a warning. The replica tries again all the same.
    pub fn trouble(&self) -> Option<ElectionTrouble> {
        self.handle.office.troubles.last()
    }

    /// Whether `key` is this replica's own at this moment. It may not be at the next: to act on it, [hold](Self::hold) it.
    pub fn owns(&self, key: &ObjectKey) -> bool {
        self.hold(key).is_some()
    }

    /// Holds `key` if it is this replica's own, to act on it.
    ///
    /// Before the key becomes another's, what holds it is waited for, 10 s at most (the renew deadline). Then, or when the
    /// lease may have lapsed, its client sends nothing more.
    pub fn hold(&self, key: &ObjectKey) -> Option<Held> {
        let standing = self.handle.office.standing.borrow();
        let term = standing.term_for(key).filter(|term| term.fence.is_open())?;
        Some(Held { term: term.clone() })
    }

    /// Waits until other keys may be this replica's own than when `changed` was last called with this `seen`, which begins with
    /// 0; false once it is stopped.
    pub async fn changed(&self, seen: &mut u64) -> bool {
        let mut standing = self.handle.office.standing.subscribe();
        let changed = standing.wait_for(|standing| standing.number != *seen || standing.over.is_some()).await;
        changed.is_ok_and(|standing| {
            *seen = standing.number;
            standing.over.is_none()
        })
    }

    /// The keys of `informer` that come to be this replica's own: whatever was not done while they were not.
    ///
    /// A controller that is [shared by](crate::Controller::shared_by) this has them called by itself. Who acts without one, on caches of
    /// its own, is given them as soon as they are gained, and its caches may lack what the one before has written.
    ///
    /// It ends when this is stopped, and does not keep it from that.
    pub fn gained<K: Kept>(&self, informer: &Informer<K>) -> impl Stream<Item = ObjectKey> + Send + use<K> {
        let informer = informer.clone();
        let keys = move || informer.snapshot().iter().map(|entry| entry.key().clone()).collect::<Vec<_>>();
        let looks = futures::stream::unfold(
            // Not the standing itself, whose term would count as held for as long as nobody polls this.
            (self.handle.office.standing.subscribe(), 0, Gains::default(), keys),
            |(mut standings, number, before, keys)| async move {
                let now = standings.wait_for(|now| now.number != number || now.over.is_some()).await.ok()?.clone();
                if now.over.is_some() {
                    return None;
                }
                // What was between is not known: anything may have been lost and gained again.
                let had = |key: &ObjectKey| now.number == number + 1 && before.own(key);
                let gained = |key: &ObjectKey| now.term_for(key).is_some() && !had(key);
                let gained: Vec<_> = keys().into_iter().filter(gained).collect();
                Some((futures::stream::iter(gained), (standings, now.number, now.gains, keys)))
            },
        );
        futures::StreamExt::flatten(looks)
    }

    /// What is gained is given out only when `catch_up`, begun afterwards, has ended: as long as what is returned is there.
    pub(crate) fn read_by(&self, catch_up: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Reader {
        let office = self.handle.office.clone();
        Reader { number: office.read(Arc::new(catch_up)), office }
    }

    /// Takes part no more: first nothing is sent any more by what is held, then the lease is released. Says whether it was, so that
    /// others may have the keys at once.
    ///
    /// Where something was sent to which no answer has come, the lease is released later, when the server has had the time to
    /// act on it, or is left to expire. So end the work first. It takes no longer than the lease would last; and where the runtime of
    /// the connection is gone, on which this would be done, it says at once that it was not.
    pub async fn stop(&self) -> bool {
        let office = &self.handle.office;
        office.stopping.send_replace(true);
        let mut standing = office.standing.subscribe();
        let over = standing.wait_for(|standing| standing.over.is_some()).await;
        over.ok().and_then(|standing| standing.over).unwrap_or(false)
    }
}

/// Somebody who reads caches, and acts by what they say.
pub(crate) struct Reader {
    number: u64,
    office: Arc<Office>,
}

impl Reader {
    /// It does so no more.
    pub(crate) fn end(&self) {
        self.office.read_no_more(self.number);
    }
}

impl fmt::Debug for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("namespace", &self.handle.office.namespace)
            .field("group", &self.handle.office.group)
            .field("identity", &self.handle.office.identity)
            .finish_non_exhaustive()
    }
}

/// A key that is a replica's own, for as long as this is there, at most until [lost](Self::lost).
///
/// Hold it for one piece of work: as long as it is there, a replica that has come anew waits for its keys.
pub struct Held {
    term: Arc<Term>,
}

impl Held {
    /// A client whose requests are sent while the key is this replica's own, or not at all: what
    /// [`Leader::client`](super::Leader::client) promises of the time for which one leads.
    pub fn client(&self) -> kube::Client {
        self.term.client.clone()
    }

    /// Whether something may be sent at this moment.
    pub fn is_held(&self) -> bool {
        self.term.fence.is_open()
    }

    /// Waits until nothing more is sent.
    pub async fn lost(&self) {
        self.term.fence.closed().await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}
