//! Who is asked at each request of a play, records it, and disturbs the one that is to be disturbed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use steadfast_apiserver::{ApiServer, Change, Fate, Faults, Moment, RequestRecord};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::disturbance::{Disturbance, Kind, Point, Whose};
use crate::proxy::NetworkFaults;

/// By how much caches are behind.
const BEHIND: Duration = Duration::from_secs(10);

/// For how long they show the past to who begins anew: who has to win a lease first looks at them after 15 s.
const PAST: Duration = Duration::from_secs(30);

/// So many requests within a second are too many: what goes on like that without time passing would never end.
const TOO_MANY: u32 = 10_000;

/// For how long a process stands still: longer than a lease lasts unless it is said otherwise (15 s in client-go).
const STANDS_STILL: Duration = Duration::from_secs(20);

/// What leadership is won by.
pub(super) const LEASES: &str = "leases";

/// An object: its resource, its namespace and its name.
type Written = (String, Option<String>, String);

/// Sees all requests of a play.
pub(super) struct Director {
    server: Weak<ApiServer>,
    disturbance: Option<Disturbance>,
    /// Raised when one of the controller's processes is killed.
    killed: Vec<Notify>,
    /// Raised where there are too many requests.
    overrun: Notify,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many of each kind there were.
    counts: HashMap<Point, u32>,
    /// All points, in order, with when they were reached.
    points: Vec<(Duration, Point)>,
    /// How many requests there were within which second.
    within: (u64, u32),
    /// Which point the request of that number is.
    under_way: HashMap<u64, Point>,
    /// The networks of the processes that live.
    networks: HashMap<usize, NetworkFaults>,
    /// The process whose lease is not renewed, and until when.
    leaseless: Option<(usize, Instant)>,
    reached: bool,
    /// Until when what is disturbed lasts.
    busy_until: Option<Instant>,
    gap: Option<Gap>,
}

/// From one write to the next of the same object, caches see nothing.
struct Gap {
    /// The request that has written first.
    request: u64,
    /// Its object; `None` while the server is about to act on it.
    object: Option<Written>,
}

impl Director {
    /// For a play of `processes`, each of which has the replica of its number; the scenario has the one after them.
    pub(super) fn new(server: &Arc<ApiServer>, processes: usize, disturbance: Option<Disturbance>) -> Arc<Self> {
        let killed = (0..processes).map(|_| Notify::new()).collect();
        let (server_of, overrun) = (Arc::downgrade(server), Notify::new());
        let director = Arc::new(Self { server: server_of, disturbance, killed, overrun, state: Mutex::default() });
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
        self.killed[process].notified().await;
    }

    /// A process has ended, by itself or not.
    pub(super) fn ended(&self, process: usize) {
        self.look(|state| {
            state.networks.remove(&process);
            state.leaseless = state.leaseless.filter(|(leaseless, _)| *leaseless != process);
        });
    }

    /// Waits until there are too many requests, and says so.
    pub(super) async fn overrun(&self) -> String {
        self.overrun.notified().await;
        let points = self.points();
        let last = points.last().map_or_else(String::new, |(at, point)| format!(", the last {point} after {at:?}"));
        format!("there is no end of requests: {TOO_MANY} within a second{last}")
    }

    /// Whether what is disturbed still lasts.
    pub(super) fn is_busy(&self) -> bool {
        self.look(|state| state.busy_until.is_some_and(|until| Instant::now() < until))
    }

    /// All points so far, in order, each with its time.
    pub(super) fn points(&self) -> Vec<(Duration, Point)> {
        self.look(|state| state.points.clone())
    }

    /// Whether the point that is to be disturbed has been reached.
    pub(super) fn has_disturbed(&self) -> bool {
        self.look(|state| state.reached)
    }

    /// Caches that are cut off list again.
    pub(super) fn end_gap(&self) {
        let Some(server) = self.server.upgrade() else { return };
        if self.look(|state| state.gap.take()).is_none() {
            return;
        }
        each_replica(&server, self.killed.len(), |faults| {
            faults.lag(false);
            // What they have missed is not to be had any more.
            faults.expire_events();
            faults.end_watches();
        });
    }

