//! What is disturbed, and where: as values, and as a line that names one of them.

use std::fmt;
use std::str::FromStr;

use steadfast_apiserver::{RequestRecord, Verb};

use crate::Error;

/// What has one disturbance played alone.
pub(super) const VARIABLE: &str = "STEADFAST_SWEEP";

/// Who has sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Whose {
    /// One of the controller's processes.
    Controller,
    /// The scenario, by the client that it is given.
    Scenario,
}

/// One request among those of a play: the how many-eth of its kind.
///
/// Not its number among all requests: a disturbance that comes earlier would shift that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// Who has sent it.
    pub whose: Whose,
    /// What it requests.
    pub verb: Verb,
    /// Of what.
    pub path: String,
    /// The how many-eth request like that it is, from 1.
    pub ordinal: u32,
}

impl Point {
    /// The request in words that do not tell which of its kind it is.
    pub(super) fn kind_of(whose: Whose, request: &RequestRecord) -> Self {
        Self { whose, verb: request.verb, path: request.path.clone(), ordinal: 0 }
    }

    /// Whether it changes something.
    pub(super) fn is_write(&self) -> bool {
        self.verb.is_write()
    }

    /// Whether it is about objects of this resource, by its plural name.
    pub(super) fn is_of(&self, plural: &str) -> bool {
        self.plural() == Some(plural)
    }

    /// The plural name of the resource: after the group's version, or after the namespace behind that.
    fn plural(&self) -> Option<&str> {
        let mut parts = self.path.trim_start_matches('/').split('/');
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
            ("namespaces", Some(_), Some(plural)) => Some(plural),
            _ => Some(first),
        }
    }
}

/// What is done at a point: one thing that clusters do every day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// What is written there is seen by the controller's caches ten seconds late.
    Delayed,
    /// What is written there is never seen by the controller's caches: they see nothing more, and list again only when the
    /// same object has been written once more, or at the end of the scenario. Only caches that ask a server for what it has at
    /// hand can be made to see less than that.
    Unobserved,
    /// The server acts on it; its connection is reset before it answers, with whatever else is under way on it.
    AnswerLost,
    /// The process is killed before the server acts on it.
    CrashBefore,
    /// The process is killed after the server has acted on it, without the answer.
    CrashAfter,
    /// The process is killed as above; for thirty seconds, which is longer than its lease lasts, all replicas have
    /// what there was before the request. An informer of Steadfast's does not take that for the present: it waits.
    CrashIntoThePast,
    /// The request waits for twenty seconds before the server acts on it, and with it whatever would renew the lease of its
    /// process: by then, the lease has lapsed. It is done then, unless its connection has been ended.
    LeadershipLost,
}

impl Kind {
    /// All of them, the smallest first.
    pub const ALL: [Self; 7] = [
        Self::Delayed,
        Self::Unobserved,
        Self::AnswerLost,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::CrashIntoThePast,
        Self::LeadershipLost,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Unobserved => "unobserved",
            Self::AnswerLost => "answer-lost",
            Self::CrashBefore => "crash-before",
            Self::CrashAfter => "crash-after",
            Self::CrashIntoThePast => "crash-into-the-past",
            Self::LeadershipLost => "leadership-lost",
        }
    }
}

/// One thing that goes wrong at one point.
///
/// As text it is a line that [`Sweep`](super::Sweep) takes from `STEADFAST_SWEEP`:
///
/// ```
/// use steadfast_testing::sweep::Disturbance;
///
/// let line = "crash-after controller #2 create /api/v1/namespaces/default/configmaps";
/// assert_eq!(line.parse::<Disturbance>()?.to_string(), line);
/// # Ok::<(), steadfast_testing::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disturbance {
    /// What is done.
    pub kind: Kind,
    /// Where.
    pub point: Point,
}

const VERBS: [Verb; 13] = [
    Verb::Get,
    Verb::List,
    Verb::Page,
    Verb::Probe,
    Verb::State,
    Verb::StreamedList,
    Verb::Watch,
    Verb::Create,
    Verb::Update,
    Verb::Patch,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Other,
];

fn verb_name(verb: Verb) -> String {
    format!("{verb:?}").to_lowercase()
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Scenario => "scenario",
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{} {} {}", self.whose, self.ordinal, verb_name(self.verb), self.path)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.point)
    }
}

impl FromStr for Disturbance {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            let kinds = Kind::ALL.map(Kind::name).join(", ");
            let text = format!(
                "no disturbance: {what} in {line:?}; it is one of {kinds}, then controller or scenario, #N, a verb and a path"
            );
            Error::from(text)
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, whose, ordinal, verb, path] = words[..] else { return Err(wrong("not five words")) };
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| wrong(kind))?;
        let whose = [Whose::Controller, Whose::Scenario].into_iter().find(|known| known.to_string() == whose);
        let whose = whose.ok_or_else(|| wrong("the second word"))?;
        let number = ordinal.strip_prefix('#').and_then(|number| number.parse().ok()).filter(|number| *number > 0);
        let ordinal = number.ok_or_else(|| wrong(ordinal))?;
        let verb = VERBS.into_iter().find(|known| verb_name(*known) == verb).ok_or_else(|| wrong(verb))?;
        Ok(Self { kind, point: Point { whose, verb, path: path.to_owned(), ordinal } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_disturbance_is_told_with_its_place() {
        for (line, told) in [
            ("", "not five words"),
            ("crash controller #1 get /a", "crash in"),
            ("crash-after user #1 get /a", "the second word"),
            ("crash-after controller 1 get /a", "1 in"),
            ("crash-after controller #0 get /a", "#0 in"),
            ("crash-after controller #1 fetch /a", "fetch in"),
        ] {
            let error = line.parse::<Disturbance>().unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("crash-into-the-past"), "{line}: {error}");
        }
    }

    #[test]
    fn a_resource_is_known_by_its_place_in_the_path() {
        for (path, plural) in [
            ("/api/v1/namespaces/leases/configmaps/events", Some("configmaps")),
            ("/api/v1/namespaces/leases", Some("namespaces")),
            ("/api/v1/nodes/leases/status", Some("nodes")),
            ("/apis/coordination.k8s.io/v1/namespaces/default/leases/a", Some("leases")),
            ("/apis/shop.example/v1/sites", Some("sites")),
            ("/livez/ping", None),
            ("/api", None),
        ] {
            let point = Point { whose: Whose::Controller, verb: Verb::Get, path: path.to_owned(), ordinal: 1 };
            assert_eq!(point.plural(), plural, "{path}");
        }
    }

    #[test]
    fn each_is_read_as_it_is_written() -> Result<(), Error> {
        for kind in Kind::ALL {
            for verb in VERBS {
                let point = Point { whose: Whose::Scenario, verb, path: "/api/v1/pods/a".to_owned(), ordinal: 3 };
                let disturbance = Disturbance { kind, point };
                assert_eq!(disturbance.to_string().parse::<Disturbance>()?, disturbance);
            }
        }
        Ok(())
    }
}
