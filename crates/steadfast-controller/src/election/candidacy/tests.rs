//! Each rule as a story: what was answered when, and what is to be done then.

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use steadfast::k8s_openapi::jiff::Timestamp;

use super::super::record;
use super::super::timing::Timing;
use super::{Answer, Candidacy, Step};

/// A moment of the story, in seconds.
pub(super) fn at(seconds: f64) -> Instant {
    Instant::from_zero(Duration::from_secs(1000) + Duration::from_secs_f64(seconds))
}

pub(super) fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

/// A server that keeps one lease, and answers at once.
#[derive(Default)]
pub(super) struct Server {
    pub(super) lease: Option<Lease>,
    /// All states that it had.
    states: Vec<Lease>,
    /// Whether it does not tell of states before the present one.
    pub(super) forgets: bool,
    versions: u64,
    uids: u64,
}

impl Server {
    pub(super) fn answer(&mut self, step: &Step) -> Answer {
        match step {
            Step::Wait(_) => panic!("nothing is asked"),
            Step::Get => self.lease.clone().map_or(Answer::Missing, |lease| Answer::Lease(Box::new(lease))),
            Step::Create(_) if self.lease.is_some() => Answer::Conflict,
            Step::Create(lease) => self.create((**lease).clone()),
            Step::Update(lease) => match &self.lease {
                None => Answer::Missing,
                Some(kept) if kept.metadata.resource_version != lease.metadata.resource_version => Answer::Conflict,
                Some(kept) if kept.metadata.uid != lease.metadata.uid => Answer::Conflict,
                Some(_) => self.store((**lease).clone()),
            },
            Step::Follow { .. } if self.forgets => Answer::None,
            Step::Follow { after, until } => {
                let place = |version: &String| self.states.iter().position(|state| record::version(state) == version);
                let states =
                    place(after).zip(place(until)).map(|(after, until)| self.states[after + 1..=until].to_vec());
                states.map_or(Answer::None, Answer::States)
            }
        }
    }

    pub(super) fn create(&mut self, mut lease: Lease) -> Answer {
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        self.store(lease)
    }

    fn store(&mut self, mut lease: Lease) -> Answer {
        self.versions += 1;
        lease.metadata.resource_version = Some(self.versions.to_string());
        self.lease = Some(lease.clone());
        self.states.push(lease.clone());
        Answer::Lease(Box::new(lease))
    }

    /// Somebody else writes the lease.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Lease)) {
        let mut lease = self.lease.clone().expect("a lease");
        change(&mut lease);
        self.store(lease);
    }

    pub(super) fn holder(&self) -> Option<String> {
        record::holder(self.lease.as_ref()?).map(str::to_owned)
    }

    pub(super) fn transitions(&self) -> Option<i32> {
        self.lease.as_ref()?.spec.as_ref()?.lease_transitions
    }
}

pub(super) fn candidate(identity: &str, seconds: f64) -> Candidacy {
    Candidacy::new("default", "it", identity.to_owned(), Timing::default(), at(seconds))
}

/// Has `candidate` do what it wants to at that moment, each step answered at once, until it waits; says until when, in seconds.
pub(super) fn play(candidate: &mut Candidacy, server: &mut Server, seconds: f64) -> f64 {
    for _ in 0..5 {
        let now = at(seconds);
        match candidate.step(now, wall(seconds as i64)) {
            Step::Wait(until) => return until.since(at(0.0)).as_secs_f64(),
            step @ Step::Get => candidate.read(server.answer(&step), now, now, 0.5),
            step @ Step::Follow { .. } => candidate.followed(server.answer(&step), now),
            step => candidate.written(server.answer(&step), now, now, 0.5),
        }
    }
    panic!("it does not come to rest");
}

pub(super) fn is_leader(candidate: &Candidacy, seconds: f64) -> bool {
    candidate.term(at(seconds)).is_some()
}

