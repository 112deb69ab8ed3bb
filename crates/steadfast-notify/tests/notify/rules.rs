//! Rules on random objects, compared with a simple evaluation.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use steadfast_notify::Plan;
use steadfast_notify::change::{EventSubject, ObjectChange, ObjectState};
use steadfast_notify::config::EventKind;
use steadfast_notify::explain::{NotCovered, explain};
use steadfast_notify::rule::{CompiledRule, RuleOutcome};

fn rule(lines: &str) -> Arc<CompiledRule> {
    let text = format!("[sinks.s.stdout]\n[[rules]]\nname = \"r\"\nresources = [\"pods\"]\nto = [\"s\"]\n{lines}\n");
    Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}")).rules[0].clone()
}

fn subject() -> EventSubject {
    let text = |text: &str| text.to_owned();
    EventSubject { cluster: text("c"), resource: text("pods"), namespace: text("n"), name: text("a"), uid: text("u") }
}

fn change(old: Option<&Value>, new: Option<&Value>) -> Arc<ObjectChange> {
    let kind = match (old, new) {
        (None, _) => EventKind::Added,
        (Some(_), Some(_)) => EventKind::Updated,
        (Some(_), None) => EventKind::Deleted,
    };
    let state = |object: Option<&Value>| object.cloned().map(ObjectState::new);
    let (old, new) = (state(old), state(new));
    let at = "2026-01-02T03:04:05Z".parse().expect("a time");
    Arc::new(ObjectChange { old, new, ..ObjectChange::new("1".into(), kind, subject(), at) })
}

/// Three-valued truth: true, false or unknown.
type MaybeBool = Option<bool>;

/// Returns the three-valued disjunction.
fn or(left: MaybeBool, right: MaybeBool) -> MaybeBool {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

fn and(left: MaybeBool, right: MaybeBool) -> MaybeBool {
    or(left.map(|left| !left), right.map(|right| !right)).map(|truth| !truth)
}

fn object() -> impl Strategy<Value = Value> {
    let replicas = prop::option::of(0_i64..5);
    let app = prop::option::of(prop::sample::select(vec!["web", "cart"]));
    let images = prop::collection::vec(prop::sample::select(vec!["a:1", "a:2"]), 0..3);
    (replicas, app, images).prop_map(|(replicas, app, images)| {
        let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {}}, "spec": {}});
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = replicas.into();
        }
        if let Some(app) = app {
            object["metadata"]["labels"]["app"] = app.into();
        }
        object["spec"]["containers"] = images.into_iter().map(|image| json!({"image": image})).collect();
        object
    })
}

