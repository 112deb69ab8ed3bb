//! Who is asked at each request of a play, records it, and disturbs the one that is to be disturbed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use steadfast_apiserver::{ApiServer, Fate, Moment, RequestRecord};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::disturbance::{Disturbance, Kind, Point, Whose};
use crate::proxy::NetworkFaults;

/// By how much caches are behind.
const BEHIND: Duration = Duration::from_secs(10);

/// For how long a process stands still: longer than a lease lasts unless it is said otherwise (15 s in client-go).
const STANDS_STILL: Duration = Duration::from_secs(20);

/// What leadership is won by.
pub(super) const LEASES: &str = "leases";

/// The request of which something is made, in its play.
type ObjectKey = (String, Option<String>, String);

/// Sees all requests of a play.
pub(super) struct Director {
    server: Weak<ApiServer>,
    disturbance: Option<Disturbance>,
    processes: Vec<Process>,
    state: Mutex<State>,
}

/// One process of the controller, as seen from outside.
#[derive(Default)]
struct Process {
    /// Raised when it is killed.
    killed: Notify,
}

#[derive(Default)]
struct State {
    /// How many of each kind there were.
    counts: HashMap<Point, u32>,
    /// All points, in order, with when they were reached.
    points: Vec<(Duration, Point)>,
    /// Which point the request of that number is.
    under_way: HashMap<u64, Point>,
    /// The networks of the processes that live.
    networks: HashMap<usize, NetworkFaults>,
    /// The process whose lease is not renewed.
    leaseless: Option<usize>,
    reached: bool,
    gap: Option<Gap>,
}

/// From one write to the next of the same object, caches see nothing.
struct Gap {
    since: u64,
    object: Option<ObjectKey>,
}

impl Director {
    /// For a play of `processes`, each of which has the replica of its number; the scenario has the one after them.
    pub(super) fn new(server: &Arc<ApiServer>, processes: usize, disturbance: Option<Disturbance>) -> Arc<Self> {
        let processes = (0..processes).map(|_| Process::default()).collect();
        let director = Self { server: Arc::downgrade(server), disturbance, processes, state: Mutex::default() };
        let director = Arc::new(director);
        let asked = Arc::downgrade(&director);
        server.faults().intercept(move |request, moment| {
            asked.upgrade().map_or(Fate::Goes, |director| director.decide(request, moment))
        });
        director
    }

    /// A process begins, with this network between it and its replica.
    pub(super) fn begins(&self, process: usize, network: NetworkFaults) {
        self.look(|state| state.networks.insert(process, network));
    }

    /// Waits until a process is killed.
    pub(super) async fn killed(&self, process: usize) {
        self.processes[process].killed.notified().await;
    }

    /// A process has ended, by itself or not.
    pub(super) fn ended(&self, process: usize) {
        self.look(|state| {
            state.networks.remove(&process);
            state.leaseless = state.leaseless.filter(|leaseless| *leaseless != process);
        });
    }

    /// All points so far, in order, each with its time.
    pub(super) fn points(&self) -> Vec<(Duration, Point)> {
        self.look(|state| state.points.clone())
    }

    /// Whether the point that is to be disturbed has been reached.
    pub(super) fn has_disturbed(&self) -> bool {
        self.look(|state| state.reached)
    }

    /// Whether caches are cut off.
    pub(super) fn has_gap(&self) -> bool {
        self.look(|state| state.gap.is_some())
    }

    /// Caches that are cut off list again.
    pub(super) fn end_gap(&self) {
        let Some(server) = self.server.upgrade() else { return };
        if self.look(|state| state.gap.take()).is_none() {
            return;
        }
        for process in 0..self.processes.len() {
            let faults = server.faults().replica(process);
            faults.lag(false);
            // What they have missed is not to be had any more.
            faults.expire_events();
            faults.end_watches();
        }
    }

