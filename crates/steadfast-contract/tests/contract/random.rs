//! Random histories: the reference informer keeps the contract on each of them, and each change of its trace violates
//! the contract.

use proptest::prelude::*;
use steadfast_contract::{Clause, Entry, HandlerEvent, Record, Report, Trace};

use crate::model::{Step, run};

fn step() -> impl Strategy<Value = Step> {
    let informer = 0..2_usize;
    prop_oneof![
        6 => (0..3_usize, any::<bool>()).prop_map(|(name, is_web)| Step::Write { name, is_web }),
        3 => (0..3_usize).prop_map(|name| Step::Delete { name }),
        1 => (0..6_u64).prop_map(|back| Step::Restore { back }),
        6 => (informer.clone(), 1..4_usize).prop_map(|(informer, changes)| Step::Deliver { informer, changes }),
        2 => informer.clone().prop_map(|informer| Step::List { informer }),
        8 => (informer.clone(), any::<bool>(), 0..12_u32).prop_map(|(informer, is_late, panics)| {
            Step::Call { informer, is_late, panics: panics.saturating_sub(9) }
        }),
        1 => informer.clone().prop_map(|informer| Step::Register { informer }),
        1 => informer.clone().prop_map(|informer| Step::Resync { informer }),
        2 => informer.prop_map(|informer| Step::Read { informer }),
    ]
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reference_informer_keeps_the_contract(steps in script()) {
        let (history, trace, bounds) = run(&steps);
        let report = bounds.report(&history, &trace);
        prop_assert!(report.has_no_violation(), "{:#?}", report);
        // A script may contain no write.
        prop_assert_eq!(report.passed(), !history.changes().is_empty());
    }

    #[test]
    fn counts_of_settled_trace_add_up(steps in script()) {
        let (history, trace, bounds) = run(&steps);
        let report = bounds.report(&history, &trace);
        prop_assert!(report.verdict.settled);
        for counts in report.verdict.handlers.values() {
            prop_assert_eq!(counts.changes, counts.seen + counts.coalesced + counts.lost);
            prop_assert_eq!((counts.lost, counts.repeated, counts.out_of_order), (0, 0, 0));
        }
    }

    #[test]
    fn dropped_deletion_is_detected(steps in script(), position: prop::sample::Index) {
        let dropped = corrupt_trace(&steps, position, |entries| {
            let deletions = calls(entries).filter(|(_, event)| matches!(event, HandlerEvent::Deleted { .. }));
            deletions.map(|(at, _)| at).collect()
        }, |entries, at| {
            remove_event(entries, at);
        });
        if let Some(report) = dropped {
            let mut violations = report.violations_of(Clause::C1).chain(report.violations_of(Clause::C2));
            prop_assert!(violations.next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn dropped_final_state_is_detected(steps in script(), position: prop::sample::Index) {
        let dropped = corrupt_trace(&steps, position, |entries| {
            let is_last_of_target = |at: &usize| {
                let target_of = |at: usize| {
                    (entries[at].record.handler_name(), event(&entries[at]).map(HandlerEvent::key))
                };
                calls(entries).all(|(later, _)| later <= *at || target_of(later) != target_of(*at))
            };
            let objects = calls(entries)
                .filter(|(_, event)| matches!(event, HandlerEvent::Added { .. } | HandlerEvent::Updated { .. }));
            objects.map(|(at, _)| at).filter(is_last_of_target).collect()
        }, |entries, at| {
            remove_event(entries, at);
        });
        if let Some(report) = dropped {
            let mut violations = report.violations_of(Clause::C2).chain(report.violations_of(Clause::C3));
            prop_assert!(violations.next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn swapped_events_are_detected(steps in script(), position: prop::sample::Index) {
        let swapped = corrupt_trace(&steps, position, |entries| {
            let has_distinct_successor = |at: &usize| next_call(entries, *at).is_some_and(|later| {
                let is_change = |at: usize| !matches!(event(&entries[at]), None | Some(HandlerEvent::Resynced { .. }));
                is_change(*at) && is_change(later) && event(&entries[*at]) != event(&entries[later])
            });
            calls(entries).map(|(at, _)| at).filter(has_distinct_successor).collect()
        }, |entries, at| {
            let later = next_call(entries, at).expect("a matching event");
            let (first, second) = (event(&entries[at]).cloned(), event(&entries[later]).cloned());
            replace(&mut entries[at], second.expect("a call"));
            replace(&mut entries[later], first.expect("a call"));
        });
        if let Some(report) = swapped {
            prop_assert!(!report.passed());
        }
    }

    #[test]
    fn merged_identities_are_detected(steps in script(), position: prop::sample::Index) {
        let merged = corrupt_trace(&steps, position, |entries| {
            let precedes_recreation = |at: &usize| next_call(entries, *at).is_some_and(|later| {
                matches!((event(&entries[*at]), event(&entries[later])),
                    (Some(HandlerEvent::Deleted { last, .. }), Some(HandlerEvent::Added { object, .. }))
                        if last.uid != object.uid)
            });
            calls(entries).map(|(at, _)| at).filter(precedes_recreation).collect()
        }, |entries, at| {
            let later = next_call(entries, at).expect("a matching event");
            let old = event(&entries[at]).expect("a call").object().clone();
            let new = event(&entries[later]).expect("a call").object().clone();
            replace(&mut entries[later], HandlerEvent::Updated { old, new });
            remove_event(entries, at);
        });
        if let Some(report) = merged {
            prop_assert!(report.violations_of(Clause::C1).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn undelivered_old_state_is_detected(steps in script(), position: prop::sample::Index) {
        let stale = corrupt_trace(&steps, position, |entries| {
            let updates = calls(entries).filter(|(_, event)| matches!(event, HandlerEvent::Updated { .. }));
            updates.map(|(at, _)| at).collect()
        }, |entries, at| {
            let Some(HandlerEvent::Updated { old, new }) = event(&entries[at]).cloned() else {
                unreachable!("an update")
            };
            let old = steadfast_contract::ObjectVersionRef { version: format!("{}0", old.version), ..old };
            replace(&mut entries[at], HandlerEvent::Updated { old, new });
        });
        if let Some(report) = stale {
            prop_assert!(report.violations_of(Clause::C5).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn duplicate_event_is_detected(steps in script(), position: prop::sample::Index) {
        let repeated = corrupt_trace(&steps, position, |entries| {
            let has_returned = |at: &usize| return_of(entries, *at).is_some();
            let repeatable_calls = calls(entries).filter(|(_, event)| !matches!(event, HandlerEvent::Resynced { .. }));
            repeatable_calls.map(|(at, _)| at).filter(has_returned).collect()
        }, |entries, at| {
            let end = return_of(entries, at).expect("a matching event");
            let (mut repeated_call, mut repeated_end) = (entries[at].clone(), entries[end].clone());
            repeated_call.at = repeated_end.at;
            if let Record::Entered { call, retry, .. } = &mut repeated_call.record {
                (*call, *retry) = (u64::MAX, 0);
            }
            if let Record::Returned { call, .. } = &mut repeated_end.record {
                *call = u64::MAX;
            }
            entries.insert(end + 1, repeated_call);
            entries.insert(end + 2, repeated_end);
        });
        if let Some(report) = repeated {
            // After a restore to an equal state, a repeated delivery is valid, but not with the same old state.
            let counts = [Clause::C1, Clause::C3, Clause::C5].map(|clause| report.violations_of(clause).count());
            prop_assert!(counts != [0; 3], "{:#?}", report);
        }
    }

    #[test]
    fn missing_object_is_detected(steps in script(), position: prop::sample::Index) {
        let missing = corrupt_trace(&steps, position, |entries| {
            let last = entries.iter().rposition(|entry| matches!(&entry.record, Record::Snapshot { .. }));
            let has_objects = |at: &usize| {
                matches!(&entries[*at].record, Record::Snapshot { objects, .. } if !objects.is_empty())
            };
            last.into_iter().filter(has_objects).collect()
        }, |entries, at| {
            if let Record::Snapshot { objects, .. } = &mut entries[at].record {
                objects.pop();
            }
        });
        if let Some(report) = missing {
            prop_assert!(report.violations_of(Clause::C11).next().is_some(), "{:#?}", report);
        }
    }
}

/// Runs the script and corrupts the trace at one of the positions that `positions` returns. Returns `None` if there is
/// no such position.
fn corrupt_trace(
    steps: &[Step],
    position: prop::sample::Index,
    positions: impl Fn(&[Entry]) -> Vec<usize>,
    corrupt: impl Fn(&mut Vec<Entry>, usize),
) -> Option<Report> {
    let (history, trace, bounds) = run(steps);
    let mut entries = trace.entries().to_vec();
    let positions = positions(&entries);
    if positions.is_empty() {
        return None;
    }
    corrupt(&mut entries, *position.get(&positions));
    let report = bounds.report(&history, &entries.into_iter().collect::<Trace>());
    assert_eq!(report.malformed, [], "the corrupted trace can be checked");
    Some(report)
}

fn event(entry: &Entry) -> Option<&HandlerEvent> {
    match &entry.record {
        Record::Entered { event, .. } => Some(event),
        _ => None,
    }
}

/// Returns all calls except retries.
fn calls(entries: &[Entry]) -> impl Iterator<Item = (usize, &HandlerEvent)> {
    let is_first_attempt = |entry: &Entry| matches!(entry.record, Record::Entered { retry: 0, .. });
    entries
        .iter()
        .enumerate()
        .filter(move |(_, entry)| is_first_attempt(entry))
        .filter_map(|(at, entry)| Some((at, event(entry)?)))
}

/// Returns the handler's next call for the same name, except retries. Returns `None` if one of the two calls panicked.
fn next_call(entries: &[Entry], at: usize) -> Option<usize> {
    let target_of = |at: usize| (entries[at].record.handler_name(), event(&entries[at]).map(HandlerEvent::key));
    let later =
        calls(entries).map(|(later, _)| later).find(|later| *later > at && target_of(*later) == target_of(at))?;
    (return_of(entries, at).is_some() && return_of(entries, later).is_some()).then_some(later)
}

/// Returns the index of the record at which the call at `at` returned; `None` if the call panicked.
fn return_of(entries: &[Entry], at: usize) -> Option<usize> {
    let Record::Entered { handler, call, .. } = &entries[at].record else { return None };
    entries.iter().position(|entry| {
        matches!(&entry.record, Record::Returned { handler: name, call: number } if name == handler && number == call)
    })
}

fn replace(entry: &mut Entry, replacement: HandlerEvent) {
    if let Record::Entered { event, .. } = &mut entry.record {
        *event = replacement;
    }
}

/// Removes a call and all its retries.
fn remove_event(entries: &mut Vec<Entry>, at: usize) {
    let Record::Entered { handler, event, .. } = entries[at].record.clone() else { return };
    let is_same_event = |entry: &Entry| match &entry.record {
        Record::Entered { handler: other_handler, event: other_event, .. } => {
            *other_handler == handler && *other_event == event
        }
        _ => false,
    };
    let mut removed = Vec::new();
    let mut first = true;
    for entry in &entries[at..] {
        match &entry.record {
            Record::Entered { call, retry, .. } if is_same_event(entry) => {
                if *retry == 0 && !first {
                    break;
                }
                first = false;
                removed.push(*call);
            }
            _ => {}
        }
    }
    entries.retain(|entry| match &entry.record {
        Record::Entered { call, .. } | Record::Returned { call, .. } | Record::Panicked { call, .. } => {
            !removed.contains(call)
        }
        Record::Skipped { handler: other_handler, object } => !(*other_handler == handler && object == event.object()),
        _ => true,
    });
}
