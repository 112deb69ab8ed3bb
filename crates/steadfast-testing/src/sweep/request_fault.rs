//! Faults and their positions, as values and as a line of text.

use std::fmt;
use std::str::FromStr;

use steadfast_apiserver::{RequestRecord, Verb};

use crate::TestkitError;

/// Environment variable that selects a single fault.
pub(super) const FAULT_VARIABLE: &str = "STEADFAST_SWEEP";

/// Sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RequestSender {
    /// One of the controller's processes.
    Controller,
    /// The scenario, with its own client.
    Scenario,
}

/// One request of a run, identified by its ordinal among equal requests.
///
/// The number among all requests would not identify the request, because an earlier fault would change that
/// number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct RequestPoint {
    /// Sender of the request.
    pub sender: RequestSender,
    /// Verb of the request.
    pub verb: Verb,
    /// Path of the request.
    pub path: String,
    /// Ordinal among requests with the same sender, verb and path, from 1.
    pub ordinal: u32,
}

impl RequestPoint {
    /// Returns the point without its ordinal.
    pub(super) fn without_ordinal(sender: RequestSender, request: &RequestRecord) -> Self {
        Self { sender, verb: request.verb, path: request.path.clone(), ordinal: 0 }
    }

    /// Returns `true` if the request is a write.
    pub(super) fn is_write(&self) -> bool {
        self.verb.is_write()
    }

    /// Returns `true` if the request is for objects of this resource, given by its plural name.
    pub(super) fn is_of(&self, plural: &str) -> bool {
        self.plural() == Some(plural)
    }

    /// Returns the plural name of the resource, from the path segment after the version, or after the namespace.
    fn plural(&self) -> Option<&str> {
        let mut parts = self.path.trim_start_matches('/').split('/');
        // The core group has its version behind `/api`, and all other groups have a name in between.
        match parts.next()? {
            "api" => parts.next()?,
            "apis" => {
                parts.next()?;
                parts.next()?
            }
            _ => return None,
        };
        let first = parts.next()?;
        match (first, parts.next(), parts.next()) {
            // `/api/v1/namespaces/default` is an object of the resource `namespaces`, so the plural needs a third
            // segment.
            ("namespaces", Some(_), Some(plural)) => Some(plural),
            _ => Some(first),
        }
    }
}

/// Kind of a fault: one failure that is common in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RequestFaultKind {
    /// The controller's caches see the write ten seconds late.
    Delayed,
    /// The controller's caches never see the write. They receive no further events. They list again only after the
    /// same object has been written once more, or at the end of the scenario. Only caches that list without a
    /// consistent read can miss more than that.
    Unobserved,
    /// The server processes the request. Before the response is sent, the connection is reset. All other requests in
    /// flight on this connection are lost as well.
    ResponseLost,
    /// The process is killed before the server processes the request.
    CrashBefore,
    /// The process is killed after the server has processed the request, and before the process receives the
    /// response.
    CrashAfter,
    /// The process is killed as with `CrashAfter`. For thirty seconds, longer than the process's lease lasts, the
    /// replicas of all processes serve the state before the request. An informer of Steadfast does not accept that
    /// state as current, and waits.
    CrashThenStaleView,
    /// The request, and any renewal of the process's lease, waits for twenty seconds. By then the lease has expired.
    /// The server then processes the request, unless its connection has ended.
    LeadershipLost,
}

impl RequestFaultKind {
    /// All kinds, the least severe first.
    pub const ALL: [Self; 7] = [
        Self::Delayed,
        Self::Unobserved,
        Self::ResponseLost,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::CrashThenStaleView,
        Self::LeadershipLost,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Unobserved => "unobserved",
            Self::ResponseLost => "response-lost",
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::CrashThenStaleView => "crash-then-stale-view",
            Self::LeadershipLost => "leadership-lost",
        }
    }
}

/// One fault at one point.
///
/// Its text is a line that [`Sweep`](super::Sweep) accepts from `STEADFAST_SWEEP`:
///
/// ```
/// use steadfast_testing::sweep::RequestFault;
///
/// let line = "crash-after controller #2 create /api/v1/namespaces/default/configmaps";
/// assert_eq!(line.parse::<RequestFault>()?.to_string(), line);
/// # Ok::<(), steadfast_testing::TestkitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct RequestFault {
    /// Kind of the fault.
    pub kind: RequestFaultKind,
    /// Request that the fault affects.
    pub point: RequestPoint,
}

