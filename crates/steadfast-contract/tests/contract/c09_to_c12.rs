//! C9 to C12: reports of an informer about its state.

use std::time::Duration;

use steadfast_contract::Clause::{C9, C10, C11, C12};
use steadfast_contract::{Freshness, Record, Scope, StoreContent, WaitTarget};

use crate::scenario::{STEP, Scenario, added, deleted, initially_added, key, object, stored, updated};

/// Creates a scenario in which `a` and `b` exist before the informer's handler is registered.
fn with_a_and_b() -> Scenario {
    let mut scenario = Scenario::before_registration(Scope::all());
    scenario.set(5, "a", "u1").set(6, "b", "u2");
    scenario.record(Record::registered("h", "pods"));
    scenario
}

#[test]
fn c9_sync_follows_list_and_delivery() {
    let mut scenario = with_a_and_b();
    scenario.record_relist(None, 6).record_sync();
    scenario
        .deliver_with_store(initially_added("a", "u1", 5), stored("u1", 5))
        .deliver(initially_added("b", "u2", 6))
        .record_registration_sync();
    scenario.set(7, "c", "u3").deliver(added("c", "u3", 7)).settle().assert_passes();
    assert_eq!(scenario.report().verdict.total().initial, 2);
}

#[test]
fn c9_informer_syncs_after_its_first_list() {
    with_a_and_b().record_sync().record_relist(None, 6).assert_violates(&[C9]);
    with_a_and_b().record_relist(None, 6).record_sync().read("a", StoreContent::Absent).assert_violates(&[C9]);
    // The list must contain objects that existed long before, even if the version of the list is unknown.
    let mut old = Scenario::before_registration(Scope::all());
    old.trace = steadfast_contract::Trace::new();
    old.set(5, "a", "u1")
        .record(Record::informer("pods", Scope::all()))
        .record_sync()
        .record_snapshot(&[])
        .assert_violates(&[C9]);
}

#[test]
fn c9_registration_syncs_after_its_handler_returns() {
    let listed = || {
        let mut scenario = with_a_and_b();
        scenario.record_relist(None, 6).record_sync().deliver(initially_added("a", "u1", 5));
        scenario
    };
    listed().record_registration_sync().assert_violates(&[C9]);

    let mut running = listed();
    let call = running.enter("h", initially_added("b", "u2", 6), 0, StoreContent::NotRead);
    running.record_registration_sync().record(Record::returned("h", call)).assert_violates(&[C9]);

    let mut panicked = listed();
    panicked.deliver_and_panic(initially_added("b", "u2", 6), 0).record_registration_sync().assert_violates(&[C9]);
    let mut panicked_out = listed();
    panicked_out.deliver_and_panic(initially_added("b", "u2", 6), 0);
    panicked_out.record(Record::Skipped { handler: "h".into(), object: object("b", "u2", 6) });
    panicked_out.record_registration_sync().settle().assert_passes();
    let mut overtaken = listed();
    overtaken.delete(7, "b", "u2").record_registration_sync().settle().assert_passes();

    with_a_and_b().record_registration_sync().assert_violates(&[C9]);
}

#[test]
fn c9_initial_marks_only_listed_objects() {
    let listed = || {
        let mut scenario = with_a_and_b();
        scenario.record_relist(None, 6).record_sync();
        scenario
    };
    listed().deliver(added("a", "u1", 5)).assert_violates(&[C9]);
    listed().set(7, "c", "u3").deliver(initially_added("c", "u3", 7)).assert_violates(&[C9]);
    // A newer state of a listed object still counts as part of the list.
    listed().set(7, "a", "u1").deliver(initially_added("a", "u1", 7)).assert_passes();

    let mut after = listed();
    after.deliver(initially_added("a", "u1", 5)).deliver(initially_added("b", "u2", 6)).record_registration_sync();
    after.set(7, "c", "u3").deliver(initially_added("c", "u3", 7)).assert_violates(&[C9]);
}

#[test]
fn c9_late_handler_has_an_initial_list() {
    let late = || {
        let mut scenario = Scenario::before_registration(Scope::all());
        scenario.set(5, "a", "u1").record_relist(None, 5).record_sync().set(6, "b", "u2");
        scenario.record(Record::registered("h", "pods"));
        scenario
    };
    let mut scenario = late();
    scenario
        .deliver(initially_added("a", "u1", 5))
        .deliver(initially_added("b", "u2", 6))
        .record_registration_sync()
        .settle()
        .assert_passes();
    late().record_registration_sync().assert_violates(&[C9]);
    late().deliver(added("a", "u1", 5)).assert_violates(&[C9]);
    late().set(7, "c", "u3").deliver(initially_added("c", "u3", 7)).assert_violates(&[C9]);
}

