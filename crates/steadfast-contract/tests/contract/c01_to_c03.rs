//! C1 to C3: what a handler is told of one object.

use std::time::Duration;

use serde_json::json;
use steadfast_contract::Clause::{C1, C2, C3, C4};
use steadfast_contract::{Freshness, Reason, Record, Scope, Seen, StoreHeld};

use crate::scenario::{Scenario, added, because, deleted, inferred, key, object, resynced, updated};

/// A scope that objects can leave.
fn web() -> Scope {
    Scope::all().labels("app=web")
}

#[test]
fn a_life_told_in_order_passes_and_is_counted() {
    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1").tell(updated("a", "u1", 5, 6)).tell(resynced("a", "u1", 6));
    scenario.set(7, "a", "u1").set(8, "a", "u1").tell(updated("a", "u1", 6, 8));
    scenario.gone(9, "a", "u1").tell(deleted("a", "u1", 8, 9)).settled();
    scenario.passes();
    let tally = scenario.judge().verdict.total();
    assert_eq!((tally.changes, tally.seen, tally.coalesced, tally.lost), (5, 4, 1, 0));
    assert_eq!((tally.repeated, tally.out_of_order, tally.calls), (0, 0, 5));
}

#[test]
fn c1_a_recreated_object_is_a_delete_and_an_add() {
    let recreated = || {
        let mut scenario = Scenario::of_a();
        scenario.gone(6, "a", "u1").set(7, "a", "u2");
        scenario
    };
    let replaced = because(Reason::Replaced, inferred("a", "u1", 5));
    recreated().tell(replaced).tell(added("a", "u2", 7)).settled().passes();
    recreated().tell(deleted("a", "u1", 5, 6)).tell(added("a", "u2", 7)).settled().passes();

    let merged = Seen::Updated { old: object("a", "u1", 5), new: object("a", "u2", 7) };
    recreated().tell(merged).breaks(&[C1]);
    recreated().tell(added("a", "u2", 7)).breaks(&[C1]);
}

#[test]
fn c1_a_stay_begins_once_and_ends_once() {
    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1").tell(added("a", "u1", 6)).breaks(&[C1]);

    let mut scenario = Scenario::of_a();
    scenario.gone(6, "a", "u1").tell(deleted("a", "u1", 5, 6)).tell(deleted("a", "u1", 5, 6)).breaks(&[C1]);
    assert_eq!(scenario.judge().verdict.total().repeated, 1);

    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").tell(updated("a", "u1", 5, 5)).breaks(&[C1]);
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").tell(resynced("a", "u1", 5)).breaks(&[C1]);
}

#[test]
fn c1_objects_outside_of_the_scope_are_not_shown() {
    let mut scenario = Scenario::new(web());
    scenario.set_app(5, "a", "u1", "db").tell(added("a", "u1", 5)).breaks(&[C1]);
}

#[test]
fn c1_two_stays_are_told_as_one_only_where_a_list_spans_the_gap() {
    let left_and_back = || {
        let mut scenario = Scenario::new(web());
        scenario.set_app(5, "a", "u1", "web").tell(added("a", "u1", 5));
        scenario.set_app(6, "a", "u1", "db").set_app(7, "a", "u1", "web");
        scenario
    };
    let left = because(Reason::DeletedOrLeft, deleted("a", "u1", 5, 6));
    left_and_back().tell(left).tell(added("a", "u1", 7)).settled().passes();
    left_and_back().relisted(Some(5), 7).tell(updated("a", "u1", 5, 7)).settled().passes();

    left_and_back().tell(updated("a", "u1", 5, 7)).breaks(&[C1]);
    // The store had followed the stream past the gap, so the list does not span it.
    left_and_back().relisted(Some(7), 7).tell(updated("a", "u1", 5, 7)).breaks(&[C1]);
    left_and_back().relisted(Some(6), 7).tell(updated("a", "u1", 5, 7)).breaks(&[C1]);
}

