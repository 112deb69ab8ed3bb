//! Combined freshness of several caches, for readiness probes.

use std::fmt;

use http::StatusCode;
use steadfast_core::{Freshness, ResourceVersion};

/// Freshness of each informer of a factory, worst first.
///
/// Use it for `/readyz` in any web framework. It provides a status code, and a text with each cache that is not fresh
/// and the cause.
///
/// ```no_run
/// # use steadfast::InformerFactory;
/// // As a handler of axum: this tuple is one of its responses.
/// async fn readyz(informers: InformerFactory) -> (http::StatusCode, String) {
///     let freshness = informers.freshness();
///     (freshness.status(), freshness.to_string())
/// }
/// ```
///
/// A factory is ready if all caches are synced and fresh. A program that prefers to serve old data during an outage of
/// its API server can base its readiness on [`worst`](Self::worst).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactoryFreshness {
    /// Name and freshness of each informer, worst first.
    informers: Vec<(String, Freshness)>,
    shut_down: bool,
}

impl FactoryFreshness {
    /// Creates the freshness of these informers, by name.
    pub(crate) fn new(mut informers: Vec<(String, Freshness)>, shut_down: bool) -> Self {
        // The sort is stable, so informers of equal state stay ordered by name.
        informers.sort_by_key(|(_, state)| std::cmp::Reverse(severity_rank(state)));
        Self { informers, shut_down }
    }

    /// Returns true if there is at least one informer, and all are synced and fresh.
    pub fn is_ready(&self) -> bool {
        !self.shut_down && !self.informers.is_empty() && self.informers.iter().all(|(_, state)| state.is_fresh())
    }

    /// Returns the status code for a readiness probe: 200 or 503.
    pub fn status(&self) -> StatusCode {
        if self.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }

    /// Returns the name (resource and scope) and freshness of the worst informer, or `None` without informers.
    pub fn worst(&self) -> Option<(&str, &Freshness)> {
        self.informers().next()
    }

    /// Returns all informers with their freshness, worst first. Fresh informers are ordered by their last proof, oldest
    /// first.
    pub fn informers(&self) -> impl Iterator<Item = (&str, &Freshness)> {
        self.informers.iter().map(|(name, state)| (name.as_str(), state))
    }
}

/// Formats the body for a probe: `ok`, or one line for each cache that is not fresh, with the cause.
impl fmt::Display for FactoryFreshness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_ready() {
            return f.write_str("ok\n");
        }
        if self.shut_down {
            return f.write_str("stopped: the informer factory was shut down\n");
        }
        if self.informers.is_empty() {
            return f.write_str("starting: no informer was started\n");
        }
        self.informers()
            .filter(|(_, state)| !state.is_fresh())
            .try_for_each(|(name, state)| writeln!(f, "{name}: {state}"))
    }
}

/// Returns the worst of several states. If all are fresh, returns the lowest version and the highest age.
///
/// Panics without a state.
pub(crate) fn worst(states: impl Iterator<Item = Freshness>) -> Freshness {
    let combined = states.reduce(|one, other| match (one, other) {
        (
            Freshness::Fresh { version, age, tainted, polled },
            Freshness::Fresh { version: other_version, age: other_age, tainted: other_tainted, polled: other_polled },
        ) => Freshness::Fresh {
            version: lower(version, other_version),
            age: age.max(other_age),
            tainted: tainted.iter().chain(other_tainted.iter()).cloned().collect(),
            polled: polled.or(other_polled),
        },
        (one, other) if severity_rank(&one) >= severity_rank(&other) => one,
        (_, other) => other,
    });
    combined.unwrap_or_else(|| unreachable!("a group of informers is never empty"))
}

/// Returns the lower version, or none if one is absent or the versions cannot be compared.
fn lower(one: Option<ResourceVersion>, other: Option<ResourceVersion>) -> Option<ResourceVersion> {
    let (one, other) = (one?, other?);
    one.order(&other).map(|order| if order.is_le() { one } else { other })
}

/// Returns the rank of a state, and the duration of the doubt. For a fresh state, the duration is the time since the
/// last proof.
fn severity_rank(state: &Freshness) -> (u8, std::time::Duration) {
    let rank = match state {
        Freshness::Fresh { age, .. } => return (0, *age),
        Freshness::Resuming(_) => 1,
        Freshness::Suspect(_) => 2,
        Freshness::Starting(_) => 3,
        Freshness::Stale(_) => 4,
        Freshness::Failed(_) => 5,
        // Stopped. An unknown state must not look better than a known one.
        _ => 6,
    };
    (rank, state.doubt().map(|doubt| doubt.elapsed).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use steadfast_core::{Doubt, KeySet, ObjectKey};

    use super::*;

    fn fresh(seconds: u64) -> Freshness {
        let age = Duration::from_secs(seconds);
        Freshness::Fresh { version: None, age, tainted: KeySet::default(), polled: None }
    }

    fn doubt(seconds: u64) -> Doubt {
        Doubt::new(Duration::from_secs(seconds), "refused")
    }

    fn of(informers: &[(&str, Freshness)]) -> FactoryFreshness {
        let named = informers.iter().map(|(name, state)| ((*name).to_owned(), state.clone()));
        FactoryFreshness::new(named.collect(), false)
    }

    #[test]
    fn worst_informer_is_listed_first_with_cause() {
        let all = of(&[
            ("pods", fresh(1)),
            ("nodes", Freshness::Resuming(doubt(9))),
            ("secrets", Freshness::Failed(doubt(1))),
            ("services", Freshness::Failed(doubt(7))),
        ]);
        assert_eq!(all.worst().map(|(name, _)| name), Some("services"));
        assert_eq!((all.is_ready(), all.status()), (false, StatusCode::SERVICE_UNAVAILABLE));
        let body = "services: failed for 7.0 s: refused\nsecrets: failed for 1.0 s: refused\nnodes: resuming for 9.0 s: refused\n";
        assert_eq!(all.to_string(), body);
    }

    #[test]
    fn worst_state_of_namespaces_is_common() {
        let stale = Freshness::Stale(doubt(3));
        let states = [fresh(1), stale.clone(), Freshness::Suspect(doubt(9)), Freshness::Stale(doubt(1))];
        assert_eq!(worst(states.into_iter()), stale);
        let of = |version: &str, seconds, key: &str| Freshness::Fresh {
            version: Some(version.into()),
            age: Duration::from_secs(seconds),
            tainted: KeySet::from_iter([ObjectKey::cluster(key)]),
            polled: None,
        };
        let Freshness::Fresh { version, age, tainted, .. } = worst([of("10", 2, "a"), of("9", 1, "b")].into_iter())
        else {
            panic!("all are fresh")
        };
        assert_eq!((version, age, tainted.len()), (Some("9".into()), Duration::from_secs(2), 2));
    }

    #[test]
    fn readiness_requires_fresh_informers() {
        let all = of(&[("pods", fresh(1)), ("nodes", fresh(3))]);
        assert_eq!((all.status(), all.to_string().as_str()), (StatusCode::OK, "ok\n"));
        assert_eq!(all.worst().map(|(name, _)| name), Some("nodes"), "the informer with the oldest proof");
        assert_eq!(of(&[]).to_string(), "starting: no informer was started\n");
        let shut_down = FactoryFreshness::new(Vec::new(), true);
        assert!(!of(&[]).is_ready() && !shut_down.is_ready() && shut_down.to_string().starts_with("stopped: "));
    }
}
