//! C1 to C3: deliveries to a handler for one object.

use std::time::Duration;

use serde_json::json;
use steadfast_contract::Clause::{C1, C2, C3, C4};
use steadfast_contract::{Freshness, HandlerEvent, Reason, Record, Scope, StoreContent};

use crate::scenario::{Scenario, added, deleted, inferred_deletion, key, object, resynced, updated, with_reason};

/// Returns a scope that objects can leave.
fn web_scope() -> Scope {
    Scope::all().labels("app=web")
}

#[test]
fn ordered_deliveries_pass_and_are_counted() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").deliver(updated("a", "u1", 5, 6)).deliver(resynced("a", "u1", 6));
    scenario.set(7, "a", "u1").set(8, "a", "u1").deliver(updated("a", "u1", 6, 8));
    scenario.delete(9, "a", "u1").deliver(deleted("a", "u1", 8, 9)).settle();
    scenario.assert_passes();
    let counts = scenario.report().verdict.total();
    assert_eq!((counts.changes, counts.seen, counts.coalesced, counts.lost), (5, 4, 1, 0));
    assert_eq!((counts.repeated, counts.out_of_order, counts.calls), (0, 0, 5));
}

#[test]
fn c1_recreated_object_is_deleted_and_added() {
    let recreated = || {
        let mut scenario = Scenario::with_object_a();
        scenario.delete(6, "a", "u1").set(7, "a", "u2");
        scenario
    };
    let replaced = with_reason(Reason::Replaced, inferred_deletion("a", "u1", 5));
    recreated().deliver(replaced).deliver(added("a", "u2", 7)).settle().assert_passes();
    recreated().deliver(deleted("a", "u1", 5, 6)).deliver(added("a", "u2", 7)).settle().assert_passes();

    let merged = HandlerEvent::Updated { old: object("a", "u1", 5), new: object("a", "u2", 7) };
    recreated().deliver(merged).assert_violates(&[C1]);
    recreated().deliver(added("a", "u2", 7)).assert_violates(&[C1]);
}

#[test]
fn c1_stay_starts_and_ends_once() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").deliver(added("a", "u1", 6)).assert_violates(&[C1]);

    let mut scenario = Scenario::with_object_a();
    scenario
        .delete(6, "a", "u1")
        .deliver(deleted("a", "u1", 5, 6))
        .deliver(deleted("a", "u1", 5, 6))
        .assert_violates(&[C1]);
    assert_eq!(scenario.report().verdict.total().repeated, 1);

    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").deliver(updated("a", "u1", 5, 5)).assert_violates(&[C1]);
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").deliver(resynced("a", "u1", 5)).assert_violates(&[C1]);
}

#[test]
fn c1_objects_outside_the_scope_are_violations() {
    let mut scenario = Scenario::new(web_scope());
    scenario.set_app(5, "a", "u1", "db").deliver(added("a", "u1", 5)).assert_violates(&[C1]);
}

#[test]
fn c1_stays_merge_only_across_a_list() {
    let left_and_returned = || {
        let mut scenario = Scenario::new(web_scope());
        scenario.set_app(5, "a", "u1", "web").deliver(added("a", "u1", 5));
        scenario.set_app(6, "a", "u1", "db").set_app(7, "a", "u1", "web");
        scenario
    };
    let exit_event = with_reason(Reason::DeletedOrLeft, deleted("a", "u1", 5, 6));
    left_and_returned().deliver(exit_event).deliver(added("a", "u1", 7)).settle().assert_passes();
    left_and_returned().record_relist(Some(5), 7).deliver(updated("a", "u1", 5, 7)).settle().assert_passes();

    left_and_returned().deliver(updated("a", "u1", 5, 7)).assert_violates(&[C1]);
    // The cache had followed the stream past the gap, so the list does not span it.
    left_and_returned().record_relist(Some(7), 7).deliver(updated("a", "u1", 5, 7)).assert_violates(&[C1]);
    left_and_returned().record_relist(Some(6), 7).deliver(updated("a", "u1", 5, 7)).assert_violates(&[C1]);
}

