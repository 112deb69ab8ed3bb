//! Leader election, and the fenced client of a leader.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use steadfast::Connection;
use steadfast_controller::{Leader, LeaderElection};

use crate::bridge::Bridge;
use crate::client::{ApiRequest, response};
use crate::process::ProcessBound;
use crate::stream::seconds_to_duration;

/// Candidate for a lease.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Election {
    bridge: Bridge,
    election: ProcessBound<LeaderElection>,
}

/// One term as the leader.
#[pyclass(frozen, module = "steadfast_kube._native")]
pub(crate) struct Term {
    bridge: Bridge,
    leader: ProcessBound<Leader>,
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
        Ok(Self { bridge, election: ProcessBound::new(election) })
    }

    /// Returns the candidate of the library.
    ///
    /// # Errors
    ///
    /// Returns an error in a forked child.
    pub(crate) fn library(&self, py: Python<'_>) -> PyResult<&LeaderElection> {
        self.election.get(py)
    }
}

#[pymethods]
impl Election {
    /// Identity in the lease.
    #[getter]
    fn identity(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(self.election.get(py)?.identity())
    }

    #[getter]
    fn is_leader(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.election.get(py)?.is_leader())
    }

    /// Last known holder of the lease.
    #[getter]
    fn holder(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.election.get(py)?.holder())
    }

    /// Last error of a request for the lease; `None` after a success.
    #[getter]
    fn lease_error(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.election.get(py)?.lease_error().map(|lease_error| lease_error.to_string()))
    }

    /// Waits until this candidate leads. Returns `None` after the stop.
    #[pyo3(signature = (blocking=false))]
    fn until_leader(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let (election, bridge) = (self.election.get(py)?.clone(), self.bridge.clone());
        let work = async move { election.until_leader().await };
        self.bridge.run(py, blocking, work, |py, leader| match leader {
            Some(leader) => Term { bridge, leader: ProcessBound::new(leader) }.into_py_any(py),
            None => Ok(py.None()),
        })
    }

    /// Releases the lease if this candidate holds it, and returns true after a release.
    #[pyo3(signature = (blocking=false))]
    fn stop(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let election = self.election.get(py)?.clone();
        let work = async move { election.stop().await };
        self.bridge.run(py, blocking, work, |py, released| released.into_py_any(py))
    }
}

#[pymethods]
impl Term {
    #[getter]
    fn is_leader(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.leader.get(py)?.is_leader())
    }

    /// Remaining seconds of the term without a further renewal.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.leader.get(py)?.remaining().as_secs_f64())
    }

    #[getter]
    fn fencing_token(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.leader.get(py)?.fencing_token())
    }

    /// Waits until the term ends.
    #[pyo3(signature = (blocking=false))]
    fn until_lost(&self, py: Python<'_>, blocking: bool) -> PyResult<Py<PyAny>> {
        let leader = self.leader.get(py)?.clone();
        let work = async move { leader.until_lost().await };
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
        let client = self.leader.get(py)?.client();
        let request = ApiRequest { method, path, body, content_type };
        let work = async move { request.send(&client).await };
        self.bridge.run(py, blocking, work, response)
    }
}
