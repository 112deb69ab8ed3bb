//! The injector records each request of a run, and injects the fault at the selected point.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_apiserver::{ApiServer, Change, Faults, InterceptAction, RequestRecord, RequestStage};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::request_fault::{RequestFault, RequestFaultKind, RequestPoint, RequestSender};
use crate::proxy::NetworkFaults;

/// Lag of the caches.
const CACHE_LAG: Duration = Duration::from_secs(10);

/// Time for which restarted processes receive outdated state. A candidate for a lease reads the lease for the first
/// time after 15 s, so this time must be longer.
const PAST_VIEW_DURATION: Duration = Duration::from_secs(30);

/// Maximum number of requests within one second. A run above this rate would never end, because virtual time does not
/// advance.
const MAX_REQUESTS_PER_SECOND: u32 = 10_000;

/// Time for which a process is blocked. It is longer than the default lease duration (15 s in client-go).
const PROCESS_STALL: Duration = Duration::from_secs(20);

/// Resource of leader election.
pub(super) const LEASES: &str = "leases";

/// Key of an object: its resource, its namespace and its name.
type WrittenObject = (String, Option<String>, String);

/// Observer of all requests of a run.
pub(super) struct SweepInjector {
    server: Weak<ApiServer>,
    fault: Option<RequestFault>,
    /// Notified if one of the controller's processes is killed.
    kill_signals: Vec<Notify>,
    /// Notified if the number of requests exceeds the limit.
    overrun: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of requests of each kind.
    counts: HashMap<RequestPoint, u32>,
    /// All points with their times, in order.
    points: Vec<(Duration, RequestPoint)>,
    /// The current second, and the number of requests in this second.
    current_second: (u64, u32),
    /// Point of each request in flight, by request number.
    in_flight: HashMap<u64, RequestPoint>,
    /// Networks of the running processes.
    networks: HashMap<usize, NetworkFaults>,
    /// Process that cannot renew its lease, and the end of this block.
    blocked_process: Option<(usize, Instant)>,
    has_injected: bool,
    /// End of the fault's effect.
    busy_until: Option<Instant>,
    gap: Option<Gap>,
}

/// Gap in the caches' view, between two writes of one object.
struct Gap {
    /// Request of the first write.
    request: u64,
    /// Object of that write. `None` until the server has processed the write.
    object: Option<WrittenObject>,
}

impl SweepInjector {
    /// Creates the injector of a run. Each of the `processes` uses the replica with its number, and the scenario uses
    /// the next one.
    pub(super) fn new(server: &Arc<ApiServer>, processes: usize, fault: Option<RequestFault>) -> Arc<Self> {
        let kill_signals = (0..processes).map(|_| Notify::new()).collect();
        let (weak_server, overrun) = (Arc::downgrade(server), Notify::new());
        let injector = Arc::new(Self { server: weak_server, fault, kill_signals, overrun, state: Mutex::default() });
        // The reference is weak: the server owns the closure, which must not keep the injector alive.
        let weak_injector = Arc::downgrade(&injector);
        server.faults().intercept(move |request, stage| {
            weak_injector.upgrade().map_or(InterceptAction::Continue, |injector| injector.decide(request, stage))
        });
        injector
    }

    /// Registers the network between a new process and its replica.
    pub(super) fn process_started(&self, process: usize, network: NetworkFaults) {
        self.with_state(|state| state.networks.insert(process, network));
    }

    /// Waits until `process` is killed.
    pub(super) async fn until_killed(&self, process: usize) {
        self.kill_signals[process].notified().await;
    }

    /// Removes the network of a process that ended or was killed.
    pub(super) fn process_ended(&self, process: usize) {
        self.with_state(|state| {
            state.networks.remove(&process);
            // The block of the lease ends with the process, because the next process must be able to renew it.
            state.blocked_process = state.blocked_process.filter(|(blocked_process, _)| *blocked_process != process);
        });
    }

    /// Waits until the number of requests exceeds the limit, and returns a message.
    pub(super) async fn overrun(&self) -> String {
        self.overrun.notified().await;
        let points = self.points();
        let last = points.last().map_or_else(String::new, |(at, point)| format!(", the last {point} after {at:?}"));
        format!("too many requests: {MAX_REQUESTS_PER_SECOND} within a second{last}")
    }

