//! Several processes with one configuration: the election, the gate that is open for the leader only, and the published
//! state.
//!
//! Every replica watches and evaluates. The leader sends and writes, and once a second publishes the version up to
//! which each rule and sink is settled. A standby drops settled changes, and keeps the others pending for its own term.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use parking_lot::Mutex;
use steadfast::Connection;
use steadfast_controller::{Leader, LeaderElection};
use steadfast_notify::engine_event::EngineEvent;
use steadfast_notify::problem::Problem;
use steadfast_notify::{Plan, Replication, StateFolder, Supervised, Supervisor, Term, TermGate, TermKeeper};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::catch_up::{CatchUp, LeaseWatch};
use super::connections::connection;
use super::shared::{MAX_MEMORY_BYTES, Progress, PublishedState, SharedState};
use crate::console;
use crate::fleet::Fleet;

/// Interval between publications of the leader, and between reads of a standby.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// Delay between a failed attempt and the next one.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Timeout of a request for the lease.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(4);

/// Maximum time for releasing the lease on shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Function that returns the progress of this process.
pub(super) type ProgressSource = Arc<dyn Fn() -> Progress + Send + Sync>;

/// Function that connects to the cluster of the lease.
type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<Connection, String>> + Send + Sync>;

/// Role of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) is_leader: bool,
    /// Identity of this process in the lease.
    pub(super) identity: String,
    /// Identity of the holder of the lease, as last seen.
    pub(super) holder: Option<String>,
    /// Start of the role.
    pub(super) since: Instant,
    /// Failure of the lease or the shared state, if any.
    pub(super) failure: Option<String>,
    /// Set when the role was written to the state folder, where other commands read it.
    is_recorded: bool,
}

/// Handle of this process as one of several replicas.
pub(super) struct Replicas {
    replication: Replication,
    role: Arc<Mutex<Role>>,
    stop_signal: watch::Sender<bool>,
    task: Supervised,
    end_signal: watch::Receiver<bool>,
}

/// Term of a leader. The election determines its end with `CLOCK_BOOTTIME`, which includes suspends.
struct LeaderTerm(Leader);

impl Term for LeaderTerm {
    fn is_open(&self) -> bool {
        self.0.is_leader()
    }

    fn token(&self) -> u64 {
        self.0.fencing_token()
    }
}

/// Inputs of the replica task.
#[derive(Clone)]
struct ReplicaTask {
    plan: Arc<Plan>,
    connect: Connect,
    identity: Option<String>,
    replication: Replication,
    term_keeper: Arc<TermKeeper>,
    role: Arc<Mutex<Role>>,
    progress_source: ProgressSource,
    state: Option<Arc<StateFolder>>,
    stop_signal: watch::Receiver<bool>,
    end_signal: Arc<watch::Sender<bool>>,
}

impl Replicas {
    /// Starts the replica task, if the plan has replicas.
    pub(super) fn start(
        plan: &Arc<Plan>,
        fleet: Option<Arc<Fleet>>,
        identity: Option<String>,
        progress_source: ProgressSource,
        state: Option<Arc<StateFolder>>,
        supervisor: &Supervisor,
    ) -> Option<Self> {
        let cluster = plan.replicas_cluster().and_then(|name| plan.clusters.get(name)).cloned().unwrap_or_default();
        let shared_plan = plan.clone();
        let connect: Connect = Arc::new(move || {
            let (plan, cluster, fleet) = (shared_plan.clone(), cluster.clone(), fleet.clone());
            Box::pin(
                async move { connection(&plan, &cluster, fleet.as_deref()).await.map_err(|reason| reason.to_string()) },
            )
        });
        Self::start_with(plan, connect, identity, progress_source, state, supervisor)
    }

