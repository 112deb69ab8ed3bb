//! The rules where a coordinator says who leads, each as a story. The coordinator of these judges as badly as one can: what it gives to
//! whom, and when, is not to matter.

use steadfast::k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::super::breach::{Breaches, ElectionBreach};
use super::super::record;
use super::super::timing::Timing;
use super::tests::{Server, at, candidate, is_leader, play, wall};
use super::{Answer, Candidacy, Step};

fn coordinated(identity: &str, seconds: f64) -> Candidacy {
    Candidacy::coordinated("default", "it", identity.to_owned(), Timing::default(), at(seconds), Breaches::default())
}

/// The coordinator gives the lease to `who`, as that of Kubernetes does.
fn give(server: &mut Server, who: &str, seconds: i64) {
    let given = |spec: &mut LeaseSpec| {
        spec.holder_identity = Some(who.to_owned());
        spec.strategy = Some("OldestEmulationVersion".to_owned());
        spec.renew_time = Some(MicroTime(wall(seconds)));
        spec.lease_duration_seconds = Some(5);
        spec.acquire_time = None;
        spec.preferred_holder = None;
    };
    if server.lease.is_some() {
        server.change(|lease| given(lease.spec.get_or_insert_default()));
    } else {
        let mut lease = Lease::default();
        given(lease.spec.get_or_insert_default());
        server.create(lease);
    }
}

/// `who`, of whom nothing else is known, renews what it was given.
fn renew(server: &mut Server, who: &str, seconds: i64) {
    server.change(|lease| {
        let spec = lease.spec.get_or_insert_default();
        assert_eq!(spec.holder_identity.as_deref(), Some(who));
        spec.renew_time = Some(MicroTime(wall(seconds)));
        spec.acquire_time.get_or_insert(MicroTime(wall(seconds)));
        spec.lease_duration_seconds = Some(15);
        spec.lease_transitions.get_or_insert(0);
    });
}

/// A lease that `x` was given and has renewed at 0, and `a` who has seen that then.
fn held_by_another() -> (Server, Candidacy) {
    held_before(Breaches::default())
}

/// The same, and `a` breaks a rule.
fn held_before(breaches: Breaches) -> (Server, Candidacy) {
    let mut server = Server::default();
    give(&mut server, "x", -1);
    renew(&mut server, "x", 0);
    let mut a = Candidacy::coordinated("default", "it", "a".to_owned(), Timing::default(), at(0.0), breaches);
    play(&mut a, &mut server, 0.0);
    (server, a)
}

/// A lease that nobody has held before `a`, who leads from 2 on.
fn a_leader() -> (Server, Candidacy) {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    play(&mut a, &mut server, 0.0);
    give(&mut server, "a", 1);
    leads_at(&mut a, &mut server, 2.0);
    (server, a)
}

/// When `a`, to whom the lease is given and who plays on from `seconds`, comes to lead.
fn leads_at(a: &mut Candidacy, server: &mut Server, mut seconds: f64) -> f64 {
    for _ in 0..100 {
        let next = play(a, server, seconds);
        if is_leader(a, seconds) {
            return seconds;
        }
        seconds = next;
    }
    panic!("it does not come to lead");
}

fn spec(server: &Server) -> LeaseSpec {
    server.lease.clone().and_then(|lease| lease.spec).expect("a spec")
}

#[test]
fn a_candidate_takes_nothing_that_it_is_not_given() {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    assert!(!a.has_looked());
    play(&mut a, &mut server, 0.0);
    assert!(a.has_looked(), "that it is not there is known too");
    assert!(server.lease.is_none());
    give(&mut server, "x", 1);
    renew(&mut server, "x", 1);
    let version = server.lease.as_ref().map(|lease| record::version(lease).to_owned());
    let mut now = 2.0;
    while now < 100.0 {
        let next = play(&mut a, &mut server, now);
        assert!((next - now - 2.0).abs() < 0.001, "it looks every retry period: {next}");
        now = next;
    }
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some(String::new()));
    play(&mut a, &mut server, now);
    assert_ne!(server.lease.as_ref().map(|lease| record::version(lease).to_owned()), version);
    assert_eq!(server.holder(), None, "expired or released, the coordinator decides");
}