/// Creates a scenario in which `a` enters the scope at version 5 and leaves at version 6. `is_filtered` replaces the
/// selector by a filter of the handlers. `is_undecodable` makes the last state undecodable.
fn leaving_scenario(is_filtered: bool, is_undecodable: bool) -> Scenario {
    let mut scenario = Scenario::new(web_scope());
    if is_filtered {
        scenario.record(Record::Filtered { informer: "pods".into() });
    }
    scenario.set_app(5, "a", "u1", "web").deliver(added("a", "u1", 5)).set_app(6, "a", "u1", "db");
    if is_undecodable {
        let state = Freshness::Fresh { version: "6".into(), age: Duration::ZERO };
        scenario.record(Record::Freshness { informer: "pods".into(), state, tainted: vec![key("a")] });
    }
    scenario
}

#[test]
fn c1_filter_cannot_judge_undecodable_states() {
    let left_while_undecodable = |is_filtered: bool, is_undecodable: bool| {
        let mut scenario = leaving_scenario(is_filtered, is_undecodable);
        scenario.set_app(7, "a", "u1", "web").deliver(updated("a", "u1", 5, 7));
        scenario
    };
    left_while_undecodable(true, true).settle().assert_passes();
    left_while_undecodable(true, false).assert_violates(&[C1]);
    left_while_undecodable(false, true).assert_violates(&[C1]);
}

#[test]
fn c2_undelivered_deletion_is_lost() {
    let mut scenario = Scenario::with_object_a();
    scenario.delete(6, "a", "u1");
    scenario.assert_passes(); // Not settled: the event may still arrive.
    scenario.settle().assert_violates(&[C2]);
    let counts = scenario.report().verdict.total();
    assert_eq!((counts.changes, counts.seen, counts.lost), (2, 1, 1));
}

#[test]
fn c2_undelivered_object_is_lost() {
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").settle().assert_violates(&[C2]);
}

#[test]
fn c2_losses_are_judged_after_convergence_time() {
    let mut scenario = Scenario::with_object_a();
    scenario.delete(6, "a", "u1").record(Record::Quiet);
    scenario.wait(Duration::from_millis(500)).report_fresh(6, Duration::ZERO).assert_passes();
    scenario.wait(Duration::from_secs(1)).report_fresh(6, Duration::ZERO).assert_violates(&[C2]);

    // A fault ends the quiet phase.
    scenario.record(Record::Fault { name: "cut".into(), on: true }).assert_passes();
}

#[test]
fn c2_busy_removed_stopped_handlers_are_excused() {
    let with_undelivered_events = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "b", "u2").delete(7, "a", "u1");
        scenario
    };
    let mut busy = with_undelivered_events();
    busy.enter("h", added("b", "u2", 6), 0, StoreContent::NotRead);
    busy.settle().assert_passes();
    with_undelivered_events().record(Record::Removed { handler: "h".into() }).settle().assert_passes();
    with_undelivered_events().report_freshness(Freshness::Stopped).settle().assert_passes();
    with_undelivered_events().record(Record::Undelivered { handler: "h".into(), count: 2 }).settle().assert_passes();
    with_undelivered_events()
        .record(Record::Undelivered { handler: "h".into(), count: 1 })
        .settle()
        .assert_violates(&[C2]);
}

#[test]
fn c2_inferred_deletion_must_be_true() {
    Scenario::with_object_a().deliver(inferred_deletion("a", "u1", 5)).assert_violates(&[C2]);
    Scenario::with_object_a().delete(6, "a", "u1").deliver(inferred_deletion("a", "u1", 5)).settle().assert_passes();

    // A later deletion does not make the earlier report true.
    let mut scenario = Scenario::with_object_a();
    scenario.deliver(inferred_deletion("a", "u1", 5)).delete(6, "a", "u1").assert_violates(&[C2]);
}

#[test]
fn c2_observed_deletion_ends_that_stay() {
    let mut scenario = Scenario::with_object_a();
    scenario
        .delete(6, "a", "u1")
        .set(7, "a", "u2")
        .delete(8, "a", "u2")
        .deliver(deleted("a", "u1", 5, 8))
        .assert_violates(&[C2]);
    Scenario::with_object_a().set(6, "a", "u1").deliver(deleted("a", "u1", 6, 7)).assert_violates(&[C2]);
}

