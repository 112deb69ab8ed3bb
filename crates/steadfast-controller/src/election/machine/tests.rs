//! Rules of the state machine, one scenario each.

use std::time::Duration;

use steadfast::environment::Instant;
use steadfast::k8s_openapi::api::coordination::v1::Lease;
use steadfast::k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use steadfast::k8s_openapi::jiff::Timestamp;

use super::super::record;
use super::super::timing::Timing;
use super::{ElectionMachine, Step, StepResult};

/// Returns the instant of a scenario at this number of seconds.
pub(super) fn at(seconds: f64) -> Instant {
    Instant::from_zero(Duration::from_secs(1000) + Duration::from_secs_f64(seconds))
}

pub(super) fn wall(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

/// Server with one lease, which responds immediately.
#[derive(Default)]
pub(super) struct Server {
    pub(super) lease: Option<Lease>,
    /// All states of the lease.
    states: Vec<Lease>,
    /// True if the server returns no earlier states.
    pub(super) has_no_history: bool,
    versions: u64,
    uids: u64,
}

impl Server {
    pub(super) fn respond(&mut self, step: &Step) -> StepResult {
        match step {
            Step::Wait(_) => panic!("a wait is not a request"),
            Step::Get => self.lease.clone().map_or(StepResult::Missing, |lease| StepResult::Lease(Box::new(lease))),
            Step::Create(_) if self.lease.is_some() => StepResult::Conflict,
            Step::Create(lease) => self.create((**lease).clone()),
            Step::Update(lease) => match &self.lease {
                None => StepResult::Missing,
                Some(kept) if kept.metadata.resource_version != lease.metadata.resource_version => StepResult::Conflict,
                Some(kept) if kept.metadata.uid != lease.metadata.uid => StepResult::Conflict,
                Some(_) => self.store((**lease).clone()),
            },
            Step::ReadHistory { .. } if self.has_no_history => StepResult::Unknown,
            Step::ReadHistory { after, until } => {
                let place = |version: &String| self.states.iter().position(|state| record::version(state) == version);
                let states =
                    place(after).zip(place(until)).map(|(after, until)| self.states[after + 1..=until].to_vec());
                states.map_or(StepResult::Unknown, StepResult::States)
            }
        }
    }

    pub(super) fn create(&mut self, mut lease: Lease) -> StepResult {
        self.uids += 1;
        lease.metadata.uid = Some(format!("uid-{}", self.uids));
        self.store(lease)
    }

    fn store(&mut self, mut lease: Lease) -> StepResult {
        self.versions += 1;
        lease.metadata.resource_version = Some(self.versions.to_string());
        self.lease = Some(lease.clone());
        self.states.push(lease.clone());
        StepResult::Lease(Box::new(lease))
    }

    /// Changes the lease as another client.
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

pub(super) fn candidate(identity: &str, seconds: f64) -> ElectionMachine {
    ElectionMachine::new("default", "it", identity.to_owned(), Timing::default(), at(seconds))
}

/// Runs `candidate` at `seconds` with immediate responses, until it waits. Returns the end of the wait.
pub(super) fn run(candidate: &mut ElectionMachine, server: &mut Server, seconds: f64) -> f64 {
    for _ in 0..5 {
        let now = at(seconds);
        match candidate.step(now, wall(seconds as i64)) {
            Step::Wait(until) => return until.since(at(0.0)).as_secs_f64(),
            step @ Step::Get => candidate.record_read(server.respond(&step), now, now, 0.5),
            step @ Step::ReadHistory { .. } => candidate.record_history(server.respond(&step), now),
            step => candidate.record_write(server.respond(&step), now, now, 0.5),
        }
    }
    panic!("the candidate never waits");
}

pub(super) fn is_leader(candidate: &ElectionMachine, seconds: f64) -> bool {
    candidate.term(at(seconds)).is_some()
}

/// Returns a server, and the candidate `a`, which acquired the lease at second 0.
fn with_leader() -> (Server, ElectionMachine) {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    run(&mut a, &mut server, 0.0);
    assert!(is_leader(&a, 0.0));
    (server, a)
}

#[test]
fn missing_lease_is_created_like_client_go() {
    let (server, a) = with_leader();
    let lease = server.lease.clone().expect("a lease");
    let spec = lease.spec.expect("a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(spec.lease_duration_seconds, Some(15));
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(micro(0)), Some(micro(0))));
    assert!(is_leader(&a, 9.999) && !is_leader(&a, 10.0), "the term lasts for the renew deadline");
}

/// Returns the wall-clock time as a lease field.
fn micro(seconds: i64) -> MicroTime {
    MicroTime(wall(seconds))
}

#[test]
fn leader_renews_without_reading() {
    let (mut server, mut a) = with_leader();
    assert!(matches!(a.step(at(1.9), wall(1)), Step::Wait(until) if until == at(2.0)));
    let step = a.step(at(2.0), wall(2));
    assert!(
        matches!(&step, Step::Update(lease) if lease.metadata.resource_version.as_deref() == Some("1")),
        "{step:?}"
    );
    a.record_write(server.respond(&step), at(2.0), at(2.3), 0.0);
    let spec = server.lease.as_ref().and_then(|lease| lease.spec.clone()).expect("a spec");
    assert_eq!((spec.acquire_time, spec.renew_time), (Some(micro(0)), Some(micro(2))), "acquired once, renewed again");
    assert_eq!(spec.lease_transitions, Some(0));
    assert_eq!(a.term(at(2.3)).map(|term| (term.number, term.until)), Some((1, at(12.0))));
}

#[test]
fn term_counts_from_before_sending() {
    let (mut server, mut a) = with_leader();
    let step = a.step(at(2.0), wall(2));
    let result = server.respond(&step);
    a.record_write(result, at(2.0), at(9.0), 0.0);
    assert!(is_leader(&a, 11.9) && !is_leader(&a, 12.0), "the response took 7 s");
}

#[test]
fn late_response_starts_no_term() {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    a.record_read(StepResult::Missing, at(0.0), at(0.0), 0.0);
    let step = a.step(at(0.0), wall(0));
    let result = server.respond(&step);
    a.record_write(result, at(0.0), at(10.0), 0.0);
    assert!(!is_leader(&a, 10.0), "the process was suspended");
    run(&mut a, &mut server, 10.0);
    assert!(is_leader(&a, 10.0), "the next update starts the term");
}

#[test]
fn expired_term_is_not_extended() {
    let (mut server, mut a) = with_leader();
    let step = a.step(at(9.0), wall(9));
    let result = server.respond(&step);
    a.record_write(result, at(9.0), at(11.0), 0.0);
    assert_eq!(a.term(at(11.0)).map(|term| term.number), Some(2), "a new term, because the end was visible");
}

#[test]
fn unchanged_record_expires_after_lease_duration() {
    let (mut server, mut a) = with_leader();
    let mut b = candidate("b", 1.0);
    let mut next = run(&mut b, &mut server, 1.0);
    run(&mut a, &mut server, 4.0);
    while next < 15.0 {
        next = run(&mut b, &mut server, next);
    }
    assert!(!is_leader(&b, next), "a renewed at 4");
    while server.holder().as_deref() == Some("a") {
        next = run(&mut b, &mut server, next);
    }
    let since = b.term(at(next)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (19.0..24.0).contains(&since)), "{since:?}");
    assert_eq!(server.transitions(), Some(1));
}

