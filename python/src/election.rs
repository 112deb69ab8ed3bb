//! Leader election, and the fenced client of a leader.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadfast::Connection;
use steadfast_controller::{Leader, LeaderElection};

use crate::bridge::Bridge;
use crate::client::{ApiRequest, response};
use crate::stream::seconds_to_duration;

/// Candidate for a lease.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Election {
    bridge: Bridge,
    pub(crate) election: LeaderElection,
}

/// One term as the leader.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Term {
    bridge: Bridge,
    leader: Leader,
}

/// Settings of a candidate. `None` keeps the library's default.
#[derive(Debug, Default)]
pub(crate) struct ElectionSettings {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) identity: Option<String>,
    pub(crate) lease_duration: f64,
    pub(crate) renew_deadline: f64,
    pub(crate) retry_period: f64,
}

impl Election {
    /// Starts the candidate.
    pub(crate) fn start(bridge: Bridge, connection: &Connection, settings: ElectionSettings) -> PyResult<Self> {
        let mut builder = LeaderElection::builder(connection, settings.namespace, settings.name)
            .lease_duration(seconds_to_duration(settings.lease_duration))
            .renew_deadline(seconds_to_duration(settings.renew_deadline))
            .retry_period(seconds_to_duration(settings.retry_period));
        if let Some(identity) = settings.identity {
            builder = builder.identity(identity);
        }
        let election = builder.start().map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { bridge, election })
    }
}

#[pymethods]
impl Election {
    /// Identity in the lease.
    #[getter]
    fn identity(&self) -> &str {
        self.election.identity()
    }

    #[getter]
    fn is_leader(&self) -> bool {
        self.election.is_leader()
    }

    /// Last known holder of the lease.
    #[getter]
    fn holder(&self) -> Option<String> {
        self.election.holder()
    }

    /// Last error of a request for the lease; `None` after a success.
    #[getter]
    fn lease_error(&self) -> Option<String> {
        self.election.lease_error().map(|lease_error| lease_error.to_string())
    }

    /// Waits until this candidate leads. Returns `None` after the stop.
    #[pyo3(signature = (blocking=false))]
    fn until_leader(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let (election, bridge) = (self.election.clone(), self.bridge.clone());
        let work = async move { election.until_leader().await };
        self.bridge.run(py, blocking, work, |py, leader| match leader {
            Some(leader) => Term { bridge, leader }.into_py_any(py),
            None => Ok(py.None()),
        })
    }

    /// Releases the lease if this candidate holds it, and returns true after a release.
    #[pyo3(signature = (blocking=false))]
    fn stop(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let election = self.election.clone();
        let work = async move { election.stop().await };
        self.bridge.run(py, blocking, work, |py, released| released.into_py_any(py))
    }
}

#[pymethods]
impl Term {
    #[getter]
    fn is_leader(&self) -> bool {
        self.leader.is_leader()
    }

    /// Remaining seconds of the term without a further renewal.
    #[getter]
    fn remaining(&self) -> f64 {
        self.leader.remaining().as_secs_f64()
    }

    #[getter]
    fn fencing_token(&self) -> u64 {
        self.leader.fencing_token()
    }

    /// Waits until the term ends.
    #[pyo3(signature = (blocking=false))]
    fn lost(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let leader = self.leader.clone();
        let work = async move { leader.lost().await };
        self.bridge.run(py, blocking, work, |py, ()| Ok(py.None()))
    }

    /// Sends a request within the term, or not at all.
    #[pyo3(signature = (method, path, body, content_type, blocking=false))]
    fn request(
        &self,
        py: Python<'_>,
        method: String,
        path: String,
        body: Vec<u8>,
        content_type: String,
        blocking: bool,
    ) -> PyResult<Py<PyAny>> {
        let client = self.leader.client();
        let request = ApiRequest { method, path, body, content_type };
        let work = async move { request.send(&client).await };
        self.bridge.run(py, blocking, work, response)
    }
}