/// What was in scope at 5 leaves it at 6: a selector's, or a filter's too; in a state that does not decode, or in one that does.
fn left(filtered: bool, unknown: bool) -> Scenario {
    let mut scenario = Scenario::new(web());
    if filtered {
        scenario.record(Record::Filtered { informer: "pods".into() });
    }
    scenario.set_app(5, "a", "u1", "web").tell(added("a", "u1", 5)).set_app(6, "a", "u1", "db");
    if unknown {
        let state = Freshness::Fresh { version: "6".into(), age: Duration::ZERO };
        scenario.record(Record::Freshness { informer: "pods".into(), state, tainted: vec![key("a")] });
    }
    scenario
}

#[test]
fn c1_a_filter_cannot_judge_what_does_not_decode_and_a_selector_can() {
    let left_unseen = |filtered: bool, unknown: bool| {
        let mut scenario = left(filtered, unknown);
        scenario.set_app(7, "a", "u1", "web").tell(updated("a", "u1", 5, 7));
        scenario
    };
    left_unseen(true, true).settled().passes();
    left_unseen(true, false).breaks(&[C1]);
    left_unseen(false, true).breaks(&[C1]);
}

#[test]
fn c2_a_deletion_that_is_never_told_is_lost() {
    let mut scenario = Scenario::of_a();
    scenario.gone(6, "a", "u1");
    scenario.passes(); // Not settled: it may still come.
    scenario.settled().breaks(&[C2]);
    let tally = scenario.judge().verdict.total();
    assert_eq!((tally.changes, tally.seen, tally.lost), (2, 1, 1));
}

#[test]
fn c2_an_object_that_is_never_told_is_lost() {
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").settled().breaks(&[C2]);
}

#[test]
fn c2_losses_are_judged_after_the_time_to_converge_too() {
    let mut scenario = Scenario::of_a();
    scenario.gone(6, "a", "u1").record(Record::Quiet);
    scenario.wait(Duration::from_millis(500)).fresh(6, Duration::ZERO).passes();
    scenario.wait(Duration::from_secs(1)).fresh(6, Duration::ZERO).breaks(&[C2]);

    // A fault takes the quiet back.
    scenario.record(Record::Fault { name: "cut".into(), on: true }).passes();
}

#[test]
fn c2_handlers_that_are_busy_or_removed_or_stopped_are_excused() {
    let lost = || {
        let mut scenario = Scenario::of_a();
        scenario.set(6, "b", "u2").gone(7, "a", "u1");
        scenario
    };
    let mut busy = lost();
    busy.enter("h", added("b", "u2", 6), 0, StoreHeld::NotAsked);
    busy.settled().passes();
    lost().record(Record::Removed { handler: "h".into() }).settled().passes();
    lost().freshness(Freshness::Stopped).settled().passes();
    lost().record(Record::Undelivered { handler: "h".into(), count: 2 }).settled().passes();
    lost().record(Record::Undelivered { handler: "h".into(), count: 1 }).settled().breaks(&[C2]);
}

#[test]
fn c2_what_is_inferred_is_true() {
    Scenario::of_a().tell(inferred("a", "u1", 5)).breaks(&[C2]);
    Scenario::of_a().gone(6, "a", "u1").tell(inferred("a", "u1", 5)).settled().passes();

    // That it goes later does not make it true.
    let mut scenario = Scenario::of_a();
    scenario.tell(inferred("a", "u1", 5)).gone(6, "a", "u1").breaks(&[C2]);
}

#[test]
fn c2_what_is_observed_is_the_end_of_that_stay() {
    let mut scenario = Scenario::of_a();
    scenario.gone(6, "a", "u1").set(7, "a", "u2").gone(8, "a", "u2").tell(deleted("a", "u1", 5, 8)).breaks(&[C2]);
    Scenario::of_a().set(6, "a", "u1").tell(deleted("a", "u1", 6, 7)).breaks(&[C2]);
}

#[test]
fn c2_the_last_object_that_matched_is_told() {
    let changed = || {
        let mut scenario = Scenario::of_a();
        scenario.set(6, "a", "u1").gone(7, "a", "u1");
        scenario
    };
    changed().tell(deleted("a", "u1", 6, 7)).settled().passes();
    // A list cannot tell what it skipped.
    changed().tell(inferred("a", "u1", 5)).settled().passes();
    changed().tell(deleted("a", "u1", 5, 7)).breaks(&[C2]);

    let mut back = changed();
    back.tell(updated("a", "u1", 5, 6)).tell(inferred("a", "u1", 5)).breaks(&[C2]);

    let mut left = Scenario::new(web());
    left.set_app(5, "a", "u1", "web").tell(added("a", "u1", 5)).set_app(6, "a", "u1", "db");
    left.tell(because(Reason::DeletedOrLeft, inferred("a", "u1", 6))).breaks(&[C2]);
}

