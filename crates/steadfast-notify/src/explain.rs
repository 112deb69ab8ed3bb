//! Explanation of the rules' results for an object.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::change::{EventSubject, ObjectChange, ObjectState};
use crate::config::EventKind;
use crate::lookups::LookupSnapshot;
use crate::rule::{CompiledRule, RuleOutcome};

/// Reason why a rule does not cover an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotCovered {
    /// The rule is limited to other clusters.
    Cluster,
    /// The rule is limited to other resources.
    Resource,
    /// The rule is limited to other namespaces.
    Namespace,
    /// The server reports that the rule's selectors do not match.
    Selectors,
}

/// Describes the result of `rule` for the current object, or the reason why the rule does not cover the object.
///
/// `lookups` are the objects for lookups. Without `lookups`, a rule with lookups fails.
pub fn explain(
    rule: &CompiledRule,
    subject: &EventSubject,
    object_or_reason: Result<&Value, NotCovered>,
    lookups: Option<&Arc<LookupSnapshot>>,
) -> String {
    let config = &rule.config;
    let mut text = format!("rule {}\n", config.name);
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let object = match object_or_reason {
        Ok(object) => object,
        Err(reason) => {
            line(match reason {
                NotCovered::Cluster => {
                    format!("does not apply: the rule covers the clusters {}", config.clusters.join(", "))
                }
                NotCovered::Resource => match &config.endpoints {
                    Some(endpoints) => {
                        let services = endpoints.with_paths().into_iter().map(|(_, service)| service);
                        let services = services.collect::<Vec<_>>().join(", ");
                        format!(
                            "does not apply: the rule mirrors the endpoints of {services}; explain one of their endpointslices"
                        )
                    }
                    None => format!("does not apply: the rule covers {}", config.resources.join(", ")),
                },
                NotCovered::Namespace => {
                    format!("does not apply: the rule covers the namespaces {}", config.namespaces.join(", "))
                }
                NotCovered::Selectors => {
                    let selectors = [("labels", &config.labels), ("fields", &config.fields)];
                    let selectors =
                        selectors.iter().filter_map(|(kind, selector)| Some(format!("{kind} {}", selector.as_ref()?)));
                    let selectors = selectors.collect::<Vec<_>>().join(", ");
                    format!("does not apply: the object does not match the selectors {selectors}")
                }
            });
            return text;
        }
    };
    if !config.initial {
        line("initial list: sends nothing, `initial` is not set".to_owned());
    }
    let (mut recheck_at, mut reads) = (None, BTreeSet::new());
    for kind in [EventKind::Added, EventKind::Updated, EventKind::Deleted] {
        let state = Some(ObjectState::new(object.clone()));
        let change = ObjectChange {
            old: state.clone().filter(|_| kind != EventKind::Added),
            new: state.filter(|_| kind != EventKind::Deleted),
            // A separate record per kind: the reads of one evaluation must not count for another.
            lookups: lookups.map(|lookups| lookups.without_looked_up()),
            ..ObjectChange::new(String::new(), kind, subject.clone(), Timestamp::now())
        };
        let (name, change) = (kind.name(), Arc::new(change));
        let outcome = rule.evaluate_change(&change);
        if kind != EventKind::Deleted {
            recheck_at = recheck_at.into_iter().chain(rule.project_with_recheck(&change).1).min();
            reads.extend(change.lookups.iter().flat_map(|lookups| lookups.looked_up()));
        }
        line(match outcome {
            RuleOutcome::Fires(value) => format!("{name}: fires, sends {value} to {}", config.to.join(", ")),
            RuleOutcome::Initial(_) => continue,
            RuleOutcome::OtherEventKind => format!("{name}: does not fire, `events` excludes this kind of change"),
            // The explanation simulates an update without any difference between the states.
            RuleOutcome::DoesNotHold if kind == EventKind::Updated && !rule.paths().is_empty() => {
                format!("{name}: does not fire while {} stays the same", rule.paths().join(", "))
            }
            RuleOutcome::DoesNotHold if kind == EventKind::Updated && !rule.compares_states() => {
                format!("{name}: does not fire without a change; `when` depends on `old`")
            }
            RuleOutcome::DoesNotHold => format!("{name}: does not fire, `when` is false"),
            RuleOutcome::Failed { expression, reason } => {
                format!("{name}: does not fire, `{expression}` fails: {reason}")
            }
        });
    }
    for read in reads {
        line(format!("evaluated again when this changes: {read}"));
    }
    if let Some(at) = recheck_at {
        line(format!("evaluated again at {at}, when the result may change"));
    }
    if rule.compares_states() {
        line("an unchanged result is not sent again".to_owned());
    }
    text
}
