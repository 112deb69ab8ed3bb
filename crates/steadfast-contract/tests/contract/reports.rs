//! Reports, serialization, and recordings that cannot be checked.

use std::time::Duration;

use steadfast_contract::{Clause, Entry, History, Record, Scope, StoreContent, Trace, check};

use crate::scenario::{Scenario, added, deleted, updated};

#[test]
fn violation_names_clause_object_and_times() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").deliver(updated("a", "u1", 6, 6));
    let error = scenario.bounds.check(&scenario.history, &scenario.trace).unwrap_err();
    let violation = error.violations_of(Clause::C5).next().unwrap();
    assert_eq!(
        violation.to_string(),
        "C5 (old and new): default/a, handler h of informer pods, 40.000ms to 70.000ms: \
         Updated(uid u1 v6 to v6): the handler last received uid u1 v5"
    );
    assert_eq!(violation.times, (Duration::from_millis(40), Duration::from_millis(70)));
    assert!(error.to_string().contains("the contract is violated 1 time(s)"));
}

#[test]
fn stored_recordings_can_be_judged_later() {
    let mut scenario = Scenario::with_object_a();
    scenario.delete(6, "a", "u1").deliver(deleted("a", "u1", 5, 6)).settle().restore(5);
    let history: History = serde_json::from_str(&serde_json::to_string(&scenario.history).unwrap()).unwrap();
    let trace: Trace = serde_json::from_str(&serde_json::to_string(&scenario.trace).unwrap()).unwrap();
    assert_eq!((&history, &trace), (&scenario.history, &scenario.trace));
}

#[test]
fn trace_of_several_types_is_judged_separately() {
    let mut scenario = Scenario::with_object_a();
    scenario.record(Record::informer("nodes", Scope::all())).record(Record::registered("n", "nodes"));
    let call = scenario.enter("n", added("node-1", "u9", 3), 0, StoreContent::NotRead);
    scenario.record(Record::returned("n", call)).settle();
    assert!(scenario.bounds.check(&scenario.history, &scenario.trace).is_err());
    let pods = scenario.trace.for_informers(|informer| informer == "pods");
    scenario.bounds.check(&scenario.history, &pods).unwrap();
    assert_eq!(pods.entries().len(), 6);
}

#[test]
fn state_before_a_change_is_derived() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "b", "u2").delete(7, "a", "u1");
    assert_eq!(scenario.history.previous(0), None);
    assert_eq!(scenario.history.previous(2), scenario.history.changes()[0].object.as_ref());
}

#[test]
fn contradictory_recordings_never_pass() {
    let at = Duration::from_millis;
    let entry = |ms: u64, record: Record| Entry { at: at(ms), record };
    let informer = || entry(0, Record::informer("pods", Scope::all()));
    let handler = || entry(0, Record::registered("h", "pods"));
    let entered = || entry(1, Record::entered("h", 1, added("a", "u1", 5), StoreContent::NotRead));
    let traces = [
        vec![handler()],
        vec![informer(), informer()],
        vec![informer(), handler(), handler()],
        vec![entry(0, Record::informer("pods", Scope::all().labels("a in")))],
        vec![informer(), entered()],
        vec![informer(), handler(), entered(), entered()],
        vec![informer(), handler(), entry(1, Record::returned("h", 1))],
        vec![informer(), entry(1, Record::Epoch { informer: "nodes".into() })],
        vec![entry(1, Record::Quiet), entry(0, Record::Settled)],
    ];
    for trace in traces {
        let trace: Trace = trace.into_iter().collect();
        let error = check(&History::new(), &trace).unwrap_err();
        assert!(!error.malformed.is_empty(), "{trace:?}");
    }
    let mut with_decreasing_version = Scenario::with_object_a();
    with_decreasing_version.set(4, "b", "u2");
    assert!(!with_decreasing_version.report().malformed.is_empty());
}

#[test]
fn contradictory_recording_is_named_in_headline() {
    let entry = |ms: u64, record: Record| Entry { at: Duration::from_millis(ms), record };
    let trace: Trace = [entry(1, Record::Quiet), entry(0, Record::Settled)].into_iter().collect();
    let error = check(&History::new(), &trace).unwrap_err();
    assert!(error.violations.is_empty() && !error.malformed.is_empty(), "{error:#?}");
    assert!(error.to_string().starts_with("the recording contradicts itself and cannot be checked\n"), "{error}");
}

/// Returns the missing evidence of a scenario without violations.
fn missing_evidence(scenario: &Scenario) -> String {
    let report = scenario.report();
    assert!(report.has_no_violation() && !report.passed(), "{report:#?}");
    let error = report.clone().into_result().expect_err("evidence is missing");
    assert_eq!(error.inconclusive, report.inconclusive);
    assert!(error.to_string().starts_with("the trace has too little evidence that the contract is kept"), "{error}");
    error.to_string()
}

#[test]
fn only_settled_traces_with_changes_pass() {
    let mut scenario = Scenario::with_object_a();
    assert!(missing_evidence(&scenario).contains("has not settled"));
    scenario.record(Record::Settled);
    assert!(missing_evidence(&scenario).contains("has not settled"), "a trace without a quiet phase is unsettled too");
    scenario.settle();
    assert!(scenario.report().passed(), "{:#?}", scenario.report());

    // A misspelt resource name has the same effect: no change ever happens to that resource.
    let mut empty = Scenario::with_object_a();
    (empty.history, empty.trace) = (History::new(), Trace::new());
    assert!(missing_evidence(&empty).contains("no informer was recorded"));
    empty.record(Record::informer("pods", Scope::all())).record(Record::registered("h", "pods")).settle();
    assert!(missing_evidence(&empty).contains("its plural name is needed"));
}

#[test]
fn informer_without_records_is_named() {
    let mut scenario = Scenario::with_object_a();
    scenario.record(Record::informer("others", Scope::all())).settle();
    assert!(missing_evidence(&scenario).contains("informer others: no content of its cache"));
    scenario.record(Record::Snapshot { informer: "others".into(), objects: Vec::new(), tainted: Vec::new() });
    assert!(scenario.report().inconclusive.is_empty());

    let mut stopped = Scenario::with_object_a();
    stopped.report_freshness(steadfast_contract::Freshness::Stopped).settle();
    assert!(missing_evidence(&stopped).contains("every informer was stopped"));
}