/// A server, and `a` who has acquired its lease at 0.
fn led() -> (Server, Candidacy) {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    play(&mut a, &mut server, 0.0);
    assert!(is_leader(&a, 0.0));
    (server, a)
}

#[test]
fn a_lease_that_is_not_there_is_created_with_what_client_go_writes() {
    let (server, a) = led();
    let lease = server.lease.clone().expect("a lease");
    let spec = lease.spec.expect("a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(micro(0)), Some(micro(0))));
    assert!(is_leader(&a, 9.999) && !is_leader(&a, 10.0), "it acts for the renew deadline");
}

/// The wall clock then, as a lease has it.
fn micro(seconds: i64) -> MicroTime {
    MicroTime(wall(seconds))
}

#[test]
fn a_leader_renews_after_each_retry_period_without_reading_first() {
    let (mut server, mut a) = led();
    assert!(matches!(a.step(at(1.9), wall(1)), Step::Wait(until) if until == at(2.0)));
    let step = a.step(at(2.0), wall(2));
    assert!(
        matches!(&step, Step::Update(lease) if lease.metadata.resource_version.as_deref() == Some("1")),
        "{step:?}"
    );
    a.written(server.answer(&step), at(2.0), at(2.3), 0.0);
    let spec = server.lease.as_ref().and_then(|lease| lease.spec.clone()).expect("a spec");
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(micro(0)), Some(micro(2))), "acquired once, renewed again");
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!(a.term(at(2.3)).map(|term| (term.number, term.until)), Some((1, at(12.0))));
}

#[test]
fn what_is_held_counts_from_before_the_request_was_sent() {
    let (mut server, mut a) = led();
    let step = a.step(at(2.0), wall(2));
    let answer = server.answer(&step);
    a.written(answer, at(2.0), at(9.0), 0.0);
    assert!(is_leader(&a, 11.9) && !is_leader(&a, 12.0), "the answer came after 7 s, and others have waited since");
}

#[test]
fn an_answer_that_comes_when_all_is_over_makes_nobody_a_leader() {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    a.read(Answer::Missing, at(0.0), at(0.0), 0.0);
    let step = a.step(at(0.0), wall(0));
    let answer = server.answer(&step);
    a.written(answer, at(0.0), at(10.0), 0.0);
    assert!(!is_leader(&a, 10.0), "it was frozen in between");
    play(&mut a, &mut server, 10.0);
    assert!(is_leader(&a, 10.0), "but the lease is ours, and another update holds it");
}

#[test]
fn a_term_that_was_over_is_not_gone_on_with_by_an_answer_that_comes_later() {
    let (mut server, mut a) = led();
    let step = a.step(at(9.0), wall(9));
    let answer = server.answer(&step);
    a.written(answer, at(9.0), at(11.0), 0.0);
    assert_eq!(a.term(at(11.0)).map(|term| term.number), Some(2), "who has seen the first one end has seen it end");
}

#[test]
fn anothers_lease_expires_when_its_record_has_not_changed_for_as_long_as_it_lasts() {
    let (mut server, mut a) = led();
    let mut b = candidate("b", 1.0);
    let mut next = play(&mut b, &mut server, 1.0);
    play(&mut a, &mut server, 4.0);
    while next < 15.0 {
        next = play(&mut b, &mut server, next);
    }
    assert!(!is_leader(&b, next), "a renewed at 4, seen a little later");
    while server.holder().as_deref() == Some("a") {
        next = play(&mut b, &mut server, next);
    }
    let since = b.term(at(next)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (19.0..24.0).contains(&since)), "{since:?}");
    assert_eq!(server.transitions(), Some(1));
}