#[test]
fn wall_clock_jumps_change_nothing() {
    let (mut server, mut a) = with_leader();
    let mut b = candidate("b", 1.0);
    b.record_read(server.respond(&Step::Get), at(1.0), at(1.0), 0.0);
    for jump in [-1_000_000, 1_000_000] {
        assert!(matches!(b.step(at(2.9), wall(jump)), Step::Wait(_)));
        let step = b.step(at(3.0), wall(jump));
        assert_eq!(step, Step::Get, "times in the lease are ignored");
    }
    let step = a.step(at(2.0), wall(-1_000_000));
    a.record_write(server.respond(&step), at(2.0), at(2.0), 0.0);
    assert!(is_leader(&a, 11.9) && !is_leader(&a, 12.0));
}

#[test]
fn renewal_always_changes_the_record() {
    let (mut server, mut a) = with_leader();
    let before = server.lease.clone().and_then(|lease| lease.spec);
    let step = a.step(at(2.0), wall(0));
    a.record_write(server.respond(&step), at(2.0), at(2.0), 0.0);
    assert_ne!(server.lease.and_then(|lease| lease.spec), before, "an unchanged record is neither written nor renewed");
}

#[test]
fn label_change_does_not_renew_lease() {
    let (mut server, _a) = with_leader();
    let mut b = candidate("b", 0.0);
    let mut next = run(&mut b, &mut server, 0.0);
    while next < 15.0 {
        server.change(|lease| {
            lease.metadata.labels.get_or_insert_default().insert("seen".into(), next.to_string());
        });
        next = run(&mut b, &mut server, next);
    }
    server.change(|lease| lease.metadata.labels = None);
    next = run(&mut b, &mut server, next);
    run(&mut b, &mut server, next);
    assert_eq!(server.holder().as_deref(), Some("b"), "the lease expired despite the new version");
}