const VERBS: [Verb; 13] = [
    Verb::Get,
    Verb::List,
    Verb::Page,
    Verb::Probe,
    Verb::ListByName,
    Verb::StreamedList,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Other,
];

/// Returns the name of `verb` in the line of a fault. Saved lines contain it, so it does not follow renames in the code.
fn verb_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Page => "page",
        Verb::Probe => "probe",
        Verb::ListByName => "state",
        Verb::StreamedList => "streamedlist",
        Verb::Watch => "watch",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "deletecollection",
        Verb::Other => "other",
    }
}

impl fmt::Display for RequestSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Scenario => "scenario",
        })
    }
}

impl fmt::Display for RequestPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{} {} {}", self.sender, self.ordinal, verb_name(self.verb), self.path)
    }
}

impl fmt::Display for RequestFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.point)
    }
}

impl FromStr for RequestFault {
    type Err = TestkitError;

    fn from_str(line: &str) -> Result<Self, TestkitError> {
        let syntax_error = |problem: &str| {
            let kinds = RequestFaultKind::ALL.map(RequestFaultKind::name).join(", ");
            let text = format!(
                "not a valid fault: {problem} in {line:?}; expected one of {kinds}, then controller or scenario, #N, a verb and a path"
            );
            TestkitError::from(text)
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, sender, ordinal, verb, path] = words[..] else { return Err(syntax_error("expected five words")) };
        let kind =
            RequestFaultKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| syntax_error(kind))?;
        let known_sender =
            [RequestSender::Controller, RequestSender::Scenario].into_iter().find(|known| known.to_string() == sender);
        let sender = known_sender.ok_or_else(|| syntax_error("invalid second word"))?;
        // Ordinals count from 1. Zero stands for a kind of request without an ordinal.
        let number = ordinal.strip_prefix('#').and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        let ordinal = number.ok_or_else(|| syntax_error(ordinal))?;
        let verb = VERBS.into_iter().find(|known| verb_name(*known) == verb).ok_or_else(|| syntax_error(verb))?;
        Ok(Self { kind, point: RequestPoint { sender, verb, path: path.to_owned(), ordinal } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_fault_is_reported_with_position() {
        for (line, expected) in [
            ("", "expected five words"),
            ("crash controller #1 get /a", "crash in"),
            ("crash-after user #1 get /a", "invalid second word"),
            ("crash-after controller 1 get /a", "1 in"),
            ("crash-after controller #0 get /a", "#0 in"),
            ("crash-after controller #1 fetch /a", "fetch in"),
        ] {
            let error = line.parse::<RequestFault>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("crash-then-stale-view"), "{line}: {error}");
        }
    }

    #[test]
    fn resource_is_parsed_from_path() {
        for (path, plural) in [
            ("/api/v1/namespaces/leases/configmaps/events", Some("configmaps")),
            ("/api/v1/namespaces/leases", Some("namespaces")),
            ("/api/v1/nodes/leases/status", Some("nodes")),
            ("/apis/coordination.k8s.io/v1/namespaces/default/leases/a", Some("leases")),
            ("/apis/shop.example/v1/sites", Some("sites")),
            ("/livez/ping", None),
            ("/api", None),
        ] {
            let point =
                RequestPoint { sender: RequestSender::Controller, verb: Verb::Get, path: path.to_owned(), ordinal: 1 };
            assert_eq!(point.plural(), plural, "{path}");
        }
    }

    #[test]
    fn saved_lines_are_parsed() -> Result<(), TestkitError> {
        for (line, verb) in [
            ("crash-after controller #1 state /api/v1/pods", Verb::ListByName),
            ("crash-after scenario #2 streamedlist /api/v1/pods", Verb::StreamedList),
            ("crash-after scenario #3 deletecollection /api/v1/pods", Verb::DeleteCollection),
        ] {
            let fault: RequestFault = line.parse()?;
            assert_eq!(fault.point.verb, verb, "{line}");
            assert_eq!(fault.to_string(), line);
        }
        Ok(())
    }

    #[test]
    fn fault_parses_its_own_text() -> Result<(), TestkitError> {
        for kind in RequestFaultKind::ALL {
            for verb in VERBS {
                let point = RequestPoint {
                    sender: RequestSender::Scenario,
                    verb,
                    path: "/api/v1/pods/a".to_owned(),
                    ordinal: 3,
                };
                let fault = RequestFault { kind, point };
                assert_eq!(fault.to_string().parse::<RequestFault>()?, fault);
            }
        }
        Ok(())
    }
}