fn states() -> impl Strategy<Value = (Option<Value>, Option<Value>)> {
    let both = (prop::option::of(object()), prop::option::of(object()));
    both.prop_filter("an old or a new state exists", |(old, new)| old.is_some() || new.is_some())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn rule_verdict_equals_reference_model((old, new) in states()) {
        let rule = rule(
            "when = \"changed('spec.replicas') && object.spec.replicas > 2 || \
             event.type == 'Deleted' && object.metadata.labels.app == 'web'\"\n\
             send = \"{'images': object.spec.containers.map(c, c.image), 'was': old != null}\"",
        );
        let replicas_of = |object: &Option<Value>| {
            object.as_ref().and_then(|object| object["spec"].get("replicas").cloned())
        };
        let latest = new.as_ref().or(old.as_ref()).expect("an old or a new state");
        let has_many_replicas = latest["spec"].get("replicas").map(|replicas| replicas.as_i64() > Some(2));
        let is_web = latest["metadata"]["labels"].get("app").map(|app| app == "web");
        let has_scaled = and(Some(replicas_of(&old) != replicas_of(&new)), has_many_replicas);
        let expected = or(has_scaled, and(Some(new.is_none()), is_web));

        let outcome = rule.evaluate_change(&change(old.as_ref(), new.as_ref()));
        let result = match &outcome {
            RuleOutcome::Fires(_) => Some(true),
            RuleOutcome::DoesNotHold => Some(false),
            RuleOutcome::Failed { expression: "when", .. } => None,
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(result, expected, "{:?} → {:?}: {:?}", old, new, outcome);
        if let RuleOutcome::Fires(data) = outcome {
            let images: Vec<&Value> =
                latest["spec"]["containers"].as_array().expect("a list").iter().map(|one| &one["image"]).collect();
            prop_assert_eq!(data, json!({"images": images, "was": old.is_some()}));
        }
    }

    #[test]
    fn changed_matches_a_comparison_of_fields((old, new) in states()) {
        let image = |object: &Option<Value>| {
            object.as_ref().and_then(|object| object.pointer("/spec/containers/0/image").cloned())
        };
        let rule = rule("when = \"changed('spec.containers[0].image')\"");
        let fires = matches!(rule.evaluate_change(&change(old.as_ref(), new.as_ref())), RuleOutcome::Fires(_));
        prop_assert_eq!(fires, image(&old) != image(&new));
    }
}

#[test]
fn expression_errors_contain_no_values() {
    let object = json!({"metadata": {"name": "hunter2"}, "spec": {"password": "hunter2", "list": ["hunter2"]}});
    for (when, reason) in [
        ("object.spec.replicas > 2", "there is no `replicas`; `has(…)` checks if the field exists"),
        ("object.spec.password > 2", "`_>_` does not take string, int"),
        ("object.spec.list[7] == 'x'", "a list has no item of this number"),
        ("new.spec.replicas > 2 || old.spec.replicas > 2", ""),
        ("int(object.spec.password) > 1", ""),
        ("object.spec.password.matches('[')", ""),
        ("object.spec.password", "neither true nor false"),
        ("object.spec.list.exists(x, x > 1)", ""),
    ] {
        let outcome = rule(&format!("when = \"{when}\"")).evaluate_change(&change(None, Some(&object)));
        let RuleOutcome::Failed { expression: "when", reason: reported } = outcome else {
            panic!("{when}: {outcome:?}")
        };
        assert!(reported.contains(reason) && !reported.contains("hunter2"), "{when}: {reported}");
    }
    let outcome = rule("send = \"{'x': object.spec.x}\"").evaluate_change(&change(None, Some(&object)));
    assert!(matches!(outcome, RuleOutcome::Failed { expression: "send", .. }), "{outcome:?}");
}

#[test]
fn null_field_counts_as_absent() {
    let slice = json!({"endpoints": null, "spec": {"x": null}});
    let send = |send: &str| rule(&format!("send = \"{send}\"")).evaluate_change(&change(None, Some(&slice)));
    let addresses = "object.?endpoints.orValue([]).map(e, e.addresses[0])";
    assert_eq!(send(addresses), RuleOutcome::Fires(json!([])));
    assert_eq!(send("has(object.endpoints)"), RuleOutcome::Fires(json!(false)));
    assert_eq!(send("object.spec.?x.orValue(7)"), RuleOutcome::Fires(json!(7)));
    assert_eq!(send("old == null"), RuleOutcome::Fires(json!(true)));
    let RuleOutcome::Failed { reason, .. } = send("object.endpoints.map(e, e)") else { panic!("the expression fails") };
    assert!(
        reason.contains("null_type") && reason.contains("check with `has(…)`") && reason.contains("line 1, column 18"),
        "{reason}"
    );
}

#[test]
fn quadratic_expression_exceeds_cost_budget() {
    let data: serde_json::Map<String, Value> = (0..20_000).map(|number| (format!("k{number:06}"), json!(""))).collect();
    let large = json!({"kind": "ConfigMap", "data": data});
    let quadratic = rule("when = \"object.data.all(a, object.data.exists_one(b, b.startsWith(a)))\"\nsend = \"1\"");
    let RuleOutcome::Failed { expression: "when", reason } = quadratic.evaluate_change(&change(None, Some(&large)))
    else {
        panic!("the expression fails")
    };
    assert!(reason.contains("cost budget of 1000000 exceeded"), "{reason}");
    // `when` and `send` share one budget.
    let both = rule(
        "when = \"object.data.all(a, size(a + a + a + a + a + a + a + a) > 0) || true\"\n\
         send = \"object.data.map(a, size(a + a + a + a + a + a + a + a))\"",
    );
    let outcome = both.evaluate_change(&change(None, Some(&large)));
    assert!(matches!(&outcome, RuleOutcome::Failed { expression: "send", .. }), "`send` spends more than is left");
}

#[test]
fn result_beyond_its_limit_fails() {
    let object = json!({"text": "x".repeat(1_000), "list": vec![0; 1_001]});
    let outcome = rule("send = \"object.text\"\nlimits = {bytes = 900}").evaluate_change(&change(None, Some(&object)));
    let RuleOutcome::Failed { expression: "send", reason } = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("the result exceeds 900 bytes") && reason.contains("limits.bytes"), "{reason}");
    let outcome_for_mirror = |limits: &str| {
        let text = format!(
            "[sinks.m.etcd]\nendpoints = [\"http://127.0.0.1:1\"]\nprefix = \"/x/\"\nmark = \"m\"\n[[rules]]\nname = \"r\"\n\
             resources = [\"pods\"]\nto = [\"m\"]\nsend = \"object.list.map(i, {{'key': 'a', 'value': 'b'}})\"\n{limits}\n"
        );
        let plan = Plan::read("x.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
        plan.rules[0].evaluate_change(&change(None, Some(&object)))
    };
    let RuleOutcome::Failed { reason, .. } = outcome_for_mirror("") else { panic!("the expression fails") };
    assert!(reason.contains("1001 entries") && reason.contains("allows 1000"), "{reason}");
    assert!(matches!(outcome_for_mirror("limits = {entries = 2000}"), RuleOutcome::Fires(_)));
}

#[test]
fn times_are_compared_with_now() {
    let old = json!({"metadata": {"creationTimestamp": "2001-02-03T04:05:06Z"}});
    let age = "now - timestamp(object.metadata.creationTimestamp) > duration('10m')";
    assert!(matches!(
        rule(&format!("when = \"{age}\"")).evaluate_change(&change(None, Some(&old))),
        RuleOutcome::Fires(_)
    ));
    let young_expression = format!("!({age}) || timestamp(object.metadata.creationTimestamp).getFullYear() == 2000");
    assert_eq!(
        rule(&format!("when = \"{young_expression}\"")).evaluate_change(&change(None, Some(&old))),
        RuleOutcome::DoesNotHold
    );
}

#[test]
fn empty_rule_always_sends_the_identity() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "resourceVersion": "7"}});
    let RuleOutcome::Fires(data) = rule("").evaluate_change(&change(Some(&object), None)) else {
        panic!("the rule fires")
    };
    let identity = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "a", "uid": "u", "resourceVersion": "7",
    });
    assert_eq!(data, identity);
    let outcome = rule("events = [\"Added\", \"Updated\"]").evaluate_change(&change(Some(&object), None));
    assert_eq!(outcome, RuleOutcome::OtherEventKind);
}

#[test]
fn explanation_matches_the_evaluation() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"replicas": 3}});
    let rule = rule("when = \"changed('spec.replicas')\"\nsend = \"object.spec.replicas\"\nnamespaces = [\"shop\"]");
    let reported = explain(&rule, &subject(), Ok(&object), None);
    for line in [
        "initial list: sends nothing, `initial` is not set",
        "Added: fires, sends 3 to s",
        "Updated: does not fire while spec.replicas stays the same",
        "Deleted: fires, sends 3 to s",
    ] {
        assert!(reported.contains(line), "no {line:?} in {reported}");
    }
    let reported = explain(&rule, &subject(), Err(NotCovered::Namespace), None);
    assert_eq!(reported, "rule r\n  does not apply: the rule covers the namespaces shop\n");
}
