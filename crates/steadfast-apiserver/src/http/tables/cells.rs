//! Cells with values from several fields.

use serde_json::Value;

use super::row::{Row, or_none, text_of};
use crate::clock::duration_between;
use crate::selector;

pub(super) use super::network::*;
pub(super) use super::volumes::*;

pub(super) fn data_count(row: &Row) -> Value {
    (row.count("/data") + row.count("/binaryData")).into()
}

/// Returns the pod template of an object.
fn template<'a>(row: &Row<'a>) -> Option<&'a Value> {
    // Jobs of a cron job have a template within their template.
    row.object.pointer("/spec/jobTemplate/spec/template").or_else(|| row.object.pointer("/spec/template"))
}

fn container_texts(row: &Row, key: &str) -> Value {
    let containers = template(row).and_then(|template| template.pointer("/spec/containers")).and_then(Value::as_array);
    let texts: Vec<&str> = containers.into_iter().flatten().map(|container| text_of(container, key)).collect();
    texts.join(",").into()
}

pub(super) fn containers(row: &Row) -> Value {
    container_texts(row, "name")
}

pub(super) fn images(row: &Row) -> Value {
    container_texts(row, "image")
}

/// Formats a label selector, or the plain labels of older kinds.
fn selector_text(selector: Option<&Value>) -> String {
    or_none(selector.map(selector::text).unwrap_or_default())
}

pub(super) fn selector(row: &Row) -> Value {
    selector_text(
        row.object.pointer("/spec/jobTemplate/spec/selector").or_else(|| row.object.pointer("/spec/selector")),
    )
    .into()
}

pub(super) fn service_selector(row: &Row) -> Value {
    selector_text(row.object.pointer("/spec/selector")).into()
}

pub(super) fn pod_selector(row: &Row) -> Value {
    selector_text(row.object.pointer("/spec/podSelector")).into()
}

pub(super) fn node_selector(row: &Row) -> Value {
    selector_text(row.object.pointer("/spec/template/spec/nodeSelector")).into()
}

pub(super) fn desired_replicas(row: &Row) -> Value {
    row.number_or("/spec/replicas", 1).into()
}

pub(super) fn ready_replicas(row: &Row) -> Value {
    format!("{}/{}", row.number("/status/readyReplicas"), row.number_or("/spec/replicas", 1)).into()
}

pub(super) fn controller(row: &Row) -> Value {
    let owner = row.items("/metadata/ownerReferences").iter();
    let owner = owner.into_iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let Some(owner) = owner else { return "<none>".into() };
    // The group is shown only for kinds outside the core group.
    let group = text_of(owner, "apiVersion").split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{}{group}/{}", text_of(owner, "kind").to_lowercase(), text_of(owner, "name")).into()
}

pub(super) fn suspended(row: &Row) -> Value {
    if row.is_true("/spec/suspend") { "True" } else { "False" }.into()
}

pub(super) fn last_schedule(row: &Row) -> Value {
    match row.text("/status/lastScheduleTime") {
        "" => "<none>".into(),
        time => row.since(time).into(),
    }
}

pub(super) fn job_status(row: &Row) -> Value {
    let states = [
        ("Complete", "Complete"),
        ("Failed", "Failed"),
        ("FailureTarget", "FailureTarget"),
        ("Suspended", "Suspended"),
    ];
    let reached = states.iter().find(|(condition, _)| row.condition(condition) == "True").map(|(_, shown)| *shown);
    match reached {
        // A finished job stays finished, even while terminating.
        Some(ended @ ("Complete" | "Failed")) => ended,
        _ if row.is_terminating() => "Terminating",
        Some(other) => other,
        None if row.condition("SuccessCriteriaMet") == "True" => "SuccessCriteriaMet",
        None => "Running",
    }
    .into()
}