#[test]
fn c10_fresh_age_stays_below_two_periods() {
    Scenario::with_object_a().wait(Duration::from_secs(4)).report_fresh(5, Duration::from_secs(2)).assert_passes();
    Scenario::with_object_a()
        .wait(Duration::from_secs(4))
        .report_fresh(5, Duration::from_millis(2001))
        .assert_violates(&[C10]);
}

#[test]
fn c10_fresh_version_matches_its_age() {
    let changed = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "a", "u1").wait(Duration::from_secs(1));
        scenario
    };
    changed().report_fresh(6, Duration::ZERO).assert_passes();
    changed().report_fresh(5, Duration::from_secs(1) + 2 * STEP).assert_passes();
    changed().report_fresh(5, Duration::from_millis(500)).assert_violates(&[C10]);

    let mut lagging = changed();
    lagging.bounds.lag = Duration::from_secs(2);
    lagging.report_fresh(5, Duration::from_millis(500)).assert_passes();

    // Freshness does not cover changes outside of the scope.
    let mut elsewhere = Scenario::new(Scope::all().labels("app=web"));
    elsewhere.set_app(5, "a", "u1", "db").wait(Duration::from_secs(1)).report_fresh(4, Duration::ZERO).assert_passes();
}

#[test]
fn c10_store_holds_the_version_of_fresh() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").report_fresh(6, Duration::ZERO).read("a", stored("u1", 6)).assert_passes();
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").report_fresh(6, Duration::ZERO).read("a", stored("u1", 5)).assert_violates(&[C10]);
    let mut doubtful = Scenario::with_object_a();
    doubtful.set(6, "a", "u1").report_freshness(Freshness::Suspect).read("a", stored("u1", 5)).assert_passes();
}

#[test]
fn c10_stalled_store_does_not_stay_fresh() {
    let mut scenario = Scenario::with_object_a();
    scenario
        .report_fresh(5, Duration::ZERO)
        .set(6, "a", "u1")
        .wait(Duration::from_millis(1500))
        .read("a", stored("u1", 5));
    scenario.assert_passes();
    scenario.wait(Duration::from_secs(1)).read("a", stored("u1", 5)).assert_violates(&[C10]);
}

#[test]
fn c10_fresh_refers_to_the_announced_epoch() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(8, "a", "u1").restore(6).set(7, "b", "u2").epoch().record_relist(Some(8), 7);
    scenario
        .wait(Duration::from_secs(1))
        .report_fresh(7, Duration::ZERO)
        .record_snapshot(&[("a", "u1", 5), ("b", "u2", 7)])
        .assert_passes();
    scenario.set(8, "b", "u2").wait(Duration::from_secs(1)).report_fresh(7, Duration::ZERO).assert_violates(&[C10]);
}

#[test]
fn c10_resuming_ends_with_a_new_proof() {
    let resumed = |states: &[Freshness]| {
        let mut scenario = Scenario::with_object_a();
        scenario.report_fresh(5, Duration::ZERO).wait(Duration::from_millis(500));
        for state in states {
            scenario.report_freshness(state.clone()).wait(Duration::from_millis(100));
        }
        scenario
    };
    resumed(&[Freshness::Resuming]).report_fresh(5, Duration::from_millis(50)).assert_passes();
    resumed(&[Freshness::Resuming]).report_fresh(5, Duration::from_millis(600)).assert_violates(&[C10]);
    resumed(&[Freshness::Resuming, Freshness::Stale]).report_fresh(5, Duration::from_millis(150)).assert_passes();
    resumed(&[Freshness::Resuming, Freshness::Stale])
        .report_fresh(5, Duration::from_millis(700))
        .assert_violates(&[C10]);
    resumed(&[Freshness::Suspect]).report_fresh(5, Duration::from_millis(600)).assert_passes();
    resumed(&[]).report_fresh(5, Duration::from_millis(500)).assert_passes();
    let mut again = resumed(&[Freshness::Resuming]);
    again
        .report_fresh(5, Duration::ZERO)
        .wait(Duration::from_millis(500))
        .report_fresh(5, Duration::from_millis(500))
        .assert_passes();
}

#[test]
fn c10_stopped_is_final() {
    Scenario::with_object_a()
        .report_freshness(Freshness::Stopped)
        .report_freshness(Freshness::Starting)
        .assert_violates(&[C10]);
}

#[test]
fn c11_store_finally_equals_the_history() {
    let quiet = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "b", "u2").deliver(added("b", "u2", 6)).settle();
        scenario
    };
    quiet().record_snapshot(&[("a", "u1", 5), ("b", "u2", 6)]).assert_passes();
    quiet().record_snapshot(&[("a", "u1", 5)]).assert_violates(&[C11]);

    let mut scenario = Scenario::with_object_a();
    scenario
        .set(6, "a", "u1")
        .deliver(updated("a", "u1", 5, 6))
        .settle()
        .record_snapshot(&[("a", "u1", 5)])
        .assert_violates(&[C11]);
    let mut scenario = Scenario::with_object_a();
    scenario
        .delete(6, "a", "u1")
        .deliver(deleted("a", "u1", 5, 6))
        .settle()
        .record_snapshot(&[("a", "u1", 5)])
        .assert_violates(&[C11]);
}

