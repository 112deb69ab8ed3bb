use super::*;
use crate::random::Random;
use crate::record::Identity;
use std::sync::Arc;

fn object(version: &str) -> Object<()> {
    let key = ObjectKey::namespaced("default", "a");
    Object::new(Identity { key, uid: "u".into(), version: version.into() }, Arc::new(()))
}

fn created_and_deleted(delivers_unseen_ends: bool) -> Outbox<()> {
    let mut outbox = Outbox::default();
    outbox.deliver_unseen_ends(delivers_unseen_ends);
    let added = Event::Added { object: object("5"), initial: false };
    let (last, version) = (object("5"), Some(ResourceVersion::new("6")));
    let (certainty, reason) = (Certainty::Observed, DeleteReason::Deleted);
    for event in [added, Event::Deleted { last, version, certainty, reason }] {
        outbox.record(&Change::of_list(event));
    }
    outbox
}

#[test]
fn only_replicas_get_unseen_stay_end() {
    let mut outbox = created_and_deleted(true);
    assert_eq!(outbox.first_pending(), Some(&ResourceVersion::new("5")));
    outbox.begin_write(false);
    outbox.finish_write(true);
    let due =
        outbox.get(&ObjectKey::namespaced("default", "a")).and_then(|pending| pending.due.clone()).expect("an end");
    assert_eq!(due.id(), "u@5-gone");
    assert!(outbox.acknowledge(&ObjectKey::namespaced("default", "a"), &due));
    assert_eq!(outbox.first_pending(), None);
    let mut outbox = created_and_deleted(false);
    outbox.begin_write(false);
    assert_eq!((outbox.len(), outbox.first_pending()), (0, None));
}

fn update(old: &str, new: &str) -> Change<()> {
    Change::of_list(Event::Updated { old: object(old), new: object(new) })
}

fn write(outbox: &mut Outbox<()>) {
    outbox.begin_write(false);
    outbox.finish_write(true);
}

/// Acknowledges the due event, if there is one.
fn acknowledge(outbox: &mut Outbox<()>) -> Option<DueEvent<Object<()>>> {
    let key = ObjectKey::namespaced("default", "a");
    let due = outbox.get(&key)?.due.clone()?;
    assert!(outbox.acknowledge(&key, &due));
    Some(due)
}

fn first_pending(outbox: &Outbox<()>) -> Option<&str> {
    outbox.first_pending().map(ResourceVersion::as_str)
}

#[test]
fn merged_changes_keep_first_version() {
    let mut outbox = Outbox::default();
    outbox.record(&update("5", "6"));
    write(&mut outbox);
    outbox.record(&update("6", "7"));
    outbox.record(&update("7", "8"));
    assert_eq!(first_pending(&outbox), Some("6"));
    acknowledge(&mut outbox).expect("version 6 is due");
    assert_eq!(first_pending(&outbox), Some("7"));
    write(&mut outbox);
    outbox.record(&update("8", "9"));
    assert_eq!(first_pending(&outbox), Some("7"));
    acknowledge(&mut outbox).expect("version 8 is due");
    assert_eq!(first_pending(&outbox), Some("9"));
}

#[test]
fn restored_delivery_has_lower_bound() {
    let mut outbox = Outbox::default();
    let (base, due, latest) = (Some(object("5")), Some(DueEvent::State(object("8"))), Some(object("12")));
    let pending = PendingDelivery { base, due, latest, ..PendingDelivery::default() };
    outbox.restore(ObjectKey::namespaced("default", "a"), pending);
    assert_eq!(first_pending(&outbox), Some("6"));
    acknowledge(&mut outbox).expect("version 8 is due");
    assert_eq!(first_pending(&outbox), Some("9"));
}

