//! Rules of coordinated elections, one scenario each. The rules must hold although the simulated coordinator assigns
//! the lease at the worst possible times.

use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

#[cfg(feature = "fault-injection")]
use super::super::fault_injection::{ElectionFaults, InjectedElectionFault};
use super::super::record;
use super::super::timing::Timing;
use super::tests::{Server, at, candidate, is_leader, run, wall};
use super::{ElectionMachine, Step, StepResult};

fn coordinated(identity: &str, seconds: f64) -> ElectionMachine {
    ElectionMachine::coordinated("default", "it", identity.to_owned(), Timing::default(), at(seconds))
}

/// Assigns the lease to `identity`, like Kubernetes' coordinator.
fn assign(server: &mut Server, identity: &str, seconds: i64) {
    let fields = |spec: &mut LeaseSpec| {
        spec.holder_identity = Some(identity.to_owned());
        spec.strategy = Some("OldestEmulationVersion".to_owned());
        spec.renew_time = Some(MicroTime(wall(seconds)));
        spec.lease_duration_seconds = Some(5);
        spec.acquire_time = None;
        spec.preferred_holder = None;
    };
    if server.lease.is_some() {
        server.change(|lease| fields(lease.spec.get_or_insert_default()));
    } else {
        let mut lease = Lease::default();
        fields(lease.spec.get_or_insert_default());
        server.create(lease);
    }
}

/// Renews the lease of `identity`, another candidate.
fn renew(server: &mut Server, identity: &str, seconds: i64) {
    server.change(|lease| {
        let spec = lease.spec.get_or_insert_default();
        assert_eq!(spec.holder_identity.as_deref(), Some(identity));
        spec.renew_time = Some(MicroTime(wall(seconds)));
        spec.acquire_time.get_or_insert(MicroTime(wall(seconds)));
        spec.lease_duration_seconds = Some(15);
        spec.lease_transitions.get_or_insert(0);
    });
}

/// Returns a lease that `x` held and renewed at second 0, and the candidate `a`, which has read the lease.
fn held_by_another() -> (Server, ElectionMachine) {
    held_before(Timing::default())
}

/// Returns the state of `held_by_another`, with the faults of `timing`.
fn held_before(timing: Timing) -> (Server, ElectionMachine) {
    let mut server = Server::default();
    assign(&mut server, "x", -1);
    renew(&mut server, "x", 0);
    let mut a = ElectionMachine::coordinated("default", "it", "a".to_owned(), timing, at(0.0));
    run(&mut a, &mut server, 0.0);
    (server, a)
}

/// Returns `a` as the leader from second 2 on, without an earlier holder.
fn a_leader() -> (Server, ElectionMachine) {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    run(&mut a, &mut server, 0.0);
    assign(&mut server, "a", 1);
    time_of_leadership(&mut a, &mut server, 2.0);
    (server, a)
}

/// Runs `a` from `seconds` on, and returns when it leads.
fn time_of_leadership(a: &mut ElectionMachine, server: &mut Server, mut seconds: f64) -> f64 {
    for _ in 0..100 {
        let next = run(a, server, seconds);
        if is_leader(a, seconds) {
            return seconds;
        }
        seconds = next;
    }
    panic!("the candidate never leads");
}

fn spec(server: &Server) -> LeaseSpec {
    server.lease.clone().and_then(|lease| lease.spec).expect("a spec")
}

#[test]
fn unassigned_candidate_takes_no_lease() {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    assert!(!a.has_read());
    run(&mut a, &mut server, 0.0);
    assert!(a.has_read(), "a missing lease counts as read");
    assert!(server.lease.is_none());
    assign(&mut server, "x", 1);
    renew(&mut server, "x", 1);
    let version = server.lease.as_ref().map(|lease| record::version(lease).to_owned());
    let mut now = 2.0;
    while now < 100.0 {
        let next = run(&mut a, &mut server, now);
        assert!((next - now - 2.0).abs() < 0.001, "one read per retry period: {next}");
        now = next;
    }
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some(String::new()));
    run(&mut a, &mut server, now);
    assert_ne!(server.lease.as_ref().map(|lease| record::version(lease).to_owned()), version);
    assert_eq!(server.holder(), None, "expired or released, the coordinator decides");
}

#[test]
fn never_held_lease_is_led_immediately() {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    run(&mut a, &mut server, 0.0);
    assign(&mut server, "a", 1);
    assert!((time_of_leadership(&mut a, &mut server, 2.0) - 2.0).abs() < 0.001);
    let spec = spec(&server);
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(0), Some(15)));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(MicroTime(wall(2))), Some(MicroTime(wall(2)))));
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
}

#[test]
fn assigned_candidate_waits_for_previous_holder() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 4);
    assign(&mut server, "a", 5);
    run(&mut a, &mut server, 6.0);
    assert!(!is_leader(&a, 6.0), "x acts until 14");
    let taken = spec(&server);
    assert_eq!(taken.renew_time, Some(MicroTime(wall(6))), "the coordinator sees that a is alive");
    assert_eq!((taken.lease_transitions, taken.lease_duration_seconds), (Some(1), Some(15)));
    let leads = time_of_leadership(&mut a, &mut server, 8.0);
    assert!((leads - 21.0).abs() < 0.001, "x renewed at 6 at the latest: {leads}");
    assert_eq!(spec(&server).acquire_time, taken.acquire_time, "acquired once");
}