#[test]
fn stated_lease_duration_is_respected() {
    let (mut server, _a) = with_leader();
    server.change(|lease| lease.spec.get_or_insert_default().lease_duration_seconds = Some(60));
    let mut b = candidate("b", 0.0);
    let mut next = run(&mut b, &mut server, 0.0);
    while next < 60.0 {
        next = run(&mut b, &mut server, next);
    }
    assert_eq!(server.holder().as_deref(), Some("a"));
    run(&mut b, &mut server, 60.5);
    assert_eq!(server.holder().as_deref(), Some("b"));
}

#[test]
fn only_one_candidate_takes_expired_lease() {
    let (mut server, _a) = with_leader();
    let (mut b, mut c) = (candidate("b", 0.0), candidate("c", 0.0));
    for one in [&mut b, &mut c] {
        one.record_read(server.respond(&Step::Get), at(0.0), at(0.0), 0.0);
    }
    let (by_b, by_c) = (b.step(at(15.0), wall(15)), c.step(at(15.0), wall(15)));
    b.record_write(server.respond(&by_b), at(15.0), at(15.0), 0.0);
    c.record_write(server.respond(&by_c), at(15.0), at(15.0), 0.0);
    assert!(is_leader(&b, 15.0) && !is_leader(&c, 15.0));
    assert_eq!(c.step(at(15.0), wall(15)), Step::Get, "a conflict triggers a read");
    run(&mut c, &mut server, 15.0);
    assert_eq!(c.holder(), Some("b"));
}

#[test]
fn lost_renewal_response_triggers_read() {
    let (mut server, mut a) = with_leader();
    let step = a.step(at(2.0), wall(2));
    server.respond(&step);
    a.record_write(StepResult::Unknown, at(2.0), at(7.0), 0.0);
    assert!(is_leader(&a, 9.9), "the term continues");
    assert_eq!(a.step(at(7.0), wall(7)), Step::Get);
    run(&mut a, &mut server, 7.0);
    assert_eq!(a.term(at(7.0)).map(|term| (term.number, term.until)), Some((1, at(17.0))), "the same term");
}

#[test]
fn lost_acquisition_response_delays_term() {
    let (mut server, mut a) = (Server::default(), candidate("a", 0.0));
    a.record_read(StepResult::Missing, at(0.0), at(0.0), 0.0);
    let step = a.step(at(0.0), wall(0));
    server.respond(&step);
    a.record_write(StepResult::Unknown, at(0.0), at(5.0), 0.0);
    assert!(!is_leader(&a, 5.0));
    run(&mut a, &mut server, 5.0);
    assert_eq!(a.term(at(5.0)).map(|term| term.until), Some(at(15.0)));
    assert_eq!(server.transitions(), Some(0));
}