pub(super) fn completions(row: &Row) -> Value {
    let succeeded = row.number("/status/succeeded");
    match (row.object.pointer("/spec/completions").and_then(Value::as_i64), row.number("/spec/parallelism")) {
        (Some(desired), _) => format!("{succeeded}/{desired}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
    .into()
}

pub(super) fn duration(row: &Row) -> Value {
    match (row.text("/status/startTime"), row.text("/status/completionTime")) {
        ("", _) => String::new(),
        (start, "") => row.since(start),
        (start, end) => duration_between(start, end),
    }
    .into()
}

pub(super) fn scale_target(row: &Row) -> Value {
    format!("{}/{}", row.text("/spec/scaleTargetRef/kind"), row.text("/spec/scaleTargetRef/name")).into()
}

/// Number of metrics that a cell of an autoscaler shows.
const SHOWN_METRICS: usize = 2;

/// Formats the current and the target value of the first metrics.
pub(super) fn targets(row: &Row) -> Value {
    let metrics = row.items("/spec/metrics");
    let current = row.items("/status/currentMetrics");
    // Current values are matched by position, as on a real server.
    let shown = metrics.iter().take(SHOWN_METRICS).enumerate();
    let shown = shown.map(|(place, metric)| metric_values(metric, current.get(place).unwrap_or(&Value::Null)));
    let shown = or_none(shown.collect::<Vec<_>>().join(", "));
    match metrics.len().checked_sub(SHOWN_METRICS) {
        None | Some(0) => shown.into(),
        Some(more) => format!("{shown} + {more} more...").into(),
    }
}

/// Formats the current and the target value of one metric.
fn metric_values(metric: &Value, current: &Value) -> String {
    const SOURCES: [(&str, &str); 5] = [
        ("Resource", "resource"),
        ("ContainerResource", "containerResource"),
        ("Pods", "pods"),
        ("Object", "object"),
        ("External", "external"),
    ];
    let kind = text_of(metric, "type");
    let Some((_, key)) = SOURCES.into_iter().find(|(name, _)| *name == kind) else {
        return "<unknown type>".to_owned();
    };
    let source = metric.get(key).unwrap_or(&Value::Null);
    let target = source.get("target").unwrap_or(&Value::Null);
    let current = current.pointer(&format!("/{key}/current")).unwrap_or(&Value::Null);
    let values = |field: &str| {
        let value_text = |side: &Value| match side.get(field) {
            Some(Value::String(quantity)) => Some(quantity.clone()),
            Some(Value::Number(percent)) => Some(format!("{percent}%")),
            _ => None,
        };
        value_text(target)
            .map(|target| format!("{}/{target}", value_text(current).unwrap_or_else(|| "<unknown>".to_owned())))
    };
    let average = values("averageValue");
    match key {
        "resource" | "containerResource" => {
            let values = average.or_else(|| values("averageUtilization"));
            format!("{}: {}", text_of(source, "name"), values.unwrap_or_else(|| "<unknown>/<auto>".to_owned()))
        }
        "pods" => average.unwrap_or_default(),
        _ => average.map(|average| format!("{average} (avg)")).or_else(|| values("value")).unwrap_or_default(),
    }
}

pub(super) fn quota(row: &Row, is_limits: bool) -> Value {
    let hard = row.object.pointer("/status/hard").and_then(Value::as_object);
    let used = |name: &str| {
        let used = row.object.pointer("/status/used").and_then(|used| used.get(name)).and_then(Value::as_str);
        used.unwrap_or("0").to_owned()
    };
    // Resources with the prefix `limits.` belong to the column of limits, all others to the column of requests.
    let shown = hard.into_iter().flatten().filter(|(name, _)| name.starts_with("limits.") == is_limits);
    let shown: Vec<String> =
        shown.map(|(name, hard)| format!("{name}: {}/{}", used(name), hard.as_str().unwrap_or_default())).collect();
    shown.join(", ").into()
}

pub(super) fn role(row: &Row) -> Value {
    format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name")).into()
}

pub(super) fn subjects(row: &Row, kind: &str) -> Value {
    let subjects = row.items("/subjects").iter().filter(|subject| text_of(subject, "kind") == kind);
    let names = subjects.map(|subject| match text_of(subject, "namespace") {
        "" => text_of(subject, "name").to_owned(),
        namespace => format!("{namespace}/{}", text_of(subject, "name")),
    });
    names.collect::<Vec<_>>().join(", ").into()
}

pub(super) fn node_status(row: &Row) -> Value {
    let status = match row.condition("Ready") {
        "True" => "Ready",
        "" => "Unknown",
        _ => "NotReady",
    };
    if row.is_true("/spec/unschedulable") { format!("{status},SchedulingDisabled") } else { status.to_owned() }.into()
}

pub(super) fn node_roles(row: &Row) -> Value {
    let labels = row.object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        // The old label has the role as its value, and the current labels have it in their key.
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    or_none(roles.join(",")).into()
}

pub(super) fn node_address(row: &Row, kind: &str) -> Value {
    let address = row.items("/status/addresses").iter().find(|address| text_of(address, "type") == kind);
    or_none(address.map(|address| text_of(address, "address").to_owned()).unwrap_or_default()).into()
}

pub(super) fn last_seen(row: &Row) -> Value {
    // Events of the two API groups have their times in different fields. The first present field counts.
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
    row.since(times.iter().map(|path| row.text(path)).find(|time| !time.is_empty()).unwrap_or_default()).into()
}

pub(super) fn first_seen(row: &Row) -> Value {
    let times = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    row.since(times.iter().map(|path| row.text(path)).find(|time| !time.is_empty()).unwrap_or_default()).into()
}

/// Returns the object of an event. The two API groups use different names for the field.
fn regarding<'a>(row: &Row<'a>, key: &str) -> &'a str {
    let object = row.object.get("involvedObject").or_else(|| row.object.get("regarding"));
    object.map(|object| text_of(object, key)).unwrap_or_default()
}