    fn start_with(
        plan: &Arc<Plan>,
        connect: Connect,
        identity: Option<String>,
        progress_source: ProgressSource,
        state: Option<Arc<StateFolder>>,
        supervisor: &Supervisor,
    ) -> Option<Self> {
        plan.replicas.as_ref()?;
        let (term_keeper, gate) = TermKeeper::new();
        let replication = Replication::new(gate);
        let role = Role {
            is_leader: false,
            identity: identity.clone().unwrap_or_default(),
            holder: None,
            since: Instant::now(),
            failure: None,
            is_recorded: false,
        };
        let (role, stop_signal, end_signal) =
            (Arc::new(Mutex::new(role)), watch::Sender::new(false), watch::Sender::new(false));
        let end_receiver = end_signal.subscribe();
        let replica_task = ReplicaTask {
            plan: plan.clone(),
            connect,
            identity,
            replication: replication.clone(),
            term_keeper: Arc::new(term_keeper),
            role: role.clone(),
            progress_source,
            state,
            stop_signal: stop_signal.subscribe(),
            end_signal: Arc::new(end_signal),
        };
        let task = supervisor.spawn("replicas", move || replica_task.clone().run());
        Some(Self { replication, role, stop_signal, task, end_signal: end_receiver })
    }

    /// Returns the shared view of the settled versions and the gate.
    pub(super) fn replication(&self) -> &Replication {
        &self.replication
    }

    /// Returns a function that returns the current role.
    pub(super) fn role(&self) -> Arc<dyn Fn() -> Role + Send + Sync> {
        let role = self.role.clone();
        Arc::new(move || role.lock().clone())
    }

    /// Publishes the settled versions and releases the lease, so that another replica takes over immediately.
    pub(super) async fn stop(mut self) {
        self.stop_signal.send_replace(true);
        // If the API server is unreachable, the lease expires without a release.
        let _ = timeout(RELEASE_TIMEOUT, self.end_signal.wait_for(|has_ended| *has_ended)).await;
        self.task.stop().await;
    }
}

/// Returns the instance name with which all replicas claim their marks in targets.
pub(super) fn shared_instance(plan: &Plan) -> Option<String> {
    let (replicas, cluster) = (plan.replicas.as_ref()?, plan.replicas_cluster()?);
    Some(format!("replicas:{cluster}:{}", replicas.lease))
}

/// Returns the gate of a process. Without replicas, the gate is always open.
pub(super) fn term_gate(replicas: Option<&Replicas>) -> TermGate {
    replicas.map_or_else(TermGate::always, |replicas| replicas.replication.gate().clone())
}

/// Returns holder and renewal time of a lease, or `None` without a holder.
fn lease_renewal(lease: Lease) -> Option<(String, Option<MicroTime>)> {
    let spec = lease.spec?;
    Some((spec.holder_identity.filter(|holder| !holder.is_empty())?, spec.renew_time))
}