    /// Returns `true` while the fault is in effect.
    pub(super) fn is_busy(&self) -> bool {
        self.with_state(|state| state.busy_until.is_some_and(|until| Instant::now() < until))
    }

    /// Returns all points so far with their times, in order.
    pub(super) fn points(&self) -> Vec<(Duration, RequestPoint)> {
        self.with_state(|state| state.points.clone())
    }

    /// Returns `true` if the selected point was reached.
    pub(super) fn has_injected(&self) -> bool {
        self.with_state(|state| state.has_injected)
    }

    /// Makes the caches list again after a gap.
    pub(super) fn end_gap(&self) {
        let Some(server) = self.server.upgrade() else { return };
        if self.with_state(|state| state.gap.take()).is_none() {
            return;
        }
        each_replica(&server, self.kill_signals.len(), |faults| {
            faults.lag(false);
            // Without the events in its window, the server cannot resume the watches.
            faults.expire_events();
            faults.end_watches();
        });
    }

    fn decide(&self, request: &RequestRecord, stage: RequestStage) -> InterceptAction {
        let Some(server) = self.server.upgrade() else { return InterceptAction::Continue };
        let is_process = request.replica < self.kill_signals.len();
        // Requests of a killed process can still be in the server. They must have no effect after the kill.
        let is_dead = is_process && self.with_state(|state| !state.networks.contains_key(&request.replica));
        if is_dead {
            // The killed process cannot have sent this request.
            return InterceptAction::Reset;
        }
        let sender = if is_process { RequestSender::Controller } else { RequestSender::Scenario };
        let point = match stage {
            // The request is counted before the server processes it, so that cancelled requests have an ordinal too.
            RequestStage::Arrived => {
                Some(self.count_request(RequestPoint::without_ordinal(sender, request), request, server.elapsed()))
            }
            RequestStage::Processed => self.with_state(|state| state.in_flight.remove(&request.id)),
        };
        let Some(point) = point else { return InterceptAction::Continue };
        let blocked_process =
            self.with_state(|state| state.blocked_process.filter(|(process, _)| *process == request.replica));
        if let Some((_, until)) = blocked_process
            && stage == RequestStage::Arrived
            && point.is_of(LEASES)
        {
            // The renewal waits until the block ends. By then another process may hold the lease.
            return InterceptAction::Delay(until.saturating_duration_since(Instant::now()));
        }
        let matching_fault = self.fault.as_ref().filter(|fault| fault.point == point);
        let action = matching_fault
            .map_or(InterceptAction::Continue, |fault| self.inject_fault(&server, fault.kind, request, stage));
        // Only a later write can end the gap, not the write that opened it.
        if stage == RequestStage::Processed && matching_fault.is_none() && point.is_write() {
            self.close_gap(&server, request.id);
        }
        action
    }

    fn count_request(&self, kind: RequestPoint, request: &RequestRecord, at: Duration) -> RequestPoint {
        self.with_state(|state| {
            let count = state.counts.entry(kind.clone()).or_default();
            *count += 1;
            let point = RequestPoint { ordinal: *count, ..kind };
            state.points.push((at, point.clone()));
            let (second, count) = state.current_second;
            state.current_second = if second == at.as_secs() { (second, count + 1) } else { (at.as_secs(), 1) };
            // The task is notified once, at the exact limit. If no task is waiting yet, the permit is stored.
            if state.current_second.1 == MAX_REQUESTS_PER_SECOND {
                self.overrun.notify_one();
            }
            state.in_flight.insert(request.id, point.clone());
            point
        })
    }

