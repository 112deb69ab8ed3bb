//! Probes of one endpoint, and its state.

use std::time::Duration;

use steadfast::environment::Instant;

use crate::message::{AuditFailure, AuditQuery};
use crate::settings::AuditSettings;

/// Duration of connection failures after which an endpoint counts as unresponsive.
const MAX_OUTAGE: Duration = Duration::from_secs(6);

/// Interval of the probes of an endpoint without a connection.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Number of consecutive failed consistent reads from which on the failures are reported.
const MAX_READ_FAILURES: u32 = 3;

/// Probe in progress.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) query: AuditQuery,
    pub(crate) sent: Instant,
    /// First version that the short watch delivered.
    pub(crate) seen: Option<u64>,
    pub(crate) bookmark: Option<u64>,
    /// True if a second request was sent, whose response does not depend on the storage. The response distinguishes a
    /// frozen storage from a frozen endpoint.
    pub(crate) has_companion: bool,
}

/// Effect of a probe on the findings of the endpoint.
#[derive(Debug, PartialEq)]
pub(crate) enum ProbeEffect {
    None,
    Responsive,
    /// A consistent read succeeded.
    Consistent,
    Unresponsive(String),
    ReadsFailing(String),
}

/// State of one endpoint.
#[derive(Debug)]
pub(crate) struct EndpointState {
    pub(crate) name: String,
    pub(crate) probe: Option<Probe>,
    pub(crate) next_probe: Instant,
    /// Number of probes so far.
    pub(crate) probes: u64,
    /// Time of the last reply, or of the last record of a watch.
    pub(crate) last_alive: Option<Instant>,
    pub(crate) is_unresponsive: bool,
    pub(crate) requests: u64,
    failing_since: Option<Instant>,
    read_failures: u32,
}

impl EndpointState {
    pub(crate) fn new(name: String, now: Instant) -> Self {
        Self {
            name,
            probe: None,
            next_probe: now,
            probes: 0,
            last_alive: None,
            is_unresponsive: false,
            requests: 0,
            failing_since: None,
            read_failures: 0,
        }
    }

    /// Accepts a reply to a probe that shows a living endpoint.
    pub(crate) fn responded(&mut self) -> ProbeEffect {
        (self.failing_since, self.is_unresponsive) = (None, false);
        ProbeEffect::Responsive
    }

    /// Accepts a successful consistent read.
    pub(crate) fn read(&mut self) -> ProbeEffect {
        self.responded();
        self.read_failures = 0;
        ProbeEffect::Consistent
    }

    /// Accepts the failure of a probe.
    pub(crate) fn failed(
        &mut self,
        now: Instant,
        probe: &Probe,
        failure: &AuditFailure,
        settings: &AuditSettings,
    ) -> ProbeEffect {
        let is_read = probe.query == AuditQuery::Newest;
        match failure {
            AuditFailure::Deadline => {
                let reason = format!("no response within {} s", settings.probe_deadline.as_secs());
                if self.last_alive.is_none_or(|alive| alive <= probe.sent) {
                    self.is_unresponsive = true;
                    return ProbeEffect::Unresponsive(reason);
                }
                if is_read { ProbeEffect::ReadsFailing(reason) } else { ProbeEffect::None }
            }
            AuditFailure::NoResponse(reason) => {
                self.next_probe = self.next_probe.min(now + RETRY_INTERVAL);
                let since = *self.failing_since.get_or_insert(probe.sent);
                if now.since(since) < MAX_OUTAGE {
                    return ProbeEffect::None;
                }
                self.is_unresponsive = true;
                ProbeEffect::Unresponsive(format!("no response for {} s: {reason}", now.since(since).as_secs()))
            }
            AuditFailure::Status(code, message) if is_read && *code >= 500 => {
                self.responded();
                self.read_failures += 1;
                if self.read_failures < MAX_READ_FAILURES {
                    return ProbeEffect::Responsive;
                }
                ProbeEffect::ReadsFailing(format!("{} lists in a row failed: {code} {message}", self.read_failures))
            }
            AuditFailure::Status(..) | AuditFailure::Unusable(_) => self.responded(),
        }
    }

    /// Restarts all timers after this process was suspended.
    pub(crate) fn restart_ages(&mut self, now: Instant) {
        self.failing_since = None;
        self.last_alive = Some(now);
        if let Some(probe) = &mut self.probe {
            // A deadline that expired during the suspension proves nothing.
            probe.sent = now - Duration::from_nanos(1);
        }
    }
}