#[test]
fn restored_delivery_keeps_first_change() {
    let mut outbox = Outbox::default();
    let due = Some(DueEvent::State(object("8")));
    let first_change = Some(ResourceVersion::new("6"));
    let pending = PendingDelivery { due, latest: Some(object("8")), first_change, ..PendingDelivery::default() };
    outbox.restore(ObjectKey::namespaced("default", "a"), pending);
    assert_eq!((first_pending(&outbox), outbox.has_unknown_first_change()), (Some("6"), false));
}

#[test]
fn restored_delivery_without_bound_is_unknown() {
    let mut outbox = Outbox::default();
    let due = Some(DueEvent::State(object("8")));
    let pending = PendingDelivery { due, latest: Some(object("12")), ..PendingDelivery::default() };
    outbox.restore(ObjectKey::namespaced("default", "a"), pending);
    assert!(outbox.has_unknown_first_change(), "the creation of the object may be an earlier change");
    acknowledge(&mut outbox).expect("version 8 is due");
    assert_eq!((first_pending(&outbox), outbox.has_unknown_first_change()), (Some("9"), false));
}

#[test]
fn listed_change_includes_skipped_versions() {
    let reached = ResourceVersion::new("6");
    let mut outbox = Outbox::default();
    outbox.record_after(&update("5", "9"), Some(&reached));
    assert_eq!(first_pending(&outbox), Some("7"));
    let mut outbox = Outbox::default();
    let watched = Change { version: Some(ResourceVersion::new("9")), ..update("5", "9") };
    outbox.record_after(&watched, Some(&reached));
    assert_eq!(first_pending(&outbox), Some("9"), "a watch skips nothing");
    // After a restore of the server from a backup, its versions are lower.
    let mut outbox = Outbox::default();
    outbox.record_after(&update("3", "4"), Some(&reached));
    assert_eq!(first_pending(&outbox), Some("4"));
}

/// The first pending version is that of the first unacknowledged change, in random sequences of changes, writes
/// and acknowledgements of one object.
#[test]
fn first_pending_is_first_unacknowledged_change() {
    let key = ObjectKey::namespaced("default", "a");
    for seed in 0..200 {
        let (mut rng, mut outbox) = (Random::new(seed), Outbox::default());
        outbox.deliver_unseen_ends(true);
        let (mut current, mut unacknowledged) = (None::<Object<()>>, Vec::<u64>::new());
        for version in 1..60_u64 {
            match rng.below(6) {
                0 => write(&mut outbox),
                1 => {
                    let acknowledged = match acknowledge(&mut outbox) {
                        Some(DueEvent::State(state)) => state.version().clone(),
                        Some(DueEvent::End(end)) => end.version().clone(),
                        None => continue,
                    };
                    unacknowledged
                        .retain(|version| ResourceVersion::new(&version.to_string()).is_newer_than(&acknowledged));
                }
                change => {
                    let (new, initial) = (object(&version.to_string()), false);
                    let event = match current.take() {
                        None => Event::Added { object: new.clone(), initial },
                        Some(last) if change == 2 => Event::Deleted {
                            last,
                            version: Some(new.version().clone()),
                            certainty: Certainty::Observed,
                            reason: DeleteReason::Deleted,
                        },
                        Some(old) => Event::Updated { old, new: new.clone() },
                    };
                    current = (!matches!(event, Event::Deleted { .. })).then_some(new);
                    outbox.record(&Change::of_list(event));
                    unacknowledged.push(version);
                }
            }
            let Some(pending) = outbox.get(&key) else {
                unacknowledged.clear();
                continue;
            };
            assert!(!outbox.has_unknown_first_change(), "seed {seed}, version {version}");
            let expected = unacknowledged.first().map(u64::to_string);
            match first_pending(&outbox) {
                Some(first) => assert_eq!(Some(first), expected.as_deref(), "seed {seed}, version {version}"),
                // A stay whose start and end were both unseen is dropped.
                None => assert!(pending.due.is_none() && pending.ended.is_none() && pending.latest.is_none()),
            }
        }
    }
}
