//! Checks the shipped alert rules and the dashboard against the metrics of an audit.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use steadfast_audit::AuditFindingKind;
use steadfast_testing::{Exposition, Sample};

use super::tests::exposition;

const ALERTS: &str = include_str!("../../../monitoring/audit-alerts.yaml");
const DASHBOARD: &str = include_str!("../../../monitoring/audit-dashboard.json");

#[derive(Deserialize)]
struct Alerts {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    alert: String,
    expr: String,
    annotations: BTreeMap<String, String>,
}

fn rules() -> Vec<Rule> {
    let alerts: Alerts = serde_saphyr::from_str(ALERTS).expect("the alert rules are YAML");
    alerts.groups.into_iter().flat_map(|group| group.rules).collect()
}

/// Returns the names of the metrics in `text`, each with its selector, if any.
fn metrics_in(text: &str) -> Vec<(String, &str)> {
    let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
    let parts = text.match_indices("steadfast_audit_").map(|(start, _)| &text[start..]);
    parts
        .map(|part| {
            let (name, rest) = part.split_at(part.find(|character| !is_name(character)).unwrap_or(part.len()));
            let selector = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            (name.to_owned(), selector.map_or("", |(selector, _)| selector))
        })
        .collect()
}

/// Returns the names of the labels of the samples of `metric`.
fn labels_of(metrics: &Exposition, metric: &str) -> BTreeSet<String> {
    let samples = metrics.samples.iter().filter(|sample| sample.name == metric);
    samples.flat_map(|sample| sample.labels.keys().cloned()).collect()
}

/// Returns true if `metric` is exposed. The bookmark's age has samples only while a watch is open.
fn is_exposed(metrics: &Exposition, metric: &str) -> bool {
    metrics.sum(metric, &[]).1 > 0 || metric == "steadfast_audit_bookmark_age_seconds"
}

/// Returns the labels of the form `{{ $labels.NAME }}` or `{{NAME}}` in `text`.
fn labels_in<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
    let parts = text.split(start).skip(1);
    parts.map(|part| part.split(|character: char| !character.is_ascii_lowercase()).next().unwrap_or_default()).collect()
}

/// Returns the samples that satisfy an expression of the form `METRIC{SELECTOR} OPERATOR NUMBER`.
fn firing<'m>(metrics: &'m Exposition, expression: &str) -> Vec<&'m Sample> {
    let words: Vec<&str> = expression.rsplitn(3, ' ').collect();
    let [limit, operator, vector] = words[..] else { panic!("not a comparison: {expression}") };
    let limit: f64 = limit.parse().expect("a number");
    let (name, selector) = metrics_in(vector).swap_remove(0);
    let excluded = selector.split_once("!=").map(|(label, value)| (label, value.trim_matches('"')));
    let is_selected =
        |sample: &&Sample| sample.name == name && excluded.is_none_or(|(label, value)| sample.labels[label] != value);
    let fires = |sample: &&Sample| match operator {
        ">" => sample.value > limit,
        "==" => (sample.value - limit).abs() < f64::EPSILON,
        _ => panic!("unknown operator {operator}"),
    };
    metrics.samples.iter().filter(is_selected).filter(fires).collect()
}

#[test]
fn alerts_use_exposed_metrics_and_labels() {
    let metrics = exposition();
    let rules = rules();
    assert!(rules.len() >= 6);
    for Rule { alert, expr, annotations } in &rules {
        let used = metrics_in(expr);
        assert!(!used.is_empty(), "{alert} uses no metric of the audit");
        for (metric, selector) in used {
            assert!(is_exposed(&metrics, &metric), "{alert}: {metric} is not exposed");
            let labels = labels_of(&metrics, &metric);
            if let Some((label, value)) = selector.split_once("!=") {
                let value = value.trim_matches('"');
                assert!(AuditFindingKind::ALL.iter().any(|kind| kind.name() == value), "{alert}: {value}");
                assert!(labels.contains(label), "{alert}: {metric} has no label {label}");
            }
            for label in annotations.values().flat_map(|text| labels_in(text, "$labels.")) {
                assert!(labels.contains(label), "{alert}: {metric} has no label {label}");
            }
        }
    }
}

#[test]
fn alerts_fire_for_faulty_endpoint_only() {
    let metrics = exposition();
    let rules = rules();
    let firing_endpoints = |alert: &str| -> BTreeSet<&str> {
        let rule = rules.iter().find(|rule| rule.alert == alert).expect("the rule exists");
        firing(&metrics, &rule.expr).iter().map(|sample| sample.labels["endpoint"].as_str()).collect()
    };
    assert_eq!(firing_endpoints("SteadfastAuditEndpointUnresponsive"), BTreeSet::from(["10.0.0.2:6443"]));
    // No endpoint has responded to a list.
    assert_eq!(firing_endpoints("SteadfastAuditIncomplete").len(), 2);
    for alert in ["SteadfastAuditFinding", "SteadfastAuditWatchLagging"] {
        assert!(firing_endpoints(alert).is_empty(), "{alert}: no endpoint has such a finding");
    }
    let unresponsive = firing(&metrics, "steadfast_audit_active_findings > 0");
    assert_eq!(unresponsive.len(), 1, "the excluded finding is active");
}

#[test]
fn dashboard_uses_exposed_metrics_and_labels() {
    let metrics = exposition();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("the dashboard has panels");
    let mut shown = BTreeSet::new();
    for panel in panels {
        let target = &panel["targets"][0];
        let (expression, legend) = (target["expr"].as_str().expect("a query"), target["legendFormat"].as_str());
        for (metric, _) in metrics_in(expression) {
            assert!(is_exposed(&metrics, &metric), "{metric} is not exposed: {}", panel["title"]);
            let labels = labels_of(&metrics, &metric);
            for label in labels_in(legend.unwrap_or_default(), "{{") {
                assert!(labels.is_empty() || labels.contains(label), "{metric} has no label {label}");
            }
            shown.insert(metric.trim_end_matches("_bucket").trim_end_matches("_total").to_owned());
        }
    }
    let exposed: BTreeSet<String> =
        metrics.families.keys().filter(|name| name.starts_with("steadfast_audit_")).cloned().collect();
    assert_eq!(shown, exposed, "the dashboard shows each metric");
}