#[test]
fn c2_a_server_that_loses_events_excuses_an_older_last_object() {
    let mut scenario = Scenario::of_a();
    scenario.terms.audit = Some(Duration::from_secs(1));
    scenario.set(6, "a", "u1").gone(7, "a", "u1").tell(deleted("a", "u1", 5, 7)).settled().passes();
}

#[test]
fn c2_an_undecodable_state_excuses_an_older_last_object() {
    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1").read("a", StoreHeld::Unknown { version: "6".into() });
    scenario.gone(7, "a", "u1").tell(deleted("a", "u1", 5, 7)).settled().passes();
}

#[test]
fn c2_what_left_a_filter_undecodable_may_be_observed_to_end_later() {
    let left_unseen = |filtered: bool, unknown: bool, end: u64| {
        let mut scenario = left(filtered, unknown);
        scenario.gone(7, "a", "u1").set_app(8, "a", "u2", "db").gone(9, "a", "u2");
        scenario.tell(because(Reason::DeletedOrLeft, deleted("a", "u1", 5, end)));
        scenario
    };
    left_unseen(true, true, 6).settled().passes();
    left_unseen(true, true, 7).settled().passes();
    // Not with another object of its name.
    left_unseen(true, true, 8).breaks(&[C2]);
    left_unseen(true, true, 9).breaks(&[C2]);
    left_unseen(true, false, 7).breaks(&[C2]);
    left_unseen(false, true, 7).breaks(&[C2]);
}

#[test]
fn c2_the_reason_is_one_that_can_be_known() {
    let gone = |scope: Scope, reason: Reason| {
        let mut scenario = Scenario::new(scope);
        scenario.set_app(5, "a", "u1", "web").tell(added("a", "u1", 5)).gone(6, "a", "u1");
        scenario.tell(because(reason, inferred("a", "u1", 5))).settled();
        scenario
    };
    gone(Scope::all(), Reason::Deleted).passes();
    gone(web(), Reason::DeletedOrLeft).passes();
    gone(Scope::all().fields("metadata.name=a"), Reason::Deleted).passes();
    gone(Scope::namespace("default"), Reason::Deleted).passes();

    gone(web(), Reason::Deleted).breaks(&[C2]);
    gone(Scope::all(), Reason::DeletedOrLeft).breaks(&[C2]);
    gone(Scope::all().fields("metadata.name=a"), Reason::DeletedOrLeft).breaks(&[C2]);
    gone(Scope::all(), Reason::Replaced).breaks(&[C2]);
}

#[test]
fn c3_versions_rise() {
    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1").tell(updated("a", "u1", 5, 6)).tell(updated("a", "u1", 6, 6)).breaks(&[C3]);
    assert_eq!(scenario.judge().verdict.total().repeated, 1);

    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1").tell(updated("a", "u1", 5, 6)).tell(updated("a", "u1", 6, 5)).breaks(&[C3, C4]);
    assert_eq!(scenario.judge().verdict.total().out_of_order, 1);
}

#[test]
fn c3_a_version_is_told_again_only_once_a_new_epoch_is_announced() {
    let mut scenario = Scenario::of_a();
    scenario.restore(5).epoch().tell(updated("a", "u1", 5, 5)).passes();

    let mut scenario = Scenario::of_a();
    scenario.restore(5).tell(updated("a", "u1", 5, 5)).breaks(&[C3]);
}

#[test]
fn c3_a_deleted_object_does_not_come_back() {
    let mut scenario = Scenario::of_a();
    scenario.gone(6, "a", "u1").tell(deleted("a", "u1", 5, 6)).tell(added("a", "u1", 5)).breaks(&[C3, C4]);
}