#[test]
fn failing_leader_stops_at_deadline() {
    let (_, mut a) = with_leader();
    let mut tries = 0;
    let mut now = 2.0;
    while now < 10.0 {
        match a.step(at(now), wall(0)) {
            Step::Wait(until) => now = until.since(at(0.0)).as_secs_f64(),
            Step::Get => a.record_read(StepResult::Unknown, at(now), at(now), 1.0),
            _ => a.record_write(StepResult::Unknown, at(now), at(now), 1.0),
        }
        tries += 1;
        assert!(is_leader(&a, 9.9));
    }
    assert_eq!(tries, 8, "four requests with a wait each");
    a.step(at(10.0), wall(0));
    assert!(!is_leader(&a, 10.0));
}

#[test]
fn conflict_with_label_keeps_term() {
    let (mut server, mut a) = with_leader();
    server.change(|lease| lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into()));
    run(&mut a, &mut server, 2.0);
    assert_eq!(a.term(at(2.0)).map(|term| (term.number, term.until)), Some((1, at(12.0))));
    let labels = server.lease.expect("a lease").metadata.labels;
    assert!(labels.is_some(), "foreign fields stay");
}

/// Regression test: after two conflicts in a row, a leader waited like a candidate, up to 2.2 times as long.
#[test]
fn conflicts_delay_leader_without_jitter() {
    let (mut server, mut a) = with_leader();
    let mut conflicts = 0;
    while conflicts < 2 {
        match a.step(at(2.0), wall(2)) {
            step @ Step::Update(_) => {
                // Another client changes a label between the last read and the renewal.
                server.change(|lease| lease.metadata.labels = Some([(conflicts.to_string(), String::new())].into()));
                a.record_write(server.respond(&step), at(2.0), at(2.0), 1.0);
                conflicts += 1;
            }
            step @ Step::Get => a.record_read(server.respond(&step), at(2.0), at(2.0), 1.0),
            step => panic!("{step:?} between two conflicts"),
        }
    }
    assert!(is_leader(&a, 2.0));
    assert_eq!(a.step(at(2.0), wall(2)), Step::Wait(at(4.0)));
    run(&mut a, &mut server, 4.0);
    assert_eq!(a.term(at(4.0)).map(|term| (term.number, term.until)), Some((1, at(14.0))));
}

#[test]
fn stolen_lease_ends_the_term() {
    let (mut server, mut a) = with_leader();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some("thief".into()));
    run(&mut a, &mut server, 2.0);
    assert!(!is_leader(&a, 2.0));
    assert_eq!(server.holder().as_deref(), Some("thief"));
}

#[test]
fn deleted_or_recreated_lease_ends_term() {
    let (mut server, mut a) = with_leader();
    let mut empty = Server { lease: None, uids: 1, ..Server::default() };
    let step = a.step(at(2.0), wall(2));
    a.record_write(empty.respond(&step), at(2.0), at(2.0), 0.0);
    assert!(!is_leader(&a, 2.0), "any candidate may create another lease");
    run(&mut a, &mut empty, 2.0);
    assert_eq!(a.term(at(2.0)).map(|term| term.number), Some(2));

    let (_, mut a) = with_leader();
    server.change(|lease| lease.metadata.uid = Some("another".into()));
    let step = a.step(at(2.0), wall(2));
    a.record_write(server.respond(&step), at(2.0), at(2.0), 0.0);
    a.record_read(server.respond(&Step::Get), at(2.0), at(2.0), 0.0);
    assert!(!is_leader(&a, 2.0), "same holder, but another lease");
}

#[test]
fn deleted_lease_is_recreated_after_expiry() {
    let (mut server, _a) = with_leader();
    let mut b = candidate("b", 1.0);
    run(&mut b, &mut server, 1.0);
    server.lease = None;
    let mut now = 3.0;
    while server.lease.is_none() {
        assert!(now < 20.0);
        now = run(&mut b, &mut server, now);
    }
    let created = b.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(created.is_some_and(|created| created >= 16.0), "seen at 1, created at {created:?}");
}

