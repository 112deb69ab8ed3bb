//! Which rules fire for an object, and why the others do not.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::change::{Change, State, Subject};
use crate::config::EventKind;
use crate::lookups::Lookups;
use crate::rule::{Compiled, Verdict};

/// Why a rule does not look at an object at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlooked {
    /// It is for other clusters.
    Cluster,
    /// It is for other resources.
    Resource,
    /// It is for other namespaces.
    Namespace,
    /// Its selectors do not match, as the server says.
    Selectors,
}

/// What `rule` does about an object as it is now, for people; or why it does not look at it.
///
/// `lookups` are the objects that the rule can look up; without them a rule that looks anything up fails.
pub fn explain(
    rule: &Compiled,
    subject: &Subject,
    looked_at: Result<&Value, Overlooked>,
    lookups: Option<&Arc<Lookups>>,
) -> String {
    let config = &rule.config;
    let mut text = format!("rule {}\n", config.name);
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let object = match looked_at {
        Ok(object) => object,
        Err(why) => {
            line(match why {
                Overlooked::Cluster => format!("does not look: it is for the clusters {}", config.clusters.join(", ")),
                Overlooked::Resource => match &config.endpoints {
                    Some(endpoints) => {
                        let services = endpoints.written().into_iter().map(|(_, service)| service);
                        let services = services.collect::<Vec<_>>().join(", ");
                        format!(
                            "does not look: it mirrors the endpoints of {services}; explain one of their endpointslices"
                        )
                    }
                    None => format!("does not look: it is for {}", config.resources.join(", ")),
                },
                Overlooked::Namespace => {
                    format!("does not look: it is for the namespaces {}", config.namespaces.join(", "))
                }
                Overlooked::Selectors => {
                    let selectors = [("labels", &config.labels), ("fields", &config.fields)];
                    let selectors = selectors.iter().filter_map(|(of, is)| Some(format!("{of} {}", is.as_ref()?)));
                    let selectors = selectors.collect::<Vec<_>>().join(", ");
                    format!("does not look: the object does not match its selectors, {selectors}")
                }
            });
            return text;
        }
    };
    if !config.initial {
        line("at the start: sends nothing, `initial` is not set".to_owned());
    }
    let (mut recheck_at, mut reads) = (None, BTreeSet::new());
    for kind in [EventKind::Added, EventKind::Updated, EventKind::Deleted] {
        let state = Some(State::new(object.clone()));
        let change = Change {
            old: state.clone().filter(|_| kind != EventKind::Added),
            new: state.filter(|_| kind != EventKind::Deleted),
            lookups: lookups.map(|lookups| lookups.afresh()),
            ..Change::new(String::new(), kind, subject.clone(), Timestamp::now())
        };
        let (name, change) = (kind.name(), Arc::new(change));
        let verdict = rule.judge(&change);
        if kind != EventKind::Deleted {
            recheck_at = recheck_at.into_iter().chain(rule.outlook(&change).1).min();
            reads.extend(change.lookups.iter().flat_map(|lookups| lookups.reads()));
        }
        line(match verdict {
            Verdict::Fires(value) => format!("{name}: fires, sends {value} to {}", config.to.join(", ")),
            Verdict::Initial(_) => continue,
            Verdict::OtherKind => format!("{name}: does not fire, `events` leaves it out"),
            // An update of which nothing is known but the state it ends in.
            Verdict::DoesNotHold if kind == EventKind::Updated && !rule.paths().is_empty() => {
                format!("{name}: does not fire while {} stays the same", rule.paths().join(", "))
            }
            Verdict::DoesNotHold if kind == EventKind::Updated && !rule.is_of_states() => {
                format!("{name}: does not fire where nothing changes; `when` looks at `old`")
            }
            Verdict::DoesNotHold => format!("{name}: does not fire, `when` does not hold"),
            Verdict::Failed { expression, why } => format!("{name}: does not fire, `{expression}` fails: {why}"),
        });
    }
    for read in reads {
        line(format!("evaluated again when this changes: {read}"));
    }
    if let Some(at) = recheck_at {
        line(format!("evaluated again at {at}, when the result may change"));
    }
    if rule.is_of_states() {
        line("the same is not sent twice in a row".to_owned());
    }
    text
}