#[test]
fn a_lease_that_nobody_has_ever_held_is_led_by_at_once() {
    let mut server = Server::default();
    let mut a = coordinated("a", 0.0);
    play(&mut a, &mut server, 0.0);
    give(&mut server, "a", 1);
    assert!((leads_at(&mut a, &mut server, 2.0) - 2.0).abs() < 0.001);
    let spec = spec(&server);
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(0), Some(15)));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(MicroTime(wall(2))), Some(MicroTime(wall(2)))));
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
}

#[test]
fn who_was_given_a_lease_while_the_one_before_acted_led_at_once() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 4);
    give(&mut server, "a", 5);
    play(&mut a, &mut server, 6.0);
    assert!(!is_leader(&a, 6.0), "x acts until 14");
    let taken = spec(&server);
    assert_eq!(taken.renew_time, Some(MicroTime(wall(6))), "and the coordinator sees all the same that a is there");
    assert_eq!((taken.lease_transitions, taken.lease_duration_seconds), (Some(1), Some(15)));
    let leads = leads_at(&mut a, &mut server, 8.0);
    assert!(
        (leads - 21.0).abs() < 0.001,
        "as long as the lease may last that x has renewed at 6 at the latest: {leads}"
    );
    assert_eq!(spec(&server).acquire_time, taken.acquire_time, "it was taken up once");
}

#[test]
fn where_nobody_tells_what_was_between_two_looks_the_worst_is_taken_to_be() {
    let (mut server, mut a) = held_by_another();
    server.forgets = true;
    give(&mut server, "a", 30);
    let leads = leads_at(&mut a, &mut server, 30.0);
    assert!((leads - 45.0).abs() < 0.001, "x may have renewed it a moment before: {leads}");
}

#[test]
fn who_is_seen_not_to_have_renewed_is_over_when_its_lease_is() {
    let (mut server, mut a) = held_by_another();
    give(&mut server, "a", 12);
    let leads = leads_at(&mut a, &mut server, 12.0);
    assert!((leads - 15.0).abs() < 0.001, "x was seen at 0 to have renewed: {leads}");
}

#[test]
fn a_renewal_between_two_looks_was_overlooked() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 29);
    give(&mut server, "a", 30);
    let leads = leads_at(&mut a, &mut server, 30.0);
    assert!((leads - 45.0).abs() < 0.001, "x acts until 39: {leads}");
}

#[test]
fn a_lease_that_its_holder_gave_up_between_two_looks_is_led_by_at_once() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 2);
    server.change(|lease| *lease = record::released(lease, wall(3)));
    give(&mut server, "a", 3);
    assert!((leads_at(&mut a, &mut server, 4.0) - 4.0).abs() < 0.001);
}

#[test]
fn who_held_a_lease_after_another_had_given_it_up_is_waited_for() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    play(&mut a, &mut server, 2.0);
    give(&mut server, "y", 3);
    renew(&mut server, "y", 3);
    give(&mut server, "a", 4);
    let leads = leads_at(&mut a, &mut server, 4.0);
    assert!((leads - 19.0).abs() < 0.001, "y acts until 13: {leads}");
}

#[test]
fn a_name_that_is_missing_is_no_release() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = None);
    play(&mut a, &mut server, 2.0);
    give(&mut server, "a", 4);
    let leads = leads_at(&mut a, &mut server, 4.0);
    assert!((leads - 17.0).abs() < 0.001, "{leads}");
}

#[test]
fn another_lease_of_that_name_does_not_end_who_held_the_one_before() {
    let (mut server, mut a) = held_by_another();
    server.lease = None;
    give(&mut server, "a", 3);
    let leads = leads_at(&mut a, &mut server, 3.0);
    assert!((leads - 18.0).abs() < 0.001, "it was not seen to be missing: {leads}");

    let (mut server, mut a) = held_by_another();
    server.lease = None;
    play(&mut a, &mut server, 2.0);
    give(&mut server, "a", 3);
    let leads = leads_at(&mut a, &mut server, 4.0);
    assert!((leads - 17.0).abs() < 0.001, "it was: {leads}");
}