#[test]
fn c2_last_matching_object_is_delivered() {
    let changed = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "a", "u1").delete(7, "a", "u1");
        scenario
    };
    changed().deliver(deleted("a", "u1", 6, 7)).settle().assert_passes();
    // A list does not report the states that it skipped.
    changed().deliver(inferred_deletion("a", "u1", 5)).settle().assert_passes();
    changed().deliver(deleted("a", "u1", 5, 7)).assert_violates(&[C2]);

    let mut older_object_delivered = changed();
    older_object_delivered
        .deliver(updated("a", "u1", 5, 6))
        .deliver(inferred_deletion("a", "u1", 5))
        .assert_violates(&[C2]);

    let mut left_scope = Scenario::new(web_scope());
    left_scope.set_app(5, "a", "u1", "web").deliver(added("a", "u1", 5)).set_app(6, "a", "u1", "db");
    left_scope.deliver(with_reason(Reason::DeletedOrLeft, inferred_deletion("a", "u1", 6))).assert_violates(&[C2]);
}

#[test]
fn c2_lossy_server_excuses_older_last_object() {
    let mut scenario = Scenario::with_object_a();
    scenario.bounds.audit = Some(Duration::from_secs(1));
    scenario.set(6, "a", "u1").delete(7, "a", "u1").deliver(deleted("a", "u1", 5, 7)).settle().assert_passes();
}

#[test]
fn c2_undecodable_state_excuses_older_last_object() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").read("a", StoreContent::Undecodable { version: "6".into() });
    scenario.delete(7, "a", "u1").deliver(deleted("a", "u1", 5, 7)).settle().assert_passes();
}

#[test]
fn c2_undecodable_exit_may_end_later() {
    let left_while_undecodable = |is_filtered: bool, is_undecodable: bool, end: u64| {
        let mut scenario = leaving_scenario(is_filtered, is_undecodable);
        scenario.delete(7, "a", "u1").set_app(8, "a", "u2", "db").delete(9, "a", "u2");
        scenario.deliver(with_reason(Reason::DeletedOrLeft, deleted("a", "u1", 5, end)));
        scenario
    };
    left_while_undecodable(true, true, 6).settle().assert_passes();
    left_while_undecodable(true, true, 7).settle().assert_passes();
    // Another object of the name cannot end the stay.
    left_while_undecodable(true, true, 8).assert_violates(&[C2]);
    left_while_undecodable(true, true, 9).assert_violates(&[C2]);
    left_while_undecodable(true, false, 7).assert_violates(&[C2]);
    left_while_undecodable(false, true, 7).assert_violates(&[C2]);
}

#[test]
fn c2_reason_must_be_known() {
    let removed = |scope: Scope, reason: Reason| {
        let mut scenario = Scenario::new(scope);
        scenario.set_app(5, "a", "u1", "web").deliver(added("a", "u1", 5)).delete(6, "a", "u1");
        scenario.deliver(with_reason(reason, inferred_deletion("a", "u1", 5))).settle();
        scenario
    };
    removed(Scope::all(), Reason::Deleted).assert_passes();
    removed(web_scope(), Reason::DeletedOrLeft).assert_passes();
    removed(Scope::all().fields("metadata.name=a"), Reason::Deleted).assert_passes();
    removed(Scope::namespace("default"), Reason::Deleted).assert_passes();

    removed(web_scope(), Reason::Deleted).assert_violates(&[C2]);
    removed(Scope::all(), Reason::DeletedOrLeft).assert_violates(&[C2]);
    removed(Scope::all().fields("metadata.name=a"), Reason::DeletedOrLeft).assert_violates(&[C2]);
    removed(Scope::all(), Reason::Replaced).assert_violates(&[C2]);
}

#[test]
fn c3_versions_increase() {
    let mut scenario = Scenario::with_object_a();
    scenario
        .set(6, "a", "u1")
        .deliver(updated("a", "u1", 5, 6))
        .deliver(updated("a", "u1", 6, 6))
        .assert_violates(&[C3]);
    assert_eq!(scenario.report().verdict.total().repeated, 1);

    let mut scenario = Scenario::with_object_a();
    scenario
        .set(6, "a", "u1")
        .deliver(updated("a", "u1", 5, 6))
        .deliver(updated("a", "u1", 6, 5))
        .assert_violates(&[C3, C4]);
    assert_eq!(scenario.report().verdict.total().out_of_order, 1);
}

#[test]
fn c3_repeated_version_needs_new_epoch() {
    let mut scenario = Scenario::with_object_a();
    scenario.restore(5).epoch().deliver(updated("a", "u1", 5, 5)).assert_passes();

    let mut scenario = Scenario::with_object_a();
    scenario.restore(5).deliver(updated("a", "u1", 5, 5)).assert_violates(&[C3]);
}

