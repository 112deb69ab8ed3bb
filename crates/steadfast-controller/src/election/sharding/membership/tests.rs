//! Rules of membership, one scenario each.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast::k8s_openapi::jiff::Timestamp;

use super::*;

/// Returns the instant of a scenario at this number of seconds.
fn at(seconds: f64) -> Instant {
    Instant::from_zero(Duration::from_secs(1000) + Duration::from_secs_f64(seconds))
}

/// Server with the leases of the members.
#[derive(Default)]
struct Server {
    leases: BTreeMap<String, Lease>,
    versions: u64,
}

impl Server {
    /// Writes the lease of `member`, which receives the response.
    fn write(&mut self, member: &mut Membership, seconds: f64) {
        let lease = self.write_lease(member, seconds);
        member.record_write(Box::new(lease));
    }

    /// Writes the lease of `member`, and returns the response. `member` does not receive the response.
    fn write_lease(&mut self, member: &Membership, seconds: f64) -> Lease {
        let wall = Timestamp::from_millisecond(1_700_000_000_000 + (seconds * 1000.0) as i64).expect("a time");
        let mut lease = match self.leases.get(&*member.own_name) {
            Some(lease) => record::held(lease, &member.own_name, &Timing::default(), wall),
            None => record::created("default", &member.own_name, &member.own_name, &Timing::default(), wall),
        };
        member.add_group_and_view(&mut lease);
        self.versions += 1;
        lease.metadata.uid.get_or_insert_with(|| format!("uid-{}", self.versions));
        lease.metadata.resource_version = Some(self.versions.to_string());
        self.leases.insert(member.own_name.to_string(), lease.clone());
        lease
    }

    /// Passes all leases to `member`.
    fn read(&self, member: &mut Membership, seconds: f64) {
        assert!(member.record_read(self.leases.values().cloned().collect(), at(seconds)), "a current list");
    }

    /// Runs one round of `member` without guards of keys.
    fn run_round(&mut self, member: &mut Membership, seconds: f64) {
        self.write(member, seconds);
        self.read(member, seconds);
        member.adopt_next_view();
    }
}

fn member(name: &str) -> Membership {
    Membership::new("it", name, Timing::default())
}

fn keys() -> Vec<ObjectKey> {
    (0..60).map(|number| ObjectKey::namespaced("default", format!("key-{number}"))).collect()
}

/// Returns the number of keys that a member owns, of the 60 [`keys`].
fn owned_key_count(member: &Membership) -> usize {
    let Some(owned_keys) = member.owned_keys() else { return 0 };
    keys().iter().filter(|key| owned_keys.owns(key)).count()
}

/// Returns a server, and two members that share the keys.
fn server_with_two_members() -> (Server, Membership, Membership) {
    let (mut server, mut a, mut b) = (Server::default(), member("it-a"), member("it-b"));
    for seconds in 0..5 {
        server.run_round(&mut a, f64::from(seconds));
        server.run_round(&mut b, f64::from(seconds));
    }
    assert_eq!(
        (owned_key_count(&a) + owned_key_count(&b), owned_key_count(&a) > 10, owned_key_count(&b) > 10),
        (60, true, true)
    );
    (server, a, b)
}

#[test]
fn single_member_owns_all_after_reading() {
    let (mut server, mut a) = (Server::default(), member("it-a"));
    server.write(&mut a, 0.0);
    server.read(&mut a, 0.0);
    assert_eq!(owned_key_count(&a), 0, "a new member claims nothing");
    assert!(a.must_change() && a.hands_over_keys());
    a.adopt_next_view();
    assert_eq!(owned_key_count(&a), 0, "the claim is not written");
    server.write(&mut a, 1.0);
    assert_eq!(owned_key_count(&a), 0, "other claims may be older");
    server.read(&mut a, 1.0);
    assert_eq!(owned_key_count(&a), 60);
    assert!(!a.must_change() && !a.is_changing());
}

#[test]
fn no_keys_reserved_for_non_reading_member() {
    let (mut server, mut a, mut b) = (Server::default(), member("it-a"), member("it-b"));
    (0..3).for_each(|seconds| server.run_round(&mut a, f64::from(seconds)));
    for seconds in 3..20 {
        server.write(&mut b, f64::from(seconds));
        server.run_round(&mut a, f64::from(seconds));
        assert_eq!((owned_key_count(&a), owned_key_count(&b)), (60, 0));
    }
    // After reading, the member receives its keys.
    for seconds in 20..25 {
        server.run_round(&mut b, f64::from(seconds));
        server.run_round(&mut a, f64::from(seconds));
    }
    assert_eq!((owned_key_count(&a) + owned_key_count(&b), owned_key_count(&b) > 10), (60, true));
}

#[test]
fn new_member_waits_for_withdrawn_claim() {
    let (mut server, mut a, mut b) = (Server::default(), member("it-a"), member("it-b"));
    (0..3).for_each(|seconds| server.run_round(&mut a, f64::from(seconds)));
    (3..6).for_each(|seconds| server.run_round(&mut b, f64::from(seconds)));
    assert_eq!((owned_key_count(&a), owned_key_count(&b)), (60, 0), "a claims all keys");
    server.read(&mut a, 6.0);
    let kept = owned_key_count(&a);
    assert!((10..50).contains(&kept), "a starts no work on lost keys, and keeps {kept}");
    assert!(a.hands_over_keys(), "running work must end first");
    server.run_round(&mut b, 7.0);
    assert_eq!(owned_key_count(&b), 0, "no owner during the hand-over");
    a.adopt_next_view();
    server.write(&mut a, 8.0);
    assert_eq!((owned_key_count(&a), owned_key_count(&b)), (kept, 0), "b has not read yet");
    server.read(&mut b, 9.0);
    assert_eq!((owned_key_count(&a), owned_key_count(&b)), (kept, 60 - kept));
}