#[test]
fn another_lease_was_led_by_at_once_by_who_had_held_the_one_before_while_a_third_acted() {
    let (mut server, mut a) = a_leader();
    give(&mut server, "b", 3);
    renew(&mut server, "b", 30);
    server.lease = None;
    give(&mut server, "a", 31);
    let leads = leads_at(&mut a, &mut server, 31.0);
    assert!((leads - 46.0).abs() < 0.001, "b acts until 40: {leads}");

    let (mut server, mut a) = a_leader();
    give(&mut server, "b", 3);
    renew(&mut server, "b", 30);
    server.lease = None;
    play(&mut a, &mut server, 31.0);
    give(&mut server, "a", 32);
    let leads = leads_at(&mut a, &mut server, 33.0);
    assert!((leads - 46.0).abs() < 0.001, "it was seen to be missing: {leads}");
}

#[test]
fn another_lease_was_led_by_at_once_by_who_had_seen_the_one_before_given_up() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    play(&mut a, &mut server, 2.0);
    give(&mut server, "y", 3);
    renew(&mut server, "y", 30);
    server.lease = None;
    give(&mut server, "a", 31);
    let leads = leads_at(&mut a, &mut server, 31.0);
    assert!((leads - 46.0).abs() < 0.001, "y acts until 40: {leads}");
}

#[test]
fn a_leader_whose_lease_is_deleted_and_made_anew_waits_for_nobody() {
    let (mut server, mut a) = a_leader();
    server.lease = None;
    play(&mut a, &mut server, 4.0);
    assert!(!is_leader(&a, 4.0));
    give(&mut server, "a", 5);
    assert!((leads_at(&mut a, &mut server, 6.0) - 6.0).abs() < 0.001, "it acted until it saw that");
}

#[test]
fn who_gets_back_a_lease_that_another_had_meanwhile_begins_a_term_of_its_own() {
    let (mut server, mut a) = a_leader();
    give(&mut server, "b", 3);
    renew(&mut server, "b", 3);
    give(&mut server, "a", 4);
    play(&mut a, &mut server, 4.0);
    assert!(!is_leader(&a, 4.0), "b may lead");
    let leads = leads_at(&mut a, &mut server, 6.0);
    assert!((leads - 19.0).abs() < 0.001, "{leads}");
    assert_eq!(a.term(at(leads)).map(|term| term.number), Some(2));
}

#[test]
fn a_lease_that_was_taken_up_by_a_request_without_an_answer_is_held() {
    let (mut server, mut a) = held_by_another();
    server.change(|lease| *lease = record::released(lease, wall(1)));
    play(&mut a, &mut server, 2.0);
    give(&mut server, "a", 3);
    for step in [Step::Get, Step::Follow { after: "3".into(), until: "4".into() }] {
        assert_eq!(a.step(at(4.0), wall(4)), step);
        match &step {
            Step::Get => a.read(server.answer(&step), at(4.0), at(4.0), 0.0),
            _ => a.followed(server.answer(&step), at(4.0)),
        }
    }
    let step = a.step(at(4.0), wall(4));
    server.answer(&step);
    a.written(Answer::None, at(4.0), at(6.0), 0.0);
    let mut now = 6.0;
    while !is_leader(&a, now) {
        assert!(now < 10.0);
        now = play(&mut a, &mut server, now);
    }
    assert_eq!(spec(&server).acquire_time, Some(MicroTime(wall(4))), "nobody had it between");
}

