//! Lines for programs: one JSON object for each event, and for each change of freshness.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use steadfast::{Certainty, DeleteReason, ResourceVersion};

use super::tally::Counts;
use super::watched::{DecodedEvent, EventTime, Subject};
use crate::changes::describe::{Content, visible};
use crate::changes::diff::{Change, Detail};
use crate::changes::manager;
use crate::clock::format_micros;

/// First fields of each line.
#[derive(Serialize)]
pub(super) struct LineHead<'a> {
    time: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<&'a str>,
    resource: &'a str,
    namespace: Option<&'a str>,
}

impl<'a> LineHead<'a> {
    /// Creates the head of a line of the type `kind`.
    pub(super) fn new(time: Timestamp, kind: &'static str, subject: &'a Subject, namespace: Option<&'a str>) -> Self {
        let (context, resource) = (subject.context.as_deref(), subject.name.as_str());
        Self { time: format_micros(time), kind, context, resource, namespace }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonEvent<'a> {
    #[serde(flatten)]
    head: LineHead<'a>,
    name: Option<&'a str>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
    /// True for a change before the start of the program.
    #[serde(skip_serializing_if = "is_false")]
    replayed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    managers: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certainty: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FreshnessLine<'a> {
    #[serde(flatten)]
    head: LineHead<'a>,
    state: &'a str,
    reason: Option<&'a str>,
    doubt_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    while_disconnected: Option<Counts>,
}

/// Change of a cache's freshness.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Transition {
    /// The new state.
    pub(super) state: &'static str,
    /// Reason of the doubt; `None` if the cache is fresh again.
    pub(super) reason: Option<String>,
    /// Duration of the doubt until now or until its end, in seconds.
    pub(super) doubt_seconds: f64,
}

/// Formats an event. `with_object` includes the whole object, without `managedFields`.
pub(super) fn event(
    now: Timestamp,
    subject: &Subject,
    event: &DecodedEvent<'_>,
    with_object: bool,
    content: Content,
) -> String {
    let (version, certainty, reason) = match event.deletion {
        // An inferred deletion has no version of its own.
        Some(deletion) => (
            deletion.version.map(ResourceVersion::as_str),
            Some(certainty_name(deletion.certainty)),
            Some(reason_name(deletion.reason)),
        ),
        None => (event.metadata("resourceVersion"), None, None),
    };
    let visible_changes =
        event.old.as_ref().map(|old| visible(&subject.kind, old, &event.object, Detail::Subtrees, content));
    let managers = visible_changes.as_ref().zip(event.old.as_ref()).map(|(visible_changes, old)| {
        let changes: Vec<&Change<'_>> = visible_changes.changes.iter().collect();
        manager::managers(old, &event.object, &changes)
    });
    to_line(&JsonEvent {
        head: LineHead::new(now, event.name, subject, event.metadata("namespace")),
        name: event.metadata("name"),
        uid: event.metadata("uid"),
        resource_version: version,
        replayed: matches!(event.time, EventTime::Past(_)),
        change_count: Some(event.call.changes),
        hidden: visible_changes
            .as_ref()
            .map(|visible_changes| if content.noise { 0 } else { visible_changes.noise_count }),
        changes: visible_changes.map(|visible_changes| visible_changes.changes.iter().map(Change::to_json).collect()),
        managers: managers.unwrap_or_default(),
        missed: (event.call.missed > 0).then_some(event.call.missed),
        certainty,
        reason,
        object: with_object.then(|| printable(subject, event, content)),
    })
}

/// Returns the object of `event` for output: without `managedFields`, and without secret values.
pub(super) fn printable(subject: &Subject, event: &DecodedEvent<'_>, content: Content) -> Value {
    let object = &event.object;
    // Annotations may still contain a previous value.
    let states: Vec<&Value> = event.old.iter().chain([object]).collect();
    let redaction = content.redaction(&subject.kind, &states);
    let mut printable = redaction.map_or_else(|| object.clone(), |redaction| redaction.object(object));
    if let Some(metadata) = printable.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    printable
}

/// Formats the line after the initial objects.
pub(super) fn synced(now: Timestamp, subject: &Subject, version: Option<&ResourceVersion>) -> String {
    to_line(&JsonEvent {
        head: LineHead::new(now, "Synced", subject, subject.scope.in_namespace()),
        name: None,
        uid: None,
        resource_version: version.map(ResourceVersion::as_str),
        replayed: false,
        change_count: None,
        changes: None,
        hidden: None,
        managers: Vec::new(),
        missed: None,
        certainty: None,
        reason: None,
        object: None,
    })
}

/// Formats a change of freshness. At the end of a doubt, `missed` contains the numbers of changes since its start.
pub(super) fn freshness(now: Timestamp, subject: &Subject, transition: &Transition, missed: Option<Counts>) -> String {
    to_line(&FreshnessLine {
        head: LineHead::new(now, "Freshness", subject, subject.scope.in_namespace()),
        state: transition.state,
        reason: transition.reason.as_deref(),
        // Rounded to milliseconds: an unrounded binary fraction would print many digits.
        doubt_seconds: (transition.doubt_seconds * 1000.0).round() / 1000.0,
        while_disconnected: missed,
    })
}

/// Returns the line as JSON, without characters that a terminal interprets.
pub(super) fn to_line(line: &impl Serialize) -> String {
    // Cannot fail: the objects were parsed from JSON.
    let text = serde_json::to_string(line).unwrap_or_default();
    // JSON permits further control characters within texts, which a terminal would interpret.
    if !text.chars().any(is_control) {
        return text;
    }
    text.chars().fold(String::with_capacity(text.len()), |mut safe, character| {
        if is_control(character) {
            let _ = write!(safe, "\\u{:04x}", character as u32);
        } else {
            safe.push(character);
        }
        safe
    })
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_control(character: char) -> bool {
    matches!(character, '\u{7f}'..='\u{9f}')
}

fn certainty_name(certainty: Certainty) -> &'static str {
    match certainty {
        Certainty::Observed => "Observed",
        Certainty::Inferred => "Inferred",
    }
}

fn reason_name(reason: DeleteReason) -> &'static str {
    match reason {
        DeleteReason::Deleted => "Deleted",
        DeleteReason::Replaced => "Replaced",
        DeleteReason::DeletedOrLeft => "DeletedOrLeft",
        DeleteReason::Left => "Left",
    }
}
