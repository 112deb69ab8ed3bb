//! Embedded API server with faults, for tests.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::{Value, json};
use steadfast_apiserver::{
    ApiServer, Faults, InjectedResponse, ObjectCorruption, RequestRule, ResourceDeclaration, Status, Verb,
};
use steadfast_contract::{Report, Trace};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::finalization;
use crate::object::json_of;
use crate::process::ProcessBound;
use crate::stream::seconds_to_duration;

/// Nesting depth beyond the limit of decoders. Fields of a wrong type would not suffice: objects have no fixed fields
/// here.
const UNDECODABLE_DEPTH: usize = 500;

/// Annotation that `churn` changes.
const CHURN_ANNOTATION: &str = "steadfast-kube/churn";

/// Maximum number of changes between two checks for signals.
const CHURN_BATCH: u64 = 100;

/// Pause of `churn` while it is ahead of its rate.
const CHURN_PAUSE: Duration = Duration::from_millis(1);

/// Embedded API server on a thread of its own.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Server {
    running: ProcessBound<Mutex<Option<RunningServer>>>,
    /// URL and kubeconfig of each replica, which a forked child can use too.
    addresses: Vec<(String, String)>,
}

struct RunningServer {
    server: ApiServer,
    handle: Handle,
    _stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (replicas=1, tls=false, protobuf=false, bookmark_period=60.0, tokens=Vec::new(), resources=Vec::new()))]
    fn new(
        py: Python<'_>,
        replicas: usize,
        tls: bool,
        protobuf: bool,
        bookmark_period: f64,
        tokens: Vec<String>,
        resources: Vec<(String, String, String, String, bool)>,
    ) -> PyResult<Self> {
        let mut builder = ApiServer::builder().replicas(replicas).tls(tls).protobuf(protobuf);
        builder = builder.bookmark_period(seconds_to_duration(bookmark_period));
        for token in &tokens {
            builder = builder.token(token);
        }
        for (group, version, kind, plural, namespaced) in &resources {
            let declare =
                if *namespaced { ResourceDeclaration::namespaced } else { ResourceDeclaration::cluster_scoped };
            builder = builder.resource(declare(group, version, kind, plural));
        }
        let (stop_sender, stop_receiver) = oneshot::channel::<()>();
        let (start_sender, start_receiver) = mpsc::channel();
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(start_sender.send(Err(error.to_string()))),
            };
            let server = runtime.block_on(builder.start()).map_err(|error| error.to_string());
            let handle = runtime.handle().clone();
            drop(start_sender.send(server.map(|server| (server, handle))));
            // Ends when the sender is dropped.
            let _ = runtime.block_on(stop_receiver);
        };
        let thread = std::thread::Builder::new().name("steadfast-server".to_owned()).spawn(run)?;
        let (server, handle) = finalization::detach(py, move || start_receiver.recv())
            .unwrap_or_else(|_| Err("its thread has ended".to_owned()))
            .map_err(|error| PyRuntimeError::new_err(format!("cannot start the embedded server: {error}")))?;
        let addresses = (0..replicas).map(|replica| (server.url(replica), server.kubeconfig_of(replica))).collect();
        let running = RunningServer { server, handle, _stop: stop_sender, thread };
        Ok(Self { running: ProcessBound::new(Mutex::new(Some(running))), addresses })
    }

    /// Stops the server and waits for its thread. Has no effect in a forked child, which may leave a block of its parent.
    fn close(&self, py: Python<'_>) {
        let Some(running) = self.running.get_own() else { return };
        finalization::detach(py, || {
            let running = running.lock().take();
            if let Some(RunningServer { server, handle, _stop: stop, thread }) = running {
                let guard = handle.enter();
                server.stop();
                drop(guard);
                drop(stop);
                drop(thread.join());
            }
        });
    }

    fn url(&self, replica: usize) -> PyResult<&str> {
        Ok(&self.address(replica)?.0)
    }

    fn kubeconfig(&self, replica: usize) -> PyResult<&str> {
        Ok(&self.address(replica)?.1)
    }

    fn create(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
        let object = value(object)?;
        self.object_json(py, move |server| server.create(&object))
    }

    fn replace(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<String> {
        let object = value(object)?;
        self.object_json(py, move |server| server.replace(&object))
    }

    fn patch(
        &self,
        py: Python<'_>,
        resource: &str,
        namespace: &str,
        name: &str,
        patch: &Bound<'_, PyAny>,
    ) -> PyResult<String> {
        let patch = value(patch)?;
        self.object_json(py, move |server| server.merge_patch(resource, namespace, name, patch))
    }

    fn delete(&self, py: Python<'_>, resource: &str, namespace: &str, name: &str) -> PyResult<String> {
        self.object_json(py, move |server| server.delete_named(resource, namespace, name))
    }

    fn get(&self, py: Python<'_>, resource: &str, namespace: &str, name: &str) -> PyResult<String> {
        self.object_json(py, move |server| server.get(resource, namespace, name))
    }

    /// Changes an annotation of the objects of a resource in turn, at most `rate` changes a second.
    #[allow(clippy::cast_sign_loss, reason = "a rate and a duration are not negative")]
    fn churn(&self, py: Python<'_>, resource: &str, count: u64, rate: Option<f64>) -> PyResult<u64> {
        let mut keys = self.with_server(py, |server| Ok(live_keys(server, resource)))?;
        let rate = rate.filter(|rate| *rate > 0.0);
        let start = Instant::now();
        let mut number = 0;
        while number < count {
            let allowed = rate.map_or(u64::MAX, |rate| (start.elapsed().as_secs_f64() * rate) as u64 + 1);
            let end = count.min(allowed).min(number + CHURN_BATCH);
            if end <= number {
                finalization::detach(py, || std::thread::sleep(CHURN_PAUSE));
            }
            self.with_server(py, |server| {
                while number < end {
                    let Some(index) = (number as usize).checked_rem(keys.len()) else {
                        return Err(PyValueError::new_err(format!("the server has no {resource} to change")));
                    };
                    let (namespace, name) = &keys[index];
                    let patch = json!({"metadata": {"annotations": {CHURN_ANNOTATION: number.to_string()}}});
                    match server.merge_patch(resource, namespace, name, patch) {
                        Ok(_) => number += 1,
                        // Deleted in the meantime.
                        Err(status) if status.code == 404 => drop(keys.swap_remove(index)),
                        Err(status) => return Err(PyValueError::new_err(status.to_string())),
                    }
                }
                Ok(())
            })?;
            // Ctrl-C ends a long run.
            py.check_signals()?;
        }
        Ok(number)
    }

    /// Removes all changes but the newest from the history.
    fn forget_history(&self, py: Python<'_>, keep: usize) -> PyResult<()> {
        self.with_server(py, move |server| {
            server.forget_history(keep);
            Ok(())
        })
    }

    /// Number of connections that clients have opened so far.
    #[getter]
    fn connections(&self, py: Python<'_>) -> PyResult<usize> {
        self.with_server(py, |server| Ok(server.connections().len()))
    }

    /// Removes the old events, so that watches from older versions expire.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.with_server(py, |server| {
            server.compact();
            Ok(())
        })
    }

    #[getter]
    fn revision(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_server(py, |server| Ok(server.revision()))
    }

    fn open_watches(&self, py: Python<'_>, replica: usize) -> PyResult<usize> {
        self.with_server(py, move |server| Ok(server.open_watches(check_replica(server, replica)?)))
    }

    /// `(verb, path, query, status, time)` of each request.
    #[allow(clippy::type_complexity, reason = "one tuple for each request, which the Python part names")]
    fn requests(&self, py: Python<'_>) -> PyResult<Vec<(String, String, String, Option<u16>, f64)>> {
        self.with_server(py, |server| {
            let request = |request: steadfast_apiserver::RequestRecord| {
                let verb = verb_name(request.verb).to_owned();
                (verb, request.path, request.query, request.code, request.at.as_secs_f64())
            };
            Ok(server.requests().into_iter().map(request).collect())
        })
    }

    /// Time since the start of the server in nanoseconds, as in traces of the contract checker.
    fn elapsed(&self, py: Python<'_>) -> PyResult<u64> {
        self.with_server(py, |server| Ok(u64::try_from(server.elapsed().as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Checks a trace against the history of a resource. Returns the violations of the contract, and the errors of the
    /// trace itself.
    fn contract_errors(&self, py: Python<'_>, group: &str, plural: &str, trace: &str) -> PyResult<Vec<String>> {
        self.with_server(py, |server| {
            let trace: Trace = serde_json::from_str(trace).map_err(|error| PyValueError::new_err(error.to_string()))?;
            let history = steadfast_testing::history(server, group, plural);
            let history = history.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let Report { violations, inconclusive, malformed, .. } = steadfast_contract::report(&history, &trace);
            let violations = violations.iter().map(ToString::to_string);
            let inconclusive = inconclusive.iter().map(ToString::to_string);
            Ok(violations.chain(inconclusive).chain(malformed.iter().map(ToString::to_string)).collect())
        })
    }

    /// Switches a fault of all replicas, or of one.
    #[pyo3(signature = (name, on=true, replica=None, namespace=None, object=None, number=None))]
    #[allow(clippy::too_many_arguments, reason = "the Python part has one method for each fault")]
    #[allow(clippy::cast_sign_loss, reason = "revisions and counts are not negative")]
    fn fault(
        &self,
        py: Python<'_>,
        name: &str,
        on: bool,
        replica: Option<usize>,
        namespace: Option<&str>,
        object: Option<&str>,
        number: Option<f64>,
    ) -> PyResult<()> {
        self.with_server(py, move |server| {
            let faults = faults(server, replica)?;
            let number = number.unwrap_or_default();
            match name {
                "stop" if on => faults.stop(),
                "stop" => faults.start(),
                "restart" => faults.restart(),
                "refuse" => faults.refuse(on),
                "accept_and_close" => faults.accept_and_close(on),
                "reset" => faults.reset(),
                "black_hole" => faults.black_hole(on),
                "cut" if on => faults.cut(),
                "cut" => faults.heal(),
                "goaway" => faults.goaway(),
                "freeze" => faults.freeze(on),
                "stall_streams" => faults.stall_streams(on),
                "end_watches" => faults.end_watches(),
                "delay" => faults.delay(if on { seconds_to_duration(number) } else { Duration::ZERO }),
                "no_bookmarks" => faults.no_bookmarks(on),
                "lag" => faults.lag(on),
                "freeze_etcd" => faults.freeze_etcd(on),
                "expire_events" => faults.expire_events(),
                "restore" => faults.restore(number as u64),
                "reject_streamed_lists" => faults.refuse_streamed_lists(on),
                "expire_continue_tokens" => faults.expire_continue_tokens(number as u32),
                "split_bodies" => faults.split_bodies(number as usize),
                "repeat_events" => faults.repeat_events(number as usize),
                "drop_next_event" => faults.drop_next_event(object.unwrap_or_default()),
                "undecodable" => {
                    let corruption = on.then_some(ObjectCorruption::Deep(UNDECODABLE_DEPTH));
                    faults.corrupt_object(namespace.unwrap_or_default(), object.unwrap_or_default(), corruption);
                }
                _ => return Err(PyValueError::new_err(format!("the server has no fault {name:?}"))),
            }
            Ok(())
        })
    }

    /// Replaces the responses to the next `times` requests, or to all. `verbs` are those of `requests`.
    #[pyo3(signature = (code, verbs, resource, times, retry_after, replica, in_stream))]
    #[allow(clippy::too_many_arguments, reason = "the Python part has keyword arguments")]
    fn respond(
        &self,
        py: Python<'_>,
        code: u16,
        verbs: Vec<String>,
        resource: Option<&str>,
        times: Option<u32>,
        retry_after: Option<f64>,
        replica: Option<usize>,
        in_stream: bool,
    ) -> PyResult<()> {
        let mut rule = RequestRule::any();
        for name in &verbs {
            let Some(verb) = VERBS.iter().find(|(known_name, _)| known_name == name) else {
                let known_names: Vec<&str> = VERBS.iter().map(|(name, _)| *name).collect();
                return Err(PyValueError::new_err(format!("{name:?} is not one of {}", known_names.join(", "))));
            };
            rule = rule.verb(verb.1);
        }
        if let Some(resource) = resource {
            rule = rule.resource(resource);
        }
        if let Some(times) = times {
            rule = rule.times(times);
        }
        let response = match (retry_after, in_stream) {
            (Some(seconds), _) => InjectedResponse::retry_after(code, seconds_to_duration(seconds)),
            (None, true) => InjectedResponse::InStream(Status::of_code(code)),
            (None, false) => InjectedResponse::code(code),
        };
        self.with_server(py, move |server| {
            faults(server, replica)?.respond(rule, response);
            Ok(())
        })
    }

    /// Ends the replaced responses.
    fn respond_normally(&self, py: Python<'_>) -> PyResult<()> {
        self.with_server(py, |server| {
            server.faults().clear_rules();
            Ok(())
        })
    }
}

impl Server {
    fn address(&self, replica: usize) -> PyResult<&(String, String)> {
        // A locked server is in use, so it is not closed.
        let running = self.running.get_own().and_then(Mutex::try_lock);
        if running.is_some_and(|running| running.is_none()) {
            return Err(closed());
        }
        self.addresses.get(replica).ok_or_else(|| unknown_replica(replica, self.addresses.len()))
    }

    /// Calls `action` in the runtime of the server, without the GIL.
    fn with_server<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&ApiServer) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        let running = self.running.get(py)?;
        finalization::detach(py, || {
            let running = running.lock();
            let Some(running) = &*running else {
                return Err(closed());
            };
            let _guard = running.handle.enter();
            action(&running.server)
        })
    }

    /// Calls a write or read of the server, and returns the object as JSON.
    fn object_json(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&ApiServer) -> Result<Value, Status> + Send,
    ) -> PyResult<String> {
        self.with_server(py, |server| match write(server) {
            Ok(object) => Ok(object.to_string()),
            Err(status) => Err(PyValueError::new_err(status.to_string())),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Does not wait for the thread, which ends on its own.
        if let Some(running) = self.running.take_own().and_then(Mutex::into_inner) {
            let guard = running.handle.enter();
            running.server.stop();
            drop(guard);
        }
    }
}

/// Returns the namespaces and names of the live objects of a resource.
fn live_keys(server: &ApiServer, resource: &str) -> Vec<(String, String)> {
    let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
    let mut keys = BTreeSet::new();
    for change in &server.history().changes {
        if change.resource.resource() == plural && (group.is_empty() || change.resource.group() == group) {
            let key = (change.namespace.clone().unwrap_or_default(), change.name.clone());
            if change.object.is_some() {
                keys.insert(key)
            } else {
                keys.remove(&key)
            };
        }
    }
    keys.into_iter().collect()
}

fn faults(server: &ApiServer, replica: Option<usize>) -> PyResult<Faults> {
    match replica {
        Some(replica) => Ok(server.faults().replica(check_replica(server, replica)?)),
        None => Ok(server.faults().clone()),
    }
}

fn check_replica(server: &ApiServer, replica: usize) -> PyResult<usize> {
    if replica < server.replicas() {
        return Ok(replica);
    }
    Err(unknown_replica(replica, server.replicas()))
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the server has been closed")
}

fn unknown_replica(replica: usize, replicas: usize) -> PyErr {
    PyValueError::new_err(format!("no replica {replica}: the number of replicas is {replicas}"))
}

fn value(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    serde_json::from_slice(&json_of(object)?).map_err(|error| PyValueError::new_err(error.to_string()))
}

const VERBS: [(&str, Verb); 13] = [
    ("get", Verb::Get),
    ("list", Verb::List),
    ("page", Verb::Page),
    ("probe", Verb::Probe),
    ("state", Verb::ListByName),
    ("streamed_list", Verb::StreamedList),
    ("watch", Verb::Watch),
    ("create", Verb::Create),
    ("update", Verb::Update),
    ("patch", Verb::Patch),
    ("delete", Verb::Delete),
    ("delete_collection", Verb::DeleteCollection),
    ("other", Verb::Other),
];

fn verb_name(verb: Verb) -> &'static str {
    VERBS.iter().find(|(_, known_verb)| *known_verb == verb).map_or("other", |(name, _)| name)
}