    fn decide(self: &Arc<Self>, request: &RequestRecord, moment: Moment) -> Fate {
        let Some(server) = self.server.upgrade() else { return Fate::Goes };
        let is_process = request.replica < self.processes.len();
        let is_dead = is_process && self.look(|state| !state.networks.contains_key(&request.replica));
        if is_dead {
            // Its last words, which nobody has sent.
            return Fate::Lost;
        }
        let whose = if is_process { Whose::Controller } else { Whose::Scenario };
        let point = match moment {
            Moment::Before => self.count(Point::kind_of(whose, request), request, server.elapsed()),
            Moment::After => self.look(|state| state.under_way.remove(&request.id)),
        };
        let Some(point) = point else { return Fate::Goes };
        let is_cut_off = self.look(|state| state.leaseless == Some(request.replica));
        if is_cut_off && moment == Moment::Before && point.is_of(LEASES) {
            return Fate::Waits(STANDS_STILL);
        }
        let disturbed = self.disturbance.as_ref().filter(|disturbance| disturbance.point == point);
        let fate = disturbed.map_or(Fate::Goes, |disturbance| self.disturb(&server, disturbance.kind, request, moment));
        if moment == Moment::After && point.is_write() {
            self.close_gap_of(&server);
        }
        fate
    }

    fn count(&self, kind: Point, request: &RequestRecord, at: Duration) -> Option<Point> {
        self.look(|state| {
            let count = state.counts.entry(kind.clone()).or_default();
            *count += 1;
            let point = Point { ordinal: *count, ..kind };
            state.points.push((at, point.clone()));
            state.under_way.insert(request.id, point.clone());
            Some(point)
        })
    }

    fn disturb(self: &Arc<Self>, server: &Arc<ApiServer>, kind: Kind, request: &RequestRecord, moment: Moment) -> Fate {
        self.look(|state| state.reached = true);
        match (kind, moment) {
            (Kind::Delayed, Moment::Before) => {
                self.each_replica(server, |faults| faults.lag(true));
                self.catch_up_later(server);
            }
            (Kind::Unobserved, Moment::Before) => {
                self.look(|state| state.gap = Some(Gap { since: server.revision(), object: None }));
                self.each_replica(server, |faults| faults.lag(true));
            }
            (Kind::CrashIntoThePast, Moment::Before) => server.faults().replica(request.replica).lag(true),
            (Kind::AnswerLost, Moment::After) => return Fate::Lost,
            (Kind::CrashBefore, Moment::Before) | (Kind::CrashAfter, Moment::After) => {
                return self.kill(request.replica);
            }
            (Kind::CrashIntoThePast, Moment::After) => {
                self.catch_up_later(server);
                return self.kill(request.replica);
            }
            (Kind::LeadershipLost, Moment::Before) => {
                self.look(|state| state.leaseless = Some(request.replica));
                self.renew_later(request.replica);
                return Fate::Waits(STANDS_STILL);
            }
            _ => {}
        }
        Fate::Goes
    }

    /// Kills the process of a replica: whatever it has not sent is never sent.
    fn kill(&self, process: usize) -> Fate {
        if let Some(network) = self.look(|state| state.networks.remove(&process)) {
            network.cut();
            self.processes[process].killed.notify_one();
        }
        Fate::Lost
    }

    fn catch_up_later(&self, server: &Arc<ApiServer>) {
        let (server, processes) = (Arc::downgrade(server), self.processes.len());
        tokio::spawn(async move {
            sleep(BEHIND).await;
            if let Some(server) = server.upgrade() {
                (0..processes).for_each(|process| server.faults().replica(process).lag(false));
            }
        });
    }

    fn renew_later(self: &Arc<Self>, process: usize) {
        let director = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep(STANDS_STILL).await;
            if let Some(director) = director.upgrade() {
                director.look(|state| state.leaseless = state.leaseless.filter(|leaseless| *leaseless != process));
            }
        });
    }

    /// Ends the gap where the object it began with has been written once more.
    fn close_gap_of(&self, server: &Arc<ApiServer>) {
        if !self.has_gap() {
            return;
        }
        let history = server.history();
        let is_over = self.look(|state| {
            let Some(gap) = &mut state.gap else { return false };
            let mut since = history.changes.iter().filter(|change| change.revision > gap.since);
            let key = |change: &steadfast_apiserver::Change| {
                (change.resource.to_string(), change.namespace.clone(), change.name.clone())
            };
            let Some(first) = since.next() else { return true };
            let object = gap.object.get_or_insert_with(|| key(first));
            since.any(|change| key(change) == *object)
        });
        if is_over {
            self.end_gap();
        }
    }

    fn each_replica(&self, server: &Arc<ApiServer>, switch: impl Fn(&steadfast_apiserver::Faults)) {
        (0..self.processes.len()).for_each(|process| switch(&server.faults().replica(process)));
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