    fn inject_fault(
        &self,
        server: &Arc<ApiServer>,
        kind: RequestFaultKind,
        request: &RequestRecord,
        stage: RequestStage,
    ) -> InterceptAction {
        // A fault after the request is injected once the server has processed the request. If the client cancels the
        // request before, no fault is injected.
        let takes_effect = match kind {
            RequestFaultKind::Delayed | RequestFaultKind::CrashBefore | RequestFaultKind::LeadershipLost => {
                stage == RequestStage::Arrived
            }
            RequestFaultKind::Unobserved
            | RequestFaultKind::ResponseLost
            | RequestFaultKind::CrashAfter
            | RequestFaultKind::CrashThenStaleView => stage == RequestStage::Processed,
        };
        if takes_effect {
            self.with_state(|state| state.has_injected = true);
        }
        match (kind, stage) {
            (RequestFaultKind::Delayed, RequestStage::Arrived) => self.lag_for(server, CACHE_LAG),
            (RequestFaultKind::Unobserved, RequestStage::Arrived) => {
                // The caches start to lag before the write, so that they receive no event of the write.
                self.with_state(|state| state.gap = Some(Gap { request: request.id, object: None }));
                each_replica(server, self.kill_signals.len(), |faults| faults.lag(true));
            }
            (RequestFaultKind::Unobserved, RequestStage::Processed) => self.open_gap(server, request.id),
            // The lag starts before the write and outlasts the crash, so that the restarted process reads outdated
            // state.
            (RequestFaultKind::CrashThenStaleView, RequestStage::Arrived) => self.lag_for(server, PAST_VIEW_DURATION),
            (RequestFaultKind::ResponseLost, RequestStage::Processed) => return InterceptAction::Reset,
            (RequestFaultKind::CrashBefore, RequestStage::Arrived)
            | (RequestFaultKind::CrashAfter | RequestFaultKind::CrashThenStaleView, RequestStage::Processed) => {
                return self.kill(request.replica);
            }
            (RequestFaultKind::LeadershipLost, RequestStage::Arrived) => {
                let until = Instant::now() + PROCESS_STALL;
                self.with_state(|state| {
                    state.blocked_process = Some((request.replica, until));
                    state.busy_until = Some(until);
                });
                return InterceptAction::Delay(PROCESS_STALL);
            }
            _ => {}
        }
        InterceptAction::Continue
    }

    /// Kills the process of a replica. Requests that the process has not sent yet are dropped.
    fn kill(&self, process: usize) -> InterceptAction {
        // A map entry exists while the process is alive, so the second of two concurrent kills finds no entry.
        if let Some(network) = self.with_state(|state| state.networks.remove(&process)) {
            network.cut();
            self.kill_signals[process].notify_one();
        }
        InterceptAction::Reset
    }

    /// Hides changes from the caches for this time.
    fn lag_for(&self, server: &Arc<ApiServer>, lag: Duration) {
        let processes = self.kill_signals.len();
        each_replica(server, processes, |faults| faults.lag(true));
        self.with_state(|state| state.busy_until = Some(Instant::now() + lag));
        let server = Arc::downgrade(server);
        tokio::spawn(async move {
            sleep(lag).await;
            if let Some(server) = server.upgrade() {
                each_replica(&server, processes, |faults| faults.lag(false));
            }
        });
    }

    /// Connects the gap with the object that the request has written. Ends the gap if the request wrote nothing.
    fn open_gap(&self, server: &Arc<ApiServer>, request: u64) {
        let history = server.history();
        let written_object =
            history.changes.iter().rfind(|change| change.request == Some(request)).map(|change| object_of(change));
        if written_object.is_none() {
            // A request that writes nothing opens no gap, so the fault counts as not reached.
            self.with_state(|state| state.has_injected = false);
            return self.end_gap();
        }
        self.with_state(|state| {
            if let Some(gap) = &mut state.gap {
                gap.object = written_object;
            }
        });
    }

    /// Ends the gap if a request has written the object again.
    fn close_gap(&self, server: &Arc<ApiServer>, request: u64) {
        // Without an object, the first write has not been processed yet, so no later write can be compared.
        let Some(object) =
            self.with_state(|state| state.gap.as_ref().filter(|gap| gap.request != request)?.object.clone())
        else {
            return;
        };
        let history = server.history();
        if history.changes.iter().any(|change| change.request == Some(request) && object_of(change) == object) {
            self.end_gap();
        }
    }

    fn with_state<T>(&self, access: impl FnOnce(&mut State) -> T) -> T {
        access(&mut self.state.lock())
    }
}

fn object_of(change: &Change) -> WrittenObject {
    (change.resource.to_string(), change.namespace.clone(), change.name.clone())
}

/// Switches faults of the replicas of the first `processes` processes.
fn each_replica(server: &ApiServer, processes: usize, switch: impl Fn(&Faults)) {
    (0..processes).for_each(|process| switch(&server.faults().replica(process)));
}