#[test]
fn c11_present_undecodable_object_is_excused() {
    let undecodable = || Record::Snapshot { informer: "pods".into(), objects: Vec::new(), tainted: vec![key("a")] };
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").settle().record(undecodable()).assert_passes();
    let mut scenario = Scenario::new(Scope::all());
    scenario.set(5, "a", "u1").delete(6, "a", "u1").settle().record(undecodable()).assert_violates(&[C11]);
}

#[test]
fn c11_freshness_is_finally_fresh() {
    Scenario::with_object_a().report_fresh(5, Duration::ZERO).settle().assert_passes();
    Scenario::with_object_a().report_freshness(Freshness::Stale).settle().assert_violates(&[C11]);
    Scenario::with_object_a()
        .report_freshness(Freshness::Stale)
        .settle()
        .report_fresh(5, Duration::ZERO)
        .assert_violates(&[C11]);
}

#[test]
fn c11_only_reports_before_settled_count() {
    let reported = |state| Record::Freshness { informer: "pods".into(), state, tainted: Vec::new() };
    // The server is disconnected, or the informer is stopped, in the instant in which the trace settled.
    Scenario::with_object_a()
        .report_fresh(5, Duration::ZERO)
        .settle()
        .record_at_same_instant(reported(Freshness::Resuming))
        .assert_passes();
    let mut stale = Scenario::with_object_a();
    stale.record(Record::Quiet).report_fresh(5, Duration::ZERO);
    stale
        .record_at_same_instant(reported(Freshness::Stale))
        .record_at_same_instant(Record::Settled)
        .assert_violates(&[C11]);
    // The informer was still running when the trace settled; the later stop excuses nothing.
    let mut stopped = Scenario::with_object_a();
    stopped
        .report_freshness(Freshness::Stale)
        .settle()
        .record_at_same_instant(reported(Freshness::Stopped))
        .assert_violates(&[C11]);
}

#[test]
fn c11_is_judged_after_the_convergence_time() {
    let mut scenario = Scenario::with_object_a();
    scenario.set(6, "a", "u1").record(Record::Quiet).record_snapshot(&[("a", "u1", 5)]).assert_passes();
    scenario
        .deliver(updated("a", "u1", 5, 6))
        .wait(Duration::from_secs(1))
        .record_snapshot(&[("a", "u1", 5)])
        .assert_violates(&[C11]);
    scenario.bounds.audit = Some(Duration::from_secs(10));
    scenario.assert_passes();
}

#[test]
fn c12_version_wait_succeeds_once_reached() {
    let written = || {
        let mut scenario = Scenario::with_object_a();
        scenario.set(6, "a", "u1");
        scenario
    };
    let version_6 = || WaitTarget::Version("6".into());
    written().record_wait(version_6(), Some(6)).read("a", stored("u1", 6)).assert_passes();
    written().record_wait(version_6(), Some(5)).assert_violates(&[C12]);
    written().record_wait(version_6(), None).read("a", stored("u1", 5)).assert_violates(&[C12]);
    written().read("a", stored("u1", 5)).record_wait(version_6(), None).assert_passes();
    // A wait can also target a write without an event in the scope.
    written().record_wait(WaitTarget::Version("9".into()), Some(9)).read("a", stored("u1", 6)).assert_passes();
}

#[test]
fn c12_failed_wait_guarantees_nothing() {
    let mut scenario = Scenario::with_object_a();
    let (informer, target) = ("pods".to_owned(), WaitTarget::Version("6".into()));
    let outcome = steadfast_contract::WaitOutcome::Err;
    scenario.set(6, "a", "u1").record(Record::WaitedFor { informer, target, outcome, store_version: Some("5".into()) });
    scenario.read("a", stored("u1", 5)).assert_passes();
}

#[test]
fn c12_deletion_wait_succeeds_once_removed() {
    let removed = || WaitTarget::Deleted("u1".into());
    Scenario::with_object_a()
        .delete(6, "a", "u1")
        .record_wait(removed(), None)
        .read("a", StoreContent::Absent)
        .assert_passes();
    Scenario::with_object_a()
        .delete(6, "a", "u1")
        .set(7, "a", "u2")
        .record_wait(removed(), None)
        .read("a", stored("u2", 7))
        .assert_passes();
    Scenario::with_object_a().record_wait(removed(), None).assert_violates(&[C12]);
    Scenario::with_object_a()
        .delete(6, "a", "u1")
        .record_wait(removed(), None)
        .read("a", stored("u1", 5))
        .assert_violates(&[C12]);
}