#[test]
fn a_wall_clock_that_jumps_changes_nothing() {
    let (mut server, mut a) = led();
    let mut b = candidate("b", 1.0);
    b.read(server.answer(&Step::Get), at(1.0), at(1.0), 0.0);
    for jump in [-1_000_000, 1_000_000] {
        assert!(matches!(b.step(at(2.9), wall(jump)), Step::Wait(_)));
        let step = b.step(at(3.0), wall(jump));
        assert_eq!(step, Step::Get, "what the lease says of time is not looked at");
    }
    let step = a.step(at(2.0), wall(-1_000_000));
    a.written(server.answer(&step), at(2.0), at(2.0), 0.0);
    assert!(is_leader(&a, 11.9) && !is_leader(&a, 12.0));
}

#[test]
fn a_renewal_at_the_same_wall_clock_time_is_another_record_all_the_same() {
    let (mut server, mut a) = led();
    let before = server.lease.clone().and_then(|lease| lease.spec);
    let step = a.step(at(2.0), wall(0));
    a.written(server.answer(&step), at(2.0), at(2.0), 0.0);
    assert_ne!(
        server.lease.and_then(|lease| lease.spec),
        before,
        "a server would call it no change, and others not see it"
    );
}

#[test]
fn who_labels_a_lease_does_not_renew_it() {
    let (mut server, _a) = led();
    let mut b = candidate("b", 0.0);
    let mut next = play(&mut b, &mut server, 0.0);
    while next < 15.0 {
        server.change(|lease| {
            lease.metadata.labels.get_or_insert_default().insert("seen".into(), next.to_string());
        });
        next = play(&mut b, &mut server, next);
    }
    server.change(|lease| lease.metadata.labels = None);
    next = play(&mut b, &mut server, next);
    play(&mut b, &mut server, next);
    assert_eq!(server.holder().as_deref(), Some("b"), "it expired, and another version was no obstacle");
}