#[test]
fn unknown_history_assumes_late_renewal() {
    let (mut server, mut a) = held_by_another();
    server.has_no_history = true;
    assign(&mut server, "a", 30);
    let leads = time_of_leadership(&mut a, &mut server, 30.0);
    assert!((leads - 45.0).abs() < 0.001, "x may have renewed just before: {leads}");
}

#[test]
fn holder_without_renewal_ends_with_lease() {
    let (mut server, mut a) = held_by_another();
    assign(&mut server, "a", 12);
    let leads = time_of_leadership(&mut a, &mut server, 12.0);
    assert!((leads - 15.0).abs() < 0.001, "the last renewal of x was at 0: {leads}");
}

#[test]
fn renewal_between_reads_is_respected() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 29);
    assign(&mut server, "a", 30);
    let leads = time_of_leadership(&mut a, &mut server, 30.0);
    assert!((leads - 45.0).abs() < 0.001, "x acts until 39: {leads}");
}

#[test]
fn release_between_reads_frees_immediately() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 2);
    server.change(|lease| *lease = record::released(lease, wall(3)));
    assign(&mut server, "a", 3);
    assert!((time_of_leadership(&mut a, &mut server, 4.0) - 4.0).abs() < 0.001);
}

#[test]
fn holder_after_release_is_respected() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    run(&mut a, &mut server, 2.0);
    assign(&mut server, "y", 3);
    renew(&mut server, "y", 3);
    assign(&mut server, "a", 4);
    let leads = time_of_leadership(&mut a, &mut server, 4.0);
    assert!((leads - 19.0).abs() < 0.001, "y acts until 13: {leads}");
}

#[test]
fn missing_holder_name_does_not_release_lease() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = None);
    run(&mut a, &mut server, 2.0);
    assign(&mut server, "a", 4);
    let leads = time_of_leadership(&mut a, &mut server, 4.0);
    assert!((leads - 17.0).abs() < 0.001, "{leads}");
}

#[test]
fn recreated_lease_does_not_end_holder() {
    let (mut server, mut a) = held_by_another();
    server.lease = None;
    assign(&mut server, "a", 3);
    let leads = time_of_leadership(&mut a, &mut server, 3.0);
    assert!((leads - 18.0).abs() < 0.001, "the deletion was not seen: {leads}");

    let (mut server, mut a) = held_by_another();
    server.lease = None;
    run(&mut a, &mut server, 2.0);
    assign(&mut server, "a", 3);
    let leads = time_of_leadership(&mut a, &mut server, 4.0);
    assert!((leads - 17.0).abs() < 0.001, "the deletion was seen: {leads}");
}

#[test]
fn recreated_lease_waits_for_third_holder() {
    let (mut server, mut a) = a_leader();
    assign(&mut server, "b", 3);
    renew(&mut server, "b", 30);
    server.lease = None;
    assign(&mut server, "a", 31);
    let leads = time_of_leadership(&mut a, &mut server, 31.0);
    assert!((leads - 46.0).abs() < 0.001, "b acts until 40: {leads}");

    let (mut server, mut a) = a_leader();
    assign(&mut server, "b", 3);
    renew(&mut server, "b", 30);
    server.lease = None;
    run(&mut a, &mut server, 31.0);
    assign(&mut server, "a", 32);
    let leads = time_of_leadership(&mut a, &mut server, 33.0);
    assert!((leads - 46.0).abs() < 0.001, "the deletion was seen: {leads}");
}

#[test]
fn recreated_lease_after_release_waits() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    run(&mut a, &mut server, 2.0);
    assign(&mut server, "y", 3);
    renew(&mut server, "y", 30);
    server.lease = None;
    assign(&mut server, "a", 31);
    let leads = time_of_leadership(&mut a, &mut server, 31.0);
    assert!((leads - 46.0).abs() < 0.001, "y acts until 40: {leads}");
}

#[test]
fn leader_of_deleted_lease_waits_for_none() {
    let (mut server, mut a) = a_leader();
    server.lease = None;
    run(&mut a, &mut server, 4.0);
    assert!(!is_leader(&a, 4.0));
    assign(&mut server, "a", 5);
    assert!((time_of_leadership(&mut a, &mut server, 6.0) - 6.0).abs() < 0.001, "a itself acted until the deletion");
}

#[test]
fn reassigned_lease_starts_new_term() {
    let (mut server, mut a) = a_leader();
    assign(&mut server, "b", 3);
    renew(&mut server, "b", 3);
    assign(&mut server, "a", 4);
    run(&mut a, &mut server, 4.0);
    assert!(!is_leader(&a, 4.0), "b may lead");
    let leads = time_of_leadership(&mut a, &mut server, 6.0);
    assert!((leads - 19.0).abs() < 0.001, "{leads}");
    assert_eq!(a.term(at(leads)).map(|term| term.number), Some(2));
}