#[test]
fn deletion_after_unseen_renewal_waits() {
    let (mut server, mut a) = with_leader();
    let mut b = candidate("b", 1.0);
    run(&mut b, &mut server, 1.0);
    // b is disconnected or suspended; a is not.
    for seconds in 1..=15 {
        run(&mut a, &mut server, f64::from(seconds) * 2.0);
    }
    server.lease = None;
    run(&mut b, &mut server, 30.5);
    assert_eq!(server.holder(), None, "a acts until 40");
    let mut now = 30.5;
    while server.lease.is_none() {
        now = run(&mut b, &mut server, now);
    }
    let since = b.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (45.5..46.0).contains(&since)), "{since:?}");
}

#[test]
fn former_leader_waits_after_deletion() {
    let (mut server, mut a) = with_leader();
    let mut b = candidate("b", 1.0);
    // a is disconnected or suspended; b is not.
    let mut now = 1.0;
    while now < 30.0 {
        now = run(&mut b, &mut server, now);
    }
    assert!(is_leader(&b, 30.0));
    server.lease = None;
    run(&mut a, &mut server, 30.5);
    assert_eq!(server.holder(), None, "b still acts");
    let mut now = 30.5;
    while server.lease.is_none() {
        now = run(&mut a, &mut server, now);
    }
    let since = a.term(at(now)).map(|term| term.until.since(at(0.0)).as_secs_f64() - 10.0);
    assert!(since.is_some_and(|since| (45.5..46.0).contains(&since)), "{since:?}");
}

#[test]
fn released_lease_is_free_immediately() {
    let (mut server, mut a) = with_leader();
    let step = a.release(at(1.0), wall(1)).expect("held by a");
    server.respond(&step);
    let spec = server.lease.as_ref().and_then(|lease| lease.spec.clone()).expect("a spec");
    let holder = spec.holder_identity.as_deref();
    assert_eq!(
        (holder, spec.lease_duration_seconds),
        (Some(""), Some(1)),
        "not null, because the coordinator panics on \
     null"
    );
    assert_eq!((spec.renew_time, spec.lease_transitions), (Some(micro(1)), Some(0)));
    let mut b = candidate("b", 1.5);
    run(&mut b, &mut server, 1.5);
    assert!(is_leader(&b, 1.5));
    assert_eq!(server.transitions(), Some(1));
}

#[test]
fn release_overwrites_no_other_holder() {
    let (mut server, mut a) = with_leader();
    server.change(|lease| lease.spec.get_or_insert_default().holder_identity = Some("b".into()));
    let step = a.release(at(1.0), wall(1)).expect("held as far as known");
    assert_eq!(server.respond(&step), StepResult::Conflict);
    assert_eq!(server.holder().as_deref(), Some("b"));
    a.record_read(server.respond(&Step::Get), at(1.0), at(1.0), 0.0);
    assert_eq!(a.release(at(1.0), wall(1)), None);
}

#[test]
fn uncertain_release_reads_first() {
    let (mut server, mut a) = with_leader();
    let step = a.step(at(2.0), wall(2));
    server.respond(&step);
    a.record_write(StepResult::Unknown, at(2.0), at(3.0), 0.0);
    assert_eq!(a.release(at(3.0), wall(3)), Some(Step::Get), "the known version may be outdated");
    a.record_read(server.respond(&Step::Get), at(3.0), at(3.0), 0.0);
    let step = a.release(at(3.0), wall(3)).expect("ours");
    assert!(matches!(server.respond(&step), StepResult::Lease(_)));
    let (_, mut late) = with_leader();
    assert_eq!(late.release(at(10.0), wall(10)), None, "the term ended, and another candidate may hold the lease");
}

#[test]
fn candidates_read_at_jittered_intervals() {
    let (mut server, _a) = with_leader();
    for (chance, expected) in [(0.0, 2.0), (0.5, 3.2), (1.0, 4.4)] {
        let mut b = candidate("b", 0.0);
        b.record_read(server.respond(&Step::Get), at(0.0), at(0.0), chance);
        assert_eq!(b.step(at(0.0), wall(0)), Step::Wait(at(expected)));
        b.record_read(StepResult::Unknown, at(expected), at(expected + 1.0), chance);
        assert_eq!(
            b.step(at(expected + 1.0), wall(0)),
            Step::Wait(at(expected * 2.0)),
            "after a failure too, counted from sending"
        );
    }
}