    fn decide(&self, request: &RequestRecord, moment: Moment) -> Fate {
        let Some(server) = self.server.upgrade() else { return Fate::Goes };
        let is_process = request.replica < self.killed.len();
        let is_dead = is_process && self.look(|state| !state.networks.contains_key(&request.replica));
        if is_dead {
            // Its last words, which nobody has sent.
            return Fate::Lost;
        }
        let whose = if is_process { Whose::Controller } else { Whose::Scenario };
        let point = match moment {
            Moment::Before => Some(self.count(Point::kind_of(whose, request), request, server.elapsed())),
            Moment::After => self.look(|state| state.under_way.remove(&request.id)),
        };
        let Some(point) = point else { return Fate::Goes };
        let leaseless = self.look(|state| state.leaseless.filter(|(process, _)| *process == request.replica));
        if let Some((_, until)) = leaseless
            && moment == Moment::Before
            && point.is_of(LEASES)
        {
            return Fate::Waits(until.saturating_duration_since(Instant::now()));
        }
        let disturbed = self.disturbance.as_ref().filter(|disturbance| disturbance.point == point);
        let fate = disturbed.map_or(Fate::Goes, |disturbance| self.disturb(&server, disturbance.kind, request, moment));
        if moment == Moment::After && disturbed.is_none() && point.is_write() {
            self.close_gap(&server, request.id);
        }
        fate
    }

    fn count(&self, kind: Point, request: &RequestRecord, at: Duration) -> Point {
        self.look(|state| {
            let count = state.counts.entry(kind.clone()).or_default();
            *count += 1;
            let point = Point { ordinal: *count, ..kind };
            state.points.push((at, point.clone()));
            let (second, count) = state.within;
            state.within = if second == at.as_secs() { (second, count + 1) } else { (at.as_secs(), 1) };
            if state.within.1 == TOO_MANY {
                self.overrun.notify_one();
            }
            state.under_way.insert(request.id, point.clone());
            point
        })
    }

    fn disturb(&self, server: &Arc<ApiServer>, kind: Kind, request: &RequestRecord, moment: Moment) -> Fate {
        // What is done after the request is done where it comes to that; it does not where its client gives up before.
        let is_now = match kind {
            Kind::Delayed | Kind::CrashBefore | Kind::LeadershipLost => moment == Moment::Before,
            Kind::Unobserved | Kind::AnswerLost | Kind::CrashAfter | Kind::CrashIntoThePast => moment == Moment::After,
        };
        if is_now {
            self.look(|state| state.reached = true);
        }
        match (kind, moment) {
            (Kind::Delayed, Moment::Before) => self.lag_for(server, BEHIND),
            (Kind::Unobserved, Moment::Before) => {
                self.look(|state| state.gap = Some(Gap { request: request.id, object: None }));
                each_replica(server, self.killed.len(), |faults| faults.lag(true));
            }
            (Kind::Unobserved, Moment::After) => self.open_gap(server, request.id),
            (Kind::CrashIntoThePast, Moment::Before) => self.lag_for(server, PAST),
            (Kind::AnswerLost, Moment::After) => return Fate::Lost,
            (Kind::CrashBefore, Moment::Before) | (Kind::CrashAfter | Kind::CrashIntoThePast, Moment::After) => {
                return self.kill(request.replica);
            }
            (Kind::LeadershipLost, Moment::Before) => {
                let until = Instant::now() + STANDS_STILL;
                self.look(|state| {
                    state.leaseless = Some((request.replica, until));
                    state.busy_until = Some(until);
                });
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
            self.killed[process].notify_one();
        }
        Fate::Lost
    }

    /// Has caches see nothing for so long.
    fn lag_for(&self, server: &Arc<ApiServer>, lag: Duration) {
        let processes = self.killed.len();
        each_replica(server, processes, |faults| faults.lag(true));
        self.look(|state| state.busy_until = Some(Instant::now() + lag));
        let server = Arc::downgrade(server);
        tokio::spawn(async move {
            sleep(lag).await;
            if let Some(server) = server.upgrade() {
                each_replica(&server, processes, |faults| faults.lag(false));
            }
        });
    }

    /// The gap is one of the object that the request has written; there is none where it has written nothing.
    fn open_gap(&self, server: &Arc<ApiServer>, request: u64) {
        let history = server.history();
        let written =
            history.changes.iter().rfind(|change| change.request == Some(request)).map(|change| key_of(change));
        if written.is_none() {
            self.look(|state| state.reached = false);
            return self.end_gap();
        }
        self.look(|state| {
            if let Some(gap) = &mut state.gap {
                gap.object = written;
            }
        });
    }

    /// Ends the gap where a request has written the object once more.
    fn close_gap(&self, server: &Arc<ApiServer>, request: u64) {
        let Some(object) = self.look(|state| state.gap.as_ref().filter(|gap| gap.request != request)?.object.clone())
        else {
            return;
        };
        let history = server.history();
        if history.changes.iter().any(|change| change.request == Some(request) && key_of(change) == object) {
            self.end_gap();
        }
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn key_of(change: &Change) -> Written {
    (change.resource.to_string(), change.namespace.clone(), change.name.clone())
}

/// Switches faults of the replicas that so many processes of the controller have.
fn each_replica(server: &ApiServer, processes: usize, switch: impl Fn(&Faults)) {
    (0..processes).for_each(|process| switch(&server.faults().replica(process)));
}