#[test]
fn lost_response_keeps_taken_lease() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    run(&mut a, &mut server, 2.0);
    assign(&mut server, "a", 3);
    for step in [Step::Get, Step::ReadHistory { after: "3".into(), until: "4".into() }] {
        assert_eq!(a.step(at(4.0), wall(4)), step);
        match &step {
            Step::Get => a.record_read(server.respond(&step), at(4.0), at(4.0), 0.0),
            _ => a.record_history(server.respond(&step), at(4.0)),
        }
    }
    let step = a.step(at(4.0), wall(4));
    server.respond(&step);
    a.record_write(StepResult::Unknown, at(4.0), at(6.0), 0.0);
    let mut now = 6.0;
    while !is_leader(&a, now) {
        assert!(now < 10.0);
        now = run(&mut a, &mut server, now);
    }
    assert_eq!(spec(&server).acquire_time, Some(MicroTime(wall(4))), "no other holder in between");
}

#[test]
fn leader_yields_to_preferred_candidate() {
    let (mut server, mut a) = a_leader();
    server.change(|lease| lease.spec.get_or_insert_default().preferred_holder = Some("b".into()));
    run(&mut a, &mut server, 4.0);
    assert!(a.must_yield(at(4.0)) && is_leader(&a, 4.0), "running work must end first");
    let step = a.release(at(4.0), wall(4)).expect("held by a");
    a.record_write(server.respond(&step), at(4.0), at(4.0), 0.0);
    assert!(!is_leader(&a, 4.0) && !a.must_yield(at(4.0)));
    let spec = spec(&server);
    assert_eq!((spec.holder_identity.as_deref(), spec.preferred_holder), (Some(""), None));
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
}

#[test]
fn failed_yield_lets_lease_expire() {
    let (mut server, mut a) = a_leader();
    server.change(|lease| lease.spec.get_or_insert_default().preferred_holder = Some("b".into()));
    run(&mut a, &mut server, 4.0);
    a.resign(at(4.0));
    let mut now = 4.0;
    while now < 30.0 {
        now = run(&mut a, &mut server, now);
        assert!(!is_leader(&a, now));
    }
    assert_eq!(spec(&server).renew_time, Some(MicroTime(wall(2))));
}

#[test]
fn waiting_candidate_releases_nothing() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 4);
    assign(&mut server, "a", 5);
    run(&mut a, &mut server, 6.0);
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert_eq!(a.release(at(6.0), wall(6)), None, "an empty name would mean that x has stopped");
}

#[test]
fn plain_candidate_respects_previous_duration() {
    let mut server = Server::default();
    assign(&mut server, "x", -1);
    renew(&mut server, "x", 0);
    let mut plain = candidate("p", 0.0);
    run(&mut plain, &mut server, 0.0);
    renew(&mut server, "x", 29);
    assign(&mut server, "y", 30);
    let mut now = 30.0;
    while server.holder().as_deref() == Some("y") {
        assert!(now < 60.0);
        now = run(&mut plain, &mut server, now);
    }
    let since = plain.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| since >= 45.0), "x acts until 39: {since:?}");
    let spec = spec(&server);
    assert_eq!((spec.strategy, spec.preferred_holder), (None, None), "a plain candidate clears both");
}

#[test]
fn plain_candidate_leaves_release_to_coordinator() {
    let mut server = Server::default();
    assign(&mut server, "x", 0);
    renew(&mut server, "x", 0);
    server.change(|lease| *lease = record::released(lease, wall(0)));
    let mut plain = candidate("p", 0.0);
    let mut now = run(&mut plain, &mut server, 0.0);
    while now < 15.0 {
        assert_eq!(server.holder(), None);
        now = run(&mut plain, &mut server, now);
    }
    run(&mut plain, &mut server, now);
    assert_eq!(server.holder().as_deref(), Some("p"));
}

#[cfg(feature = "fault-injection")]
#[test]
fn each_injected_fault_is_detected() {
    let breaks = |fault| {
        let faults = ElectionFaults { election: Some(fault), ..ElectionFaults::default() };
        held_before(Timing { faults, ..Timing::default() })
    };

    let (mut server, mut a) = breaks(InjectedElectionFault::ImmediateLead);
    renew(&mut server, "x", 4);
    assign(&mut server, "a", 5);
    assert!(time_of_leadership(&mut a, &mut server, 6.0) < 14.0, "x acts until 14");

    let (mut server, mut a) = breaks(InjectedElectionFault::SkippedReads);
    renew(&mut server, "x", 29);
    assign(&mut server, "a", 30);
    assert!(time_of_leadership(&mut a, &mut server, 30.0) < 39.0, "x acts until 39");

    let (mut server, mut a) = breaks(InjectedElectionFault::UnownedRelease);
    renew(&mut server, "x", 4);
    assign(&mut server, "a", 5);
    run(&mut a, &mut server, 6.0);
    assert!(a.release(at(6.0), wall(6)).is_some(), "x acts until 14");
}