#[test]
fn a_leader_makes_way_for_whom_the_coordinator_prefers() {
    let (mut server, mut a) = a_leader();
    server.change(|lease| lease.spec.get_or_insert_default().preferred_holder = Some("b".into()));
    play(&mut a, &mut server, 4.0);
    assert!(a.is_to_yield(at(4.0)) && is_leader(&a, 4.0), "what is done in its name is to be ended first");
    let step = a.release(at(4.0), wall(4)).expect("it is ours");
    a.written(server.answer(&step), at(4.0), at(4.0), 0.0);
    assert!(!is_leader(&a, 4.0) && !a.is_to_yield(at(4.0)));
    let spec = spec(&server);
    assert_eq!((spec.holder_identity.as_deref(), spec.preferred_holder), (Some(""), None));
    assert_eq!(spec.strategy.as_deref(), Some("OldestEmulationVersion"));
}

#[test]
fn who_is_to_make_way_and_could_not_give_up_the_lease_lets_it_run_out() {
    let (mut server, mut a) = a_leader();
    server.change(|lease| lease.spec.get_or_insert_default().preferred_holder = Some("b".into()));
    play(&mut a, &mut server, 4.0);
    a.resign(at(4.0));
    let mut now = 4.0;
    while now < 30.0 {
        now = play(&mut a, &mut server, now);
        assert!(!is_leader(&a, now));
    }
    assert_eq!(spec(&server).renew_time, Some(MicroTime(wall(2))));
}

#[test]
fn who_waits_for_the_one_before_gives_up_nothing() {
    let (mut server, mut a) = held_by_another();
    renew(&mut server, "x", 4);
    give(&mut server, "a", 5);
    play(&mut a, &mut server, 6.0);
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert_eq!(a.release(at(6.0), wall(6)), None, "an empty name says that nobody acts, and x does");
}

#[test]
fn a_lease_given_for_five_seconds_was_taken_by_a_plain_candidate_while_the_one_before_acted() {
    let mut server = Server::default();
    give(&mut server, "x", -1);
    renew(&mut server, "x", 0);
    let mut plain = candidate("p", 0.0);
    play(&mut plain, &mut server, 0.0);
    renew(&mut server, "x", 29);
    give(&mut server, "y", 30);
    let mut now = 30.0;
    while server.holder().as_deref() == Some("y") {
        assert!(now < 60.0);
        now = play(&mut plain, &mut server, now);
    }
    let since = plain.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| since >= 45.0), "x acts until 39: {since:?}");
    let spec = spec(&server);
    assert_eq!((spec.strategy, spec.preferred_holder), (None, None), "nobody coordinates what anybody takes");
}

#[test]
fn a_plain_candidate_leaves_a_lease_that_was_given_up_to_the_coordinator_for_a_while() {
    let mut server = Server::default();
    give(&mut server, "x", 0);
    renew(&mut server, "x", 0);
    server.change(|lease| *lease = record::released(lease, wall(0)));
    let mut plain = candidate("p", 0.0);
    let mut now = play(&mut plain, &mut server, 0.0);
    while now < 15.0 {
        assert_eq!(server.holder(), None);
        now = play(&mut plain, &mut server, now);
    }
    play(&mut plain, &mut server, now);
    assert_eq!(server.holder().as_deref(), Some("p"));
}

#[test]
fn whoever_breaks_one_of_the_rules_leads_too_early_or_says_that_nobody_acts() {
    let breaks = |breach| held_before(Breaches { committed: Some(breach) });

    let (mut server, mut a) = breaks(ElectionBreach::AtOnce);
    renew(&mut server, "x", 4);
    give(&mut server, "a", 5);
    assert!(leads_at(&mut a, &mut server, 6.0) < 14.0, "x acts until 14");

    let (mut server, mut a) = breaks(ElectionBreach::Overlooked);
    renew(&mut server, "x", 29);
    give(&mut server, "a", 30);
    assert!(leads_at(&mut a, &mut server, 30.0) < 39.0, "x acts until 39");

    let (mut server, mut a) = breaks(ElectionBreach::EmptyName);
    renew(&mut server, "x", 4);
    give(&mut server, "a", 5);
    play(&mut a, &mut server, 6.0);
    assert!(a.release(at(6.0), wall(6)).is_some(), "x acts until 14");
}