#[test]
fn c3_deleted_object_stays_deleted() {
    let mut scenario = Scenario::with_object_a();
    scenario
        .delete(6, "a", "u1")
        .deliver(deleted("a", "u1", 5, 6))
        .deliver(added("a", "u1", 5))
        .assert_violates(&[C3, C4]);
}

#[test]
fn c3_unknown_states_are_violations() {
    Scenario::with_object_a().deliver(updated("a", "u1", 5, 6)).assert_violates(&[C3]);
    let mut scenario = Scenario::new(Scope::all());
    scenario.deliver(added("a", "u1", 5)).assert_violates(&[C3]);
}

#[test]
fn c3_content_must_match_version() {
    let delivered = |content: serde_json::Value| {
        let mut scenario = Scenario::new(Scope::all());
        scenario.write(5, "a", "u1", json!({ "spec": { "x": 1 }, "metadata": { "managedFields": [1] } }));
        let object = object("a", "u1", 5).with_content(&content);
        scenario.deliver(HandlerEvent::Added { object, initial: false });
        scenario
    };
    delivered(json!({ "kind": "Pod", "metadata": { "resourceVersion": "5" }, "spec": { "x": 1 } })).assert_passes();
    delivered(json!({ "metadata": {}, "spec": { "x": 2 } })).assert_violates(&[C3]);
}

#[test]
fn c3_last_version_is_never_skipped() {
    Scenario::with_object_a().set(6, "a", "u1").settle().assert_violates(&[C3]);
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1");
    let tainted = vec![key("a")];
    scenario.record(Record::Snapshot { informer: "pods".into(), objects: vec![object("a", "u1", 5)], tainted });
    scenario.settle().assert_passes();
}

#[test]
fn c3_deletion_version_matches_certainty() {
    let removed = || {
        let mut scenario = Scenario::with_object_a();
        scenario.delete(6, "a", "u1");
        scenario
    };
    let HandlerEvent::Deleted { last, reason, .. } = inferred_deletion("a", "u1", 5) else { unreachable!() };
    let delivered = |version: Option<&str>, certainty| HandlerEvent::Deleted {
        last: last.clone(),
        version: version.map(str::to_owned),
        certainty,
        reason,
    };
    removed().deliver(delivered(Some("6"), steadfast_contract::Certainty::Inferred)).assert_violates(&[C3]);
    removed().deliver(delivered(None, steadfast_contract::Certainty::Observed)).assert_violates(&[C3]);
    removed().deliver(delivered(Some("5"), steadfast_contract::Certainty::Observed)).assert_violates(&[C2, C3]);
}

#[test]
fn c3_resync_repeats_last_delivery() {
    Scenario::with_object_a().set(6, "a", "u1").deliver(resynced("a", "u1", 6)).assert_violates(&[C3]);
}

#[test]
fn c3_call_after_panic_is_a_retry() {
    let panicked = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "a", "u1").deliver_and_panic(updated("a", "u1", 5, 6), 0);
        scenario
    };
    panicked().redeliver(updated("a", "u1", 5, 6), 1).settle().assert_passes();
    panicked()
        .deliver_and_panic(updated("a", "u1", 5, 6), 1)
        .redeliver(updated("a", "u1", 5, 6), 2)
        .settle()
        .assert_passes();
    // A started call counts as delivered, so a newer state may follow immediately.
    panicked().set(7, "a", "u1").deliver(updated("a", "u1", 6, 7)).settle().assert_passes();

    panicked()
        .redeliver(updated("a", "u1", 5, 6), 0)
        .assert_violates(&[steadfast_contract::Clause::C3, steadfast_contract::Clause::C5]);
    panicked().redeliver(updated("a", "u1", 5, 6), 2).assert_violates(&[C3]);
    let mut without_panic = Scenario::with_object_a();
    without_panic.redeliver(added("a", "u1", 5), 1).assert_violates(&[C3]);
}

#[test]
fn c3_panic_is_retried_or_skipped() {
    let panicked = || {
        let mut scenario = Scenario::with_object_a();
        scenario.delete(6, "a", "u1").deliver_and_panic(deleted("a", "u1", 5, 6), 0);
        scenario
    };
    let skipped = || Record::Skipped { handler: "h".into(), object: object("a", "u1", 5) };
    let mut scenario = panicked();
    scenario.record(skipped()).settle().assert_passes();
    assert_eq!(scenario.report().verdict.total().skipped, 1);
    panicked().settle().assert_violates(&[C3]);
    Scenario::with_object_a().record(skipped()).assert_violates(&[C3]);
}