/// Waits until the flag is set. Never returns if the sender was dropped.
async fn wait_until_set(flag: &mut watch::Receiver<bool>) {
    if flag.wait_for(|is_set| *is_set).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl ReplicaTask {
    async fn run(self) -> String {
        // A run that panicked may have left the gate open.
        self.term_keeper.close();
        let Some(replicas) = self.plan.replicas.clone() else { return std::future::pending().await };
        let (namespace, name) = replicas.namespace_and_name().unwrap_or_default();
        let connection = self.connect_with_retry().await;
        let mut stop_signal = self.stop_signal.clone();
        tokio::select! {
            biased;
            () = wait_until_set(&mut stop_signal) => {
                self.end_signal.send_replace(true);
                return std::future::pending().await;
            }
            () = self.wait_until_eligible(&connection, namespace, name, replicas.lease_duration.0) => {}
        }
        let mut builder = LeaderElection::builder(&connection, namespace, name)
            .lease_duration(replicas.lease_duration.0)
            .renew_deadline(replicas.renew_deadline.0)
            .retry_period(replicas.retry_period.0);
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        let election = match builder.start() {
            Ok(election) => election,
            Err(error) => return error.to_string(),
        };
        self.set_identity(election.identity());
        loop {
            // A request to stop comes first: no new term may start during the shutdown.
            let leader = tokio::select! {
                biased;
                () = wait_until_set(&mut stop_signal) => break,
                leader = election.until_leader() => leader,
                never = self.stand_by(&connection, &election, namespace, name) => match never {},
            };
            // A return makes the supervisor restart this task, which starts a new election.
            let Some(leader) = leader else { return "the election has ended".to_owned() };
            // The client of the leader is fenced: it sends nothing after the end of the term.
            let mut shared = SharedState::for_leader(leader.client(), namespace, name, leader.fencing_token());
            tokio::select! {
                biased;
                // This branch is polled first, so that nothing delays closing the gate after the loss of the lease.
                () = leader.until_lost() => {}
                never = self.lead(&leader, &mut shared) => match never {},
                () = wait_until_set(&mut stop_signal) => {
                    // After the final publication the next leader does not deliver settled changes again. The gate
                    // closes first, so that no delivery settles after the settled progress was read.
                    self.term_keeper.close();
                    let progress = (self.progress_source)();
                    let _ = timeout(RELEASE_TIMEOUT / 2, shared.publish(&progress, self.memory())).await;
                    break;
                }
            }
            self.term_keeper.close();
            self.set_role(false, election.holder());
            console::report(format_args!("standby: the term as the leader has ended; unsettled changes stay pending"));
        }
        self.term_keeper.close();
        // A final publication may have used the other half of the timeout.
        let _ = timeout(RELEASE_TIMEOUT / 2, election.stop()).await;
        // Never returns, because the supervisor would restart this task.
        self.end_signal.send_replace(true);
        std::future::pending().await
    }

    /// Connects to the cluster of the lease, with retries.
    async fn connect_with_retry(&self) -> Connection {
        loop {
            match (self.connect)().await {
                Ok(connection) => {
                    self.set_failure(None);
                    return connection;
                }
                Err(reason) => self.set_failure(Some(format!("the cluster of the lease: {reason}"))),
            }
            sleep(RETRY_DELAY).await;
        }
    }

    /// Waits until a replica with a new state folder may become the leader: the leader has settled all earlier
    /// deletions, or no replica leads.
    async fn wait_until_eligible(
        &self,
        connection: &Connection,
        namespace: &str,
        name: &str,
        lease_duration: Duration,
    ) {
        // A replica with an older state folder knows its pending deletions.
        let Some(state) = self.state.as_ref().filter(|state| state.is_new()) else { return };
        let has_streams = self.plan.rules.iter().any(|rule| self.plan.streams_of(&rule.config).next().is_some());
        let shared = SharedState::for_standby(connection.client(), namespace, name);
        let leases: Api<Lease> = Api::namespaced(connection.client(), namespace);
        let (mut catch_up, mut lease_watch, mut is_reported) = (CatchUp::default(), LeaseWatch::new(), false);
        let mut imported = String::new();
        loop {
            let published = shared.read().await;
            self.forward_approvals(&shared).await;
            // The time is taken before the request: a response that arrives after a freeze of the process is old.
            let read_at = Instant::now();
            let renewal = timeout(RENEWAL_TIMEOUT, leases.get_opt(name)).await;
            match (published, renewal) {
                // No leader has ever published anything, so no deletion can have been missed.
                (Ok(published), _) if published.term == 0 => break,
                (Ok(PublishedState { settled, memory, .. }), Ok(Ok(found))) => {
                    self.set_failure(self.import_memory(memory, &mut imported).await.err());
                    let reached = (self.progress_source)().reached;
                    let is_configured = |rule: &str, sink: &str| {
                        let rule = self.plan.rule(rule);
                        rule.is_some_and(|rule| self.plan.streams_of(&rule.config).any(|stream| stream == sink))
                    };
                    let has_caught_up = catch_up.has_caught_up(&reached, &settled, is_configured);
                    self.replication.set_settled(settled);
                    let renewal = found.and_then(lease_renewal);
                    self.set_role(false, renewal.as_ref().map(|(holder, _)| holder.clone()));
                    // Without streams, the plan has only mirrors, which compare their targets with the caches and need
                    // no settled deletions.
                    if has_caught_up || !has_streams {
                        break;
                    }
                    // The wait is twice the lease duration, so that a replica without this restriction can take the
                    // lease first.
                    if lease_watch.is_abandoned(read_at, renewal, lease_duration * 2) {
                        console::report(format_args!(
                            "standby: no replica leads; this replica may become the leader, although it does not know what was \
                             deleted shortly before its start"
                        ));
                        break;
                    }
                    if !std::mem::replace(&mut is_reported, true) {
                        console::report(format_args!(
                            "standby: the state folder is new; this replica may lead when the leader has settled everything up \
                             to its start"
                        ));
                    }
                }
                (Err(reason), _) => self.set_failure(Some(reason)),
                (_, Ok(Err(error))) => self.set_failure(Some(format!("the lease cannot be read: {error}"))),
                (_, Err(_)) => self.set_failure(Some("the lease cannot be read: no response".to_owned())),
            }
            sleep(PUBLISH_INTERVAL).await;
        }
        if let Err(error) = state.record_caught_up() {
            self.set_failure(Some(format!("the state folder: {error}")));
        }
    }

    /// Standby: reads the published state once a second.
    async fn stand_by(
        &self,
        connection: &Connection,
        election: &LeaderElection,
        namespace: &str,
        name: &str,
    ) -> std::convert::Infallible {
        let shared = SharedState::for_standby(connection.client(), namespace, name);
        let mut imported = String::new();
        loop {
            match shared.read().await {
                Ok(PublishedState { settled, memory, .. }) => {
                    self.replication.set_settled(settled);
                    self.set_failure(self.import_memory(memory, &mut imported).await.err());
                }
                Err(reason) => self.set_failure(Some(reason)),
            }
            self.forward_approvals(&shared).await;
            self.set_role(false, election.holder());
            sleep(PUBLISH_INTERVAL).await;
        }
    }

    /// Leader: takes over the shared state, opens the gate, and publishes the settled versions once a second.
    async fn lead(&self, leader: &Leader, shared: &mut SharedState) -> std::convert::Infallible {
        let has_predecessor = loop {
            match shared.take_over().await {
                Ok(PublishedState { settled, memory, term }) => {
                    self.replication.set_settled(settled);
                    // A failing disk does not prevent the replica from leading.
                    if let Err(reason) = self.import_memory(memory, &mut String::new()).await {
                        self.set_failure(Some(reason));
                    }
                    break term > 0;
                }
                Err(reason) => self.set_failure(Some(reason)),
            }
            sleep(RETRY_DELAY).await;
        };
        self.set_failure(None);
        // The gate opens only with the settled versions of the previous leader, so that no settled change is sent
        // twice.
        self.term_keeper.open(Arc::new(LeaderTerm(leader.clone())));
        let identity = self.role.lock().identity.clone();
        self.set_role(true, Some(identity));
        console::report(format_args!("leader: this replica sends and writes (term {})", leader.fencing_token()));
        if has_predecessor {
            for rule in (self.progress_source)().unrecorded_rules {
                console::report(format_args!(
                    "leader: the rule {rule} watches Secrets, which are never recorded: changes that the earlier leader has not \
                     sent are not sent"
                ));
            }
        }
        let mut taken_ids = BTreeSet::new();
        loop {
            let progress = (self.progress_source)();
            self.replication.remove_reached(&progress.settled);
            let published = match self.take_approvals(shared, &mut taken_ids).await {
                Ok(()) => shared.publish(&progress, self.memory()).await,
                Err(reason) => Err(reason),
            };
            self.set_failure(published.err());
            sleep(PUBLISH_INTERVAL).await;
        }
    }

    /// Standby: passes the approvals that were given to this replica to the leader. If no shared state exists yet, the
    /// approvals wait.
    async fn forward_approvals(&self, shared: &SharedState) {
        let Some(approvals) = self.state.as_ref().map(|state| state.approvals()) else { return };
        let forwarded = async {
            let pending = approvals.pending().map_err(|error| error.to_string())?;
            if pending.is_empty() || !shared.forward(&pending).await? {
                return Ok(());
            }
            for (mirror, ids) in &pending {
                // Withdrawn only after the write: a replica that ends in between forwards the approvals again, which
                // has no further effect.
                approvals.withdraw(mirror, ids).map_err(|error| error.to_string())?;
                let count = ids.len();
                console::report(format_args!("mirror {mirror}: forwarded {count} approvals to the leader"));
            }
            Ok::<(), String>(())
        };
        if let Err(reason) = forwarded.await {
            self.set_failure(Some(format!("approvals cannot be forwarded to the leader: {reason}")));
        }
    }

    /// Leader: passes forwarded approvals to the mirrors through the state folder. An approval stays in the shared
    /// state until a mirror has taken it, so that the approval survives a crash of this leader. `taken_ids` contains
    /// the approvals passed in this term.
    async fn take_approvals(
        &self,
        shared: &mut SharedState,
        taken_ids: &mut BTreeSet<(String, String)>,
    ) -> Result<(), String> {
        let Some(state) = &self.state else { return Ok(()) };
        let forwarded = shared.forwarded_approvals().await?.clone();
        if forwarded.is_empty() {
            return Ok(());
        }
        let (pending, approvals) = (state.mirror_memory().approvals(), state.approvals());
        let locally_pending = approvals.pending().map_err(|error| error.to_string())?;
        for (mirror, ids) in &forwarded {
            for id in ids {
                let is_pending =
                    pending.get(mirror).is_some_and(|requests| requests.iter().any(|request| request.id == *id));
                let is_already_taken = !taken_ids.insert((mirror.clone(), id.clone()));
                match (is_pending, is_already_taken) {
                    (true, false) => {
                        approvals.add(mirror, std::slice::from_ref(id)).map_err(|error| error.to_string())?;
                    }
                    (true, true) if locally_pending.get(mirror).is_some_and(|ids| ids.contains(id)) => {
                        // The mirror takes the approval within a second.
                    }
                    (_, true) => shared.settle_approval(mirror, id),
                    (false, false) => {
                        let reason = format!("no removal with the ID {id} needs approval");
                        console::report(EngineEvent::InvalidApproval { mirror: mirror.clone(), reason });
                        shared.settle_approval(mirror, id);
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores the memory of the leader's mirrors, if it differs from `imported`.
    async fn import_memory(&self, memory: String, imported: &mut String) -> Result<(), String> {
        let Some(state) = self.state.clone().filter(|_| memory != *imported) else { return Ok(()) };
        let text = memory.clone();
        let written = tokio::task::spawn_blocking(move || state.mirror_memory().import(&text)).await;
        written.map_err(|error| error.to_string())?.map_err(|error| format!("the memory of mirrors: {error}"))?;
        *imported = memory;
        Ok(())
    }

    fn memory(&self) -> String {
        self.state.as_ref().map(|state| state.mirror_memory().export(MAX_MEMORY_BYTES)).unwrap_or_default()
    }

    fn set_identity(&self, identity: &str) {
        identity.clone_into(&mut self.role.lock().identity);
    }

    fn set_role(&self, is_leader: bool, holder: Option<String>) {
        let mut role = self.role.lock();
        // A change of the holder alone does not start a new role.
        if role.is_leader != is_leader {
            role.since = Instant::now();
        }
        if role.is_leader == is_leader && role.holder == holder && role.is_recorded {
            return;
        }
        (role.is_leader, role.holder, role.is_recorded) = (is_leader, holder, true);
        // Commands such as `approve` read the role from the state folder.
        if let Some(state) = &self.state {
            if is_leader {
                state.record_leader();
            } else {
                state.record_standby(role.holder.as_deref());
            }
        }
    }

    /// Records a failure, and reports it if it is new.
    fn set_failure(&self, reason: Option<String>) {
        // The lock is released at the end of this statement, before the report.
        let before = std::mem::replace(&mut self.role.lock().failure, reason.clone());
        match reason {
            Some(reason) if before.as_ref() != Some(&reason) => {
                console::report(format_args!("replicas: {reason}; retried"));
            }
            None if before.is_some() => {
                console::report(format_args!("replicas: the lease and the shared state can be used again"));
            }
            _ => {}
        }
    }
}

/// Returns a problem if the durations of the plan are invalid for an election.
pub(super) fn timing_problem(plan: &Plan) -> Option<Problem> {
    let replicas = plan.replicas.as_ref()?;
    let timing = [replicas.lease_duration.0, replicas.renew_deadline.0, replicas.retry_period.0];
    let error = LeaderElection::check_durations(timing).err()?;
    let remedy = "correct `lease_duration`, `renew_deadline` or `retry_period`";
    Some(plan.problem_with_replicas(error.to_string(), remedy))
}

#[cfg(test)]
mod tests;