#[test]
fn c3_states_that_never_were_are_not_told() {
    Scenario::of_a().tell(updated("a", "u1", 5, 6)).breaks(&[C3]);
    let mut scenario = Scenario::new(Scope::all());
    scenario.tell(added("a", "u1", 5)).breaks(&[C3]);
}

#[test]
fn c3_a_version_goes_with_its_content() {
    let told = |content: serde_json::Value| {
        let mut scenario = Scenario::new(Scope::all());
        scenario.write(5, "a", "u1", json!({ "spec": { "x": 1 }, "metadata": { "managedFields": [1] } }));
        let object = object("a", "u1", 5).with_content(&content);
        scenario.tell(Seen::Added { object, initial: false });
        scenario
    };
    told(json!({ "kind": "Pod", "metadata": { "resourceVersion": "5" }, "spec": { "x": 1 } })).passes();
    told(json!({ "metadata": {}, "spec": { "x": 2 } })).breaks(&[C3]);
}

#[test]
fn c3_the_last_version_is_never_skipped() {
    Scenario::of_a().set(6, "a", "u1").settled().breaks(&[C3]);
    let mut scenario = Scenario::of_a();
    scenario.set(6, "a", "u1");
    let tainted = vec![key("a")];
    scenario.record(Record::Snapshot { informer: "pods".into(), objects: vec![object("a", "u1", 5)], tainted });
    scenario.settled().passes();
}

#[test]
fn c3_the_version_of_a_deletion_goes_with_its_certainty() {
    let gone = || {
        let mut scenario = Scenario::of_a();
        scenario.gone(6, "a", "u1");
        scenario
    };
    let Seen::Deleted { last, reason, .. } = inferred("a", "u1", 5) else { unreachable!() };
    let told = |version: Option<&str>, certainty| Seen::Deleted {
        last: last.clone(),
        version: version.map(str::to_owned),
        certainty,
        reason,
    };
    gone().tell(told(Some("6"), steadfast_contract::Certainty::Inferred)).breaks(&[C3]);
    gone().tell(told(None, steadfast_contract::Certainty::Observed)).breaks(&[C3]);
    gone().tell(told(Some("5"), steadfast_contract::Certainty::Observed)).breaks(&[C2, C3]);
}

#[test]
fn c3_a_resync_shows_what_was_told_last() {
    Scenario::of_a().set(6, "a", "u1").tell(resynced("a", "u1", 6)).breaks(&[C3]);
}

#[test]
fn c3_a_call_after_a_panic_is_marked_as_a_retry() {
    let panicked = || {
        let mut scenario = Scenario::of_a();
        scenario.set(6, "a", "u1").tell_and_panic(updated("a", "u1", 5, 6), 0);
        scenario
    };
    panicked().tell_again(updated("a", "u1", 5, 6), 1).settled().passes();
    panicked().tell_and_panic(updated("a", "u1", 5, 6), 1).tell_again(updated("a", "u1", 5, 6), 2).settled().passes();
    // What was entered counts as told, so a newer state may follow at once.
    panicked().set(7, "a", "u1").tell(updated("a", "u1", 6, 7)).settled().passes();

    panicked()
        .tell_again(updated("a", "u1", 5, 6), 0)
        .breaks(&[steadfast_contract::Clause::C3, steadfast_contract::Clause::C5]);
    panicked().tell_again(updated("a", "u1", 5, 6), 2).breaks(&[C3]);
    let mut unprovoked = Scenario::of_a();
    unprovoked.tell_again(added("a", "u1", 5), 1).breaks(&[C3]);
}

#[test]
fn c3_a_panic_is_retried_or_counted_as_skipped() {
    let panicked = || {
        let mut scenario = Scenario::of_a();
        scenario.gone(6, "a", "u1").tell_and_panic(deleted("a", "u1", 5, 6), 0);
        scenario
    };
    let skipped = || Record::Skipped { handler: "h".into(), object: object("a", "u1", 5) };
    let mut scenario = panicked();
    scenario.record(skipped()).settled().passes();
    assert_eq!(scenario.judge().verdict.total().skipped, 1);
    panicked().settled().breaks(&[C3]);
    Scenario::of_a().record(skipped()).breaks(&[C3]);
}