#[test]
fn a_lease_that_says_how_long_it_lasts_is_waited_for_that_long() {
    let (mut server, _a) = led();
    server.change(|lease| lease.spec.get_or_insert_default().lease_duration_seconds = Some(60));
    let mut b = candidate("b", 0.0);
    let mut next = play(&mut b, &mut server, 0.0);
    while next < 60.0 {
        next = play(&mut b, &mut server, next);
    }
    assert_eq!(server.holder().as_deref(), Some("a"));
    play(&mut b, &mut server, 60.5);
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[test]
fn two_that_see_a_lease_expire_do_not_both_get_it() {
    let (mut server, _a) = led();
    let (mut b, mut c) = (candidate("b", 0.0), candidate("c", 0.0));
    for one in [&mut b, &mut c] {
        one.read(server.answer(&Step::Get), at(0.0), at(0.0), 0.0);
    }
    let (by_b, by_c) = (b.step(at(15.0), wall(15)), c.step(at(15.0), wall(15)));
    b.written(server.answer(&by_b), at(15.0), at(15.0), 0.0);
    c.written(server.answer(&by_c), at(15.0), at(15.0), 0.0);
    assert!(is_leader(&b, 15.0) && !is_leader(&c, 15.0));
    assert_eq!(c.step(at(15.0), wall(15)), Step::Get, "it looks at once who was first");
    play(&mut c, &mut server, 15.0);
    assert_eq!(c.holder(), Some("b"));
}

#[test]
fn a_renewal_whose_answer_was_lost_is_looked_for_and_made_again() {
    let (mut server, mut a) = led();
    let step = a.step(at(2.0), wall(2));
    server.answer(&step);
    a.written(Answer::None, at(2.0), at(7.0), 0.0);
    assert!(is_leader(&a, 9.9), "what was held is held still");
    assert_eq!(a.step(at(7.0), wall(7)), Step::Get);
    play(&mut a, &mut server, 7.0);
    assert_eq!(a.term(at(7.0)).map(|term| (term.number, term.until)), Some((1, at(17.0))), "the same term");
}

#[test]
fn an_acquisition_whose_answer_was_lost_is_found_and_held_from_the_next_update_on() {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    a.read(Answer::Missing, at(0.0), at(0.0), 0.0);
    let step = a.step(at(0.0), wall(0));
    server.answer(&step);
    a.written(Answer::None, at(0.0), at(5.0), 0.0);
    assert!(!is_leader(&a, 5.0));
    play(&mut a, &mut server, 5.0);
    assert_eq!(a.term(at(5.0)).map(|term| term.until), Some(at(15.0)));
    assert_eq!(server.transitions(), Some(0));
}

#[test]
fn a_leader_that_cannot_renew_tries_every_retry_period_and_stops_in_time() {
    let (_, mut a) = led();
    let mut tries = 0;
    let mut now = 2.0;
    while now < 10.0 {
        match a.step(at(now), wall(0)) {
            Step::Wait(until) => now = until.since(at(0.0)).as_secs_f64(),
            Step::Get => a.read(Answer::None, at(now), at(now), 1.0),
            _ => a.written(Answer::None, at(now), at(now), 1.0),
        }
        tries += 1;
        assert!(is_leader(&a, 9.9));
    }
    assert_eq!(tries, 8, "four requests, and a wait after each");
    a.step(at(10.0), wall(0));
    assert!(!is_leader(&a, 10.0));
}

#[test]
fn a_conflict_with_somebody_who_has_only_labelled_the_lease_costs_nothing() {
    let (mut server, mut a) = led();
    server.change(|lease| lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    play(&mut a, &mut server, 2.0);
    assert_eq!(a.term(at(2.0)).map(|term| (term.number, term.until)), Some((1, at(12.0))));
    let labels = server.lease.expect("a lease").metadata.labels;
    assert!(labels.is_some(), "what others have written into it stays");
}

#[test]
fn a_leader_whose_lease_another_has_loses_it_when_it_sees_that() {
    let (mut server, mut a) = led();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some("thief".into()));
    play(&mut a, &mut server, 2.0);
    assert!(!is_leader(&a, 2.0));
    assert_eq!(server.holder().as_deref(), Some("thief"));
}

#[test]
fn a_lease_that_was_deleted_is_lost_also_where_another_was_made_in_its_name() {
    let (mut server, mut a) = led();
    let mut gone = Server { lease: None, uids: 1, ..Server::default() };
    let step = a.step(at(2.0), wall(2));
    a.written(gone.answer(&step), at(2.0), at(2.0), 0.0);
    assert!(!is_leader(&a, 2.0), "whoever comes may create another");
    play(&mut a, &mut gone, 2.0);
    assert_eq!(a.term(at(2.0)).map(|term| term.number), Some(2));

    let (_, mut a) = led();
    server.change(|lease| lease.metadata.uid = Some("another".into()));
    let step = a.step(at(2.0), wall(2));
    a.written(server.answer(&step), at(2.0), at(2.0), 0.0);
    a.read(server.answer(&Step::Get), at(2.0), at(2.0), 0.0);
    assert!(!is_leader(&a, 2.0), "the same holder, but not the same lease");
}

#[test]
fn who_saw_a_lease_held_does_not_create_another_before_its_holder_is_over() {
    let (mut server, _a) = led();
    let mut b = candidate("b", 1.0);
    play(&mut b, &mut server, 1.0);
    server.lease = None;
    let mut now = 3.0;
    while server.lease.is_none() {
        assert!(now < 20.0);
        now = play(&mut b, &mut server, now);
    }
    let created = b.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(created.is_some_and(|created| created >= 16.0), "seen at 1, created at {created:?}");
}

#[test]
fn a_lease_that_was_renewed_and_deleted_between_two_looks_was_created_anew_at_once() {
    let (mut server, mut a) = led();
    let mut b = candidate("b", 1.0);
    play(&mut b, &mut server, 1.0);
    // b is cut off, or frozen; a is not.
    for seconds in 1..=15 {
        play(&mut a, &mut server, f64::from(seconds) * 2.0);
    }
    server.lease = None;
    play(&mut b, &mut server, 30.5);
    assert_eq!(server.holder(), None, "a acts until 40");
    let mut now = 30.5;
    while server.lease.is_none() {
        now = play(&mut b, &mut server, now);
    }
    let since = b.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (45.5..46.0).contains(&since)), "{since:?}");
}

