//! Events for each change of a key, case by case.

#![allow(clippy::unnecessary_wraps, reason = "so that the cases below read as sentences")]

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::core::{ObjectMeta, PartialObjectMeta};
use steadfast_core::event::{Certainty, DeleteReason, Rules, StateSource, difference};
use steadfast_core::record::Identity;
use steadfast_core::{Entry, Event, Object, ObjectKey};

const WATCHED: StateSource = StateSource::Watched { deletion: None };
const LISTED: StateSource = StateSource::Listed { initial: false };
const FIRST_LIST: StateSource = StateSource::Listed { initial: true };

/// Object that consists of its description.
type Text = &'static str;

fn identity(uid: &str, version: &str) -> Identity {
    Identity { key: ObjectKey::cluster("a"), uid: uid.into(), version: version.into() }
}

fn known(uid: &str, version: &str, object: Text) -> Option<Entry<Text>> {
    Some(Entry::known(Object::new(identity(uid, version), Arc::new(object))))
}

/// Creates a tainted entry with the last decodable state.
fn tainted(uid: &str, version: &str, last: Option<Text>) -> Option<Entry<Text>> {
    let last = last.map(|last| Object::new(identity(uid, "0"), Arc::new(last)));
    Some(Entry::tainted(identity(uid, version), last))
}

fn deletion(version: &str) -> StateSource {
    StateSource::Watched { deletion: Some(version.into()) }
}

fn reported_under(
    rules: Rules,
    old: Option<&Entry<Text>>,
    new: Option<&Entry<Text>>,
    source: &StateSource,
) -> Vec<String> {
    let mut reported = Vec::new();
    difference(old, new, source, rules, |change| {
        let event = match &change.event {
            Event::Added { object, initial } => format!("Added {object}{}", if *initial { ", initial" } else { "" }),
            Event::Updated { old, new } => format!("Updated {old} to {new}"),
            Event::Deleted { last, version: Some(version), certainty, reason } => {
                format!("Deleted {last} at {version}, {certainty}, {reason}")
            }
            Event::Deleted { last, version: None, certainty, reason } => {
                format!("Deleted {last}, {certainty}, {reason}")
            }
            Event::Resynced { object } => format!("Resynced {object}"),
        };
        reported.push(format!("{}: {event}", change.uid()));
    });
    reported
}

#[allow(clippy::needless_pass_by_value, reason = "so that the cases below read as sentences")]
fn reported(old: Option<Entry<Text>>, new: Option<Entry<Text>>, source: &StateSource) -> Vec<String> {
    reported_under(Rules::default(), old.as_ref(), new.as_ref(), source)
}

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn new_object_is_initial_only_in_first_list() {
    assert_eq!(reported(None, known("u", "1", "x"), &WATCHED), ["u: Added x"]);
    assert_eq!(reported(None, known("u", "1", "x"), &LISTED), ["u: Added x"]);
    assert_eq!(reported(None, known("u", "1", "x"), &FIRST_LIST), ["u: Added x, initial"]);
}

#[test]
fn new_version_is_updated_equal_version_ignored() {
    for source in [&WATCHED, &LISTED] {
        assert_eq!(reported(known("u", "1", "x"), known("u", "2", "y"), source), ["u: Updated x to y"]);
        assert_eq!(reported(known("u", "1", "x"), known("u", "1", "x"), source), nothing());
    }
}

#[test]
fn deletion_is_observed_by_watch_inferred_by_list() {
    assert_eq!(reported(known("u", "1", "x"), None, &deletion("5")), ["u: Deleted x at 5, observed, deleted"]);
    assert_eq!(reported(known("u", "1", "x"), None, &LISTED), ["u: Deleted x, inferred, deleted"]);
}

