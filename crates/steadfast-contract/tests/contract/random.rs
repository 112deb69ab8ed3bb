//! Random histories: the reference informer keeps the contract on each of them, and each change of its trace violates
//! the contract.

use proptest::prelude::*;
use steadfast_contract::{Clause, Entry, HandlerEvent, Record, Report, Trace};

use crate::model::{Step, run};

fn step() -> impl Strategy<Value = Step> {
    let informer = 0..2_usize;
    prop_oneof![
        6 => (0..3_usize, any::<bool>()).prop_map(|(name, web)| Step::Write { name, web }),
        3 => (0..3_usize).prop_map(|name| Step::Delete { name }),
        1 => (0..6_u64).prop_map(|back| Step::Restore { back }),
        6 => (informer.clone(), 1..4_usize).prop_map(|(informer, changes)| Step::Deliver { informer, changes }),
        2 => informer.clone().prop_map(|informer| Step::List { informer }),
        8 => (informer.clone(), any::<bool>(), 0..12_u32).prop_map(|(informer, late, panics)| {
            Step::Call { informer, late, panics: panics.saturating_sub(9) }
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
        for tally in report.verdict.handlers.values() {
            prop_assert_eq!(tally.changes, tally.seen + tally.coalesced + tally.lost);
            prop_assert_eq!((tally.lost, tally.repeated, tally.out_of_order), (0, 0, 0));
        }
    }

    #[test]
    fn dropped_deletion_is_detected(steps in script(), which: prop::sample::Index) {
        let dropped = corrupted(&steps, which, |entries| {
            calls(entries).filter(|(_, seen)| matches!(seen, HandlerEvent::Deleted { .. })).map(|(at, _)| at).collect()
        }, |entries, at| {
            remove_event(entries, at);
        });
        if let Some(report) = dropped {
            prop_assert!(report.of(Clause::C1).chain(report.of(Clause::C2)).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn dropped_final_state_is_detected(steps in script(), which: prop::sample::Index) {
        let dropped = corrupted(&steps, which, |entries| {
            let last = |at: &usize| {
                let target_of = |at: usize| (entries[at].record.handler_name(), event(&entries[at]).map(HandlerEvent::key));
                calls(entries).all(|(later, _)| later <= *at || target_of(later) != target_of(*at))
            };
            let shown = calls(entries).filter(|(_, seen)| matches!(seen, HandlerEvent::Added { .. } | HandlerEvent::Updated { .. }));
            shown.map(|(at, _)| at).filter(last).collect()
        }, |entries, at| {
            remove_event(entries, at);
        });
        if let Some(report) = dropped {
            prop_assert!(report.of(Clause::C2).chain(report.of(Clause::C3)).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn swapped_events_are_detected(steps in script(), which: prop::sample::Index) {
        let swapped = corrupted(&steps, which, |entries| {
            let distinct = |at: &usize| next(entries, *at).is_some_and(|later| {
                let plain = |at: usize| !matches!(event(&entries[at]), None | Some(HandlerEvent::Resynced { .. }));
                plain(*at) && plain(later) && event(&entries[*at]) != event(&entries[later])
            });
            calls(entries).map(|(at, _)| at).filter(distinct).collect()
        }, |entries, at| {
            let later = next(entries, at).expect("a matching event");
            let (first, second) = (event(&entries[at]).cloned(), event(&entries[later]).cloned());
            replace(&mut entries[at], second.expect("a call"));
            replace(&mut entries[later], first.expect("a call"));
        });
        if let Some(report) = swapped {
            prop_assert!(!report.passed());
        }
    }

    #[test]
    fn merged_identities_are_detected(steps in script(), which: prop::sample::Index) {
        let merged = corrupted(&steps, which, |entries| {
            let recreated = |at: &usize| next(entries, *at).is_some_and(|later| {
                matches!((event(&entries[*at]), event(&entries[later])),
                    (Some(HandlerEvent::Deleted { last, .. }), Some(HandlerEvent::Added { object, .. })) if last.uid != object.uid)
            });
            calls(entries).map(|(at, _)| at).filter(recreated).collect()
        }, |entries, at| {
            let later = next(entries, at).expect("a matching event");
            let old = event(&entries[at]).expect("a call").object().clone();
            let new = event(&entries[later]).expect("a call").object().clone();
            replace(&mut entries[later], HandlerEvent::Updated { old, new });
            remove_event(entries, at);
        });
        if let Some(report) = merged {
            prop_assert!(report.of(Clause::C1).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn undelivered_old_state_is_detected(steps in script(), which: prop::sample::Index) {
        let stale = corrupted(&steps, which, |entries| {
            calls(entries).filter(|(_, seen)| matches!(seen, HandlerEvent::Updated { .. })).map(|(at, _)| at).collect()
        }, |entries, at| {
            let Some(HandlerEvent::Updated { old, new }) = event(&entries[at]).cloned() else { unreachable!("an update") };
            let old = steadfast_contract::ObjectVersionRef { version: format!("{}0", old.version), ..old };
            replace(&mut entries[at], HandlerEvent::Updated { old, new });
        });
        if let Some(report) = stale {
            prop_assert!(report.of(Clause::C5).next().is_some(), "{:#?}", report);
        }
    }

    #[test]
    fn duplicate_event_is_detected(steps in script(), which: prop::sample::Index) {
        let repeated = corrupted(&steps, which, |entries| {
            let once = |at: &usize| returned(entries, *at).is_some();
            let telling = calls(entries).filter(|(_, seen)| !matches!(seen, HandlerEvent::Resynced { .. }));
            telling.map(|(at, _)| at).filter(once).collect()
        }, |entries, at| {
            let end = returned(entries, at).expect("a matching event");
            let (mut again, mut end_again) = (entries[at].clone(), entries[end].clone());
            again.at = end_again.at;
            if let Record::Entered { call, retry, .. } = &mut again.record {
                (*call, *retry) = (u64::MAX, 0);
            }
            if let Record::Returned { call, .. } = &mut end_again.record {
                *call = u64::MAX;
            }
            entries.insert(end + 1, again);
            entries.insert(end + 2, end_again);
        });
        if let Some(report) = repeated {
            // After a restore to an equal state, a repeated delivery is valid, but not with the same old state.
            let counts = [Clause::C1, Clause::C3, Clause::C5].map(|clause| report.of(clause).count());
            prop_assert!(counts != [0; 3], "{:#?}", report);
        }
    }

    #[test]
    fn missing_object_is_detected(steps in script(), which: prop::sample::Index) {
        let missing = corrupted(&steps, which, |entries| {
            let last = entries.iter().rposition(|entry| matches!(&entry.record, Record::Snapshot { .. }));
            let full = |at: &usize| matches!(&entries[*at].record, Record::Snapshot { objects, .. } if !objects.is_empty());
            last.into_iter().filter(full).collect()
        }, |entries, at| {
            if let Record::Snapshot { objects, .. } = &mut entries[at].record {
                objects.pop();
            }
        });
        if let Some(report) = missing {
            prop_assert!(report.of(Clause::C11).next().is_some(), "{:#?}", report);
        }
    }
}

/// Runs the script and corrupts the trace at one of the positions that `places` returns. Returns `None` if there is no
/// such position.
fn corrupted(
    steps: &[Step],
    which: prop::sample::Index,
    places: impl Fn(&[Entry]) -> Vec<usize>,
    spoil: impl Fn(&mut Vec<Entry>, usize),
) -> Option<Report> {
    let (history, trace, bounds) = run(steps);
    let mut entries = trace.entries().to_vec();
    let places = places(&entries);
    if places.is_empty() {
        return None;
    }
    spoil(&mut entries, *which.get(&places));
    let report = bounds.report(&history, &entries.into_iter().collect::<Trace>());
    assert_eq!(report.malformed, [], "the corrupted trace can be judged");
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
    let first = |entry: &Entry| matches!(entry.record, Record::Entered { retry: 0, .. });
    entries
        .iter()
        .enumerate()
        .filter(move |(_, entry)| first(entry))
        .filter_map(|(at, entry)| Some((at, event(entry)?)))
}

/// Returns the handler's next call for the same name, if both calls are neither retries nor retried.
fn next(entries: &[Entry], at: usize) -> Option<usize> {
    let target_of = |at: usize| (entries[at].record.handler_name(), event(&entries[at]).map(HandlerEvent::key));
    let later =
        calls(entries).map(|(later, _)| later).find(|later| *later > at && target_of(*later) == target_of(at))?;
    (returned(entries, at).is_some() && returned(entries, later).is_some()).then_some(later)
}

/// Returns the index of the record at which the call at `at` returned; `None` if the call panicked.
fn returned(entries: &[Entry], at: usize) -> Option<usize> {
    let Record::Entered { handler, call, .. } = &entries[at].record else { return None };
    entries.iter().position(|entry| {
        matches!(&entry.record, Record::Returned { handler: of, call: ended } if of == handler && ended == call)
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
    let is_same_event = |entry: &Entry| matches!(&entry.record, Record::Entered { handler: of, event: seen, .. } if *of == handler && *seen == event);
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
        Record::Skipped { handler: of, object } => !(*of == handler && object == event.object()),
        _ => true,
    });
}