#[test]
fn a_lease_that_another_had_taken_and_that_was_deleted_was_created_anew_at_once_by_who_had_held_it_before() {
    let (mut server, mut a) = led();
    let mut b = candidate("b", 1.0);
    // a is cut off, or frozen; b is not.
    let mut now = 1.0;
    while now < 30.0 {
        now = play(&mut b, &mut server, now);
    }
    assert!(is_leader(&b, 30.0));
    server.lease = None;
    play(&mut a, &mut server, 30.5);
    assert_eq!(server.holder(), None, "b acts still");
    let mut now = 30.5;
    while server.lease.is_none() {
        now = play(&mut a, &mut server, now);
    }
    let since = a.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (45.5..46.0).contains(&since)), "{since:?}");
}

#[test]
fn a_released_lease_is_free_at_once_and_counts_as_a_transition() {
    let (mut server, mut a) = led();
    let step = a.release(at(1.0), wall(1)).expect("it is ours");
    server.answer(&step);
    let spec = server.lease.as_ref().and_then(|lease| lease.spec.clone()).expect("a spec");
    let holder = spec.holder_identity.as_deref();
    assert_eq!((holder, spec.lease_duration_seconds), (Some(""), Some(1)), "not null: at that the coordinator panics");
    assert_eq!((spec.renew_time, spec.lease_transitions), (Some(micro(1)), Some(0)));
    let mut b = candidate("b", 1.5);
    play(&mut b, &mut server, 1.5);
    assert!(is_leader(&b, 1.5));
    assert_eq!(server.transitions(), Some(1));
}

#[test]
fn a_release_overwrites_nobody() {
    let (mut server, mut a) = led();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some("b".into()));
    let step = a.release(at(1.0), wall(1)).expect("as far as it knows it is ours");
    assert_eq!(server.answer(&step), Answer::Conflict);
    assert_eq!(server.holder().as_deref(), Some("b"));
    a.read(server.answer(&Step::Get), at(1.0), at(1.0), 0.0);
    assert_eq!(a.release(at(1.0), wall(1)), None);
}

#[test]
fn a_release_in_doubt_reads_first_and_one_that_is_too_late_is_none() {
    let (mut server, mut a) = led();
    let step = a.step(at(2.0), wall(2));
    server.answer(&step);
    a.written(Answer::None, at(2.0), at(3.0), 0.0);
    assert_eq!(a.release(at(3.0), wall(3)), Some(Step::Get), "the version that it knows may not be the last");
    a.read(server.answer(&Step::Get), at(3.0), at(3.0), 0.0);
    let step = a.release(at(3.0), wall(3)).expect("ours");
    assert!(matches!(server.answer(&step), Answer::Lease(_)));
    let (_, mut late) = led();
    assert_eq!(late.release(at(10.0), wall(10)), None, "it is over, and may be another's any moment");
}

#[test]
fn candidates_ask_at_intervals_that_are_drawn_out_by_chance() {
    let (mut server, _a) = led();
    for (chance, expected) in [(0.0, 2.0), (0.5, 3.2), (1.0, 4.4)] {
        let mut b = candidate("b", 0.0);
        b.read(server.answer(&Step::Get), at(0.0), at(0.0), chance);
        assert_eq!(b.step(at(0.0), wall(0)), Step::Wait(at(expected)));
        b.read(Answer::None, at(expected), at(expected + 1.0), chance);
        assert_eq!(
            b.step(at(expected + 1.0), wall(0)),
            Step::Wait(at(expected * 2.0)),
            "a failure as well, from when it was sent"
        );
    }
}