#[test]
fn silent_member_keeps_keys_until_deletion() {
    let (mut server, mut a, b) = server_with_two_members();
    let own = owned_key_count(&a);
    for seconds in 5..19 {
        server.run_round(&mut a, f64::from(seconds));
        assert_eq!((owned_key_count(&a), a.expired_lease(at(f64::from(seconds)))), (own, None));
    }
    server.run_round(&mut a, 19.5);
    let lapsed = a.expired_lease(at(20.0)).expect("15 s after the last change at 5");
    assert_eq!(lapsed.name, b.own_name);
    assert_eq!(Some(&lapsed.version), server.leases["it-b"].metadata.resource_version.as_ref());
    assert_eq!(owned_key_count(&a), own, "a renewal may still arrive");
    server.leases.remove("it-b");
    server.read(&mut a, 21.0);
    assert!(a.must_change() && !a.hands_over_keys(), "no key is handed over");
    assert_eq!(owned_key_count(&a), own);
    a.adopt_next_view();
    server.run_round(&mut a, 22.0);
    assert_eq!(owned_key_count(&a), 60);
}

#[test]
fn deleted_lease_keeps_its_claims() {
    let (mut server, mut a, _) = server_with_two_members();
    let own = owned_key_count(&a);
    server.leases.remove("it-b");
    for seconds in 5..19 {
        server.run_round(&mut a, f64::from(seconds));
        assert_eq!(owned_key_count(&a), own, "its member may still act");
    }
    server.run_round(&mut a, 21.0);
    assert_eq!(owned_key_count(&a), 60);
}

#[test]
fn released_lease_frees_keys_immediately() {
    let (mut server, mut a, _) = server_with_two_members();
    let released = record::released(&server.leases["it-b"], Timestamp::UNIX_EPOCH);
    server.leases.insert("it-b".into(), released);
    server.run_round(&mut a, 5.0);
    server.run_round(&mut a, 6.0);
    assert_eq!(owned_key_count(&a), 60);
    assert_eq!(a.expired_lease(at(19.0)), None, "all members must see the release");
    assert!(a.expired_lease(at(20.0)).is_some(), "deleted afterwards");
}

#[test]
fn uncertain_write_counts_as_both_views() {
    let (mut server, mut a, _) = server_with_two_members();
    let mut c = member("it-c");
    server.run_round(&mut c, 4.0);
    server.write(&mut c, 5.0);
    server.read(&mut a, 5.0);
    let kept = owned_key_count(&a);
    a.adopt_next_view();
    drop(server.write_lease(&a, 6.0));
    assert_eq!(owned_key_count(&a), kept);
    server.leases.remove("it-c");
    assert!(
        !a.record_read(server.leases.values().cloned().collect(), at(7.0)),
        "the lease differs from the confirmed state"
    );
    server.write(&mut a, 8.0);
    server.read(&mut a, 8.0);
    assert!(a.must_change() && !a.hands_over_keys(), "keys return after write and read");
    assert_eq!(owned_key_count(&a), kept);
}

#[test]
fn outdated_list_is_ignored() {
    let (mut server, mut a, _) = server_with_two_members();
    let before: Vec<_> = server.leases.values().cloned().collect();
    server.write(&mut a, 6.0);
    assert!(!a.record_read(before, at(6.0)));
    server.read(&mut a, 6.0);
}

#[test]
fn expired_member_needs_write_and_read() {
    let (mut server, mut a, _) = server_with_two_members();
    let own = owned_key_count(&a);
    a.clear_claims();
    assert_eq!(owned_key_count(&a), 0);
    server.write(&mut a, 12.0);
    assert_eq!(owned_key_count(&a), 0);
    server.read(&mut a, 12.0);
    assert_eq!(owned_key_count(&a), own);
    a.withdraw_claims();
    server.write(&mut a, 13.0);
    server.read(&mut a, 13.0);
    assert_eq!(owned_key_count(&a), 0, "a new lease claims nothing");
}

#[test]
fn random_orders_never_share_a_key() {
    let mut state: u64 = 7;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let mut server = Server::default();
        let mut members: Vec<_> = ["it-a", "it-b", "it-c", "it-d"].map(member).into();
        for step in 0..60_u32 {
            let seconds = f64::from(step) / 50.0;
            // Members join one after the other.
            let member = &mut members[draw(1 + (u64::from(step) / 8).min(3)) as usize];
            match draw(6) {
                0 | 1 => server.write(member, seconds),
                2 => drop(server.write_lease(member, seconds)),
                3 => drop(member.record_read(server.leases.values().cloned().collect(), at(seconds))),
                4 => member.adopt_next_view(),
                _ if draw(4) == 0 => member.clear_claims(),
                _ => {}
            }
            let parts: Vec<_> = members.iter().filter_map(Membership::owned_keys).collect();
            for key in keys() {
                let owners = parts.iter().filter(|part| part.owns(&key)).count();
                assert!(owners <= 1, "{key} has {owners} owners");
            }
        }
        for round in 0..6 {
            for member in &mut members {
                server.run_round(member, 2.0 + f64::from(round));
            }
        }
        assert_eq!(members.iter().map(owned_key_count).sum::<usize>(), 60);
    }
}