pub(super) fn event_object(row: &Row) -> Value {
    let (kind, name) = (regarding(row, "kind").to_lowercase(), regarding(row, "name"));
    if name.is_empty() { kind } else { format!("{kind}/{name}") }.into()
}

pub(super) fn event_field(row: &Row) -> Value {
    regarding(row, "fieldPath").into()
}

pub(super) fn event_source(row: &Row) -> Value {
    let source = row.object.get("source").or_else(|| row.object.get("deprecatedSource"));
    let part = |key| source.map(|source| text_of(source, key)).unwrap_or_default();
    let (component, host) = match part("component") {
        "" => (row.text("/reportingComponent"), row.text("/reportingInstance")),
        component => (component, part("host")),
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }.into()
}

pub(super) fn event_message(row: &Row) -> Value {
    let message = row.text("/message");
    if message.is_empty() { row.text("/note") } else { message }.trim().into()
}

pub(super) fn event_count(row: &Row) -> Value {
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    counts.iter().map(|path| row.number(path)).find(|count| *count > 0).unwrap_or(1).into()
}

pub(super) fn versions(row: &Row) -> Value {
    let is_true_field = |version: &Value, key: &str| version.get(key) == Some(&Value::Bool(true));
    let served = row.items("/spec/versions").iter().filter(|version| is_true_field(version, "served"));
    let mut shown: Vec<String> = served
        .map(|version| {
            format!("{}{}", text_of(version, "name"), if is_true_field(version, "storage") { "(storage)" } else { "" })
        })
        .collect();
    shown.sort_unstable();
    shown.join(",").into()
}

pub(super) fn short_names(row: &Row) -> Value {
    let names = row.items("/spec/names/shortNames").iter().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(",").into()
}

pub(super) fn established(row: &Row) -> Value {
    (row.condition("Established") == "True").into()
}

pub(super) fn api_service(row: &Row) -> Value {
    match row.text("/spec/service/name") {
        "" => "Local".into(),
        name => format!("{}/{name}", row.text("/spec/service/namespace")).into(),
    }
}

pub(super) fn available(row: &Row) -> Value {
    match row.condition("Available") {
        "" => "Unknown",
        status => status,
    }
    .into()
}