#[test]
fn selector_makes_deletion_deleted_or_left() {
    let rules = Rules { selective: true, ..Rules::default() };
    let old = known("u", "1", "x");
    let reason = "deleted or left the selector";
    let observed = reported_under(rules, old.as_ref(), None, &deletion("5"));
    assert_eq!(observed, [format!("u: Deleted x at 5, observed, {reason}")]);
    let inferred = reported_under(rules, old.as_ref(), None, &LISTED);
    assert_eq!(inferred, [format!("u: Deleted x, inferred, {reason}")]);
    let replaced = reported_under(rules, old.as_ref(), known("v", "2", "y").as_ref(), &LISTED);
    assert_eq!(replaced, ["u: Deleted x, inferred, replaced", "v: Added y"]);
}

#[test]
fn recreated_object_is_deleted_then_added() {
    for source in [&WATCHED, &LISTED] {
        let events = reported(known("u", "1", "x"), known("v", "9", "y"), source);
        assert_eq!(events, ["u: Deleted x, inferred, replaced", "v: Added y"]);
    }
}

#[test]
fn tainted_state_waits_for_decodable_state() {
    assert_eq!(reported(known("u", "1", "x"), tainted("u", "2", Some("x")), &WATCHED), nothing());
    assert_eq!(reported(tainted("u", "2", Some("x")), tainted("u", "3", Some("x")), &WATCHED), nothing());
    assert_eq!(reported(tainted("u", "3", Some("x")), known("u", "4", "y"), &WATCHED), ["u: Updated x to y"]);
    assert_eq!(reported(tainted("u", "3", Some("x")), known("u", "3", "y"), &LISTED), ["u: Updated x to y"]);
}

#[test]
fn tainted_object_ends_with_last_decodable_state() {
    assert_eq!(reported(tainted("u", "2", Some("x")), None, &deletion("3")), ["u: Deleted x at 3, observed, deleted"]);
    let replaced = reported(known("u", "1", "x"), tainted("v", "2", None), &LISTED);
    assert_eq!(replaced, ["u: Deleted x, inferred, replaced"]);
}

#[test]
fn undecodable_object_is_added_by_first_decodable_state() {
    assert_eq!(reported(None, tainted("u", "1", None), &WATCHED), nothing());
    assert_eq!(reported(tainted("u", "1", None), None, &deletion("2")), nothing());
    assert_eq!(reported(tainted("u", "1", None), known("u", "2", "x"), &WATCHED), ["u: Added x"]);
    assert_eq!(reported(tainted("u", "1", None), known("v", "2", "x"), &LISTED), ["v: Added x"]);
}

/// Creates a secret with this namespace and version.
fn secret(namespace: Option<&str>, version: &str) -> Object<Secret> {
    let metadata = ObjectMeta {
        name: Some("web-0".to_owned()),
        namespace: namespace.map(str::to_owned),
        resource_version: Some(version.to_owned()),
        ..ObjectMeta::default()
    };
    let string_data = Some([("password".to_owned(), "planted".to_owned())].into());
    Secret { metadata, string_data, ..Secret::default() }.into()
}

#[test]
fn event_debug_contains_key_without_content() {
    let (old, new) = (secret(Some("shop"), "5"), secret(Some("shop"), "7"));
    let (certainty, reason) = (Certainty::Observed, DeleteReason::Deleted);
    let events = [
        Event::Added { object: new.clone(), initial: true },
        Event::Updated { old, new: new.clone() },
        Event::Deleted { last: new, version: Some("9".into()), certainty, reason },
        Event::Resynced { object: secret(None, "5") },
    ];
    assert_eq!(
        events.map(|event| format!("{event:?}")),
        [
            "Added { object: Secret shop/web-0 v7, initial: true }",
            "Updated { object: Secret shop/web-0 v7, from: v5 }",
            "Deleted { object: Secret shop/web-0 v7, deleted_at: Some(v9), certainty: Observed, reason: Deleted }",
            "Resynced { object: Secret web-0 v5 }",
        ]
    );
    let metadata = PartialObjectMeta::<Secret> { metadata: ObjectMeta::default(), ..PartialObjectMeta::default() };
    let event = Event::Resynced { object: metadata.into() };
    assert_eq!(format!("{event:?}"), "Resynced { object: PartialObjectMeta<Secret>  vnone }");
}
