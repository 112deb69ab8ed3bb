//! Format of one event, or one change of freshness, as a line of text or JSON.

use std::borrow::Borrow;

use jiff::Timestamp;
use serde_json::Value;
use steadfast::{Call, ResourceVersion};

use super::diff_lines;
use super::json_line::{self, Transition};
use super::object_format::ObjectFormat;
use super::tally::{Counted, Counts};
use super::terminal::Width;
use super::text_line::{GREEN, RED, TextLine, YELLOW};
use super::watched::{DecodedEvent, Subject};
use crate::changes::describe::{Content, describe, visible};
use crate::changes::diff::Detail;
use crate::changes::manager;
use crate::changes::state::state;
use crate::clock::Clock;

/// Format of lines.
#[derive(Clone, Debug)]
pub(super) struct Style {
    pub(super) format: Format,
    /// Selects whether noise and the values of Secrets are included.
    pub(super) content: Content,
}

/// Text or JSON.
#[derive(Clone, Debug)]
pub(super) enum Format {
    /// Text for people.
    Text {
        /// Enables colours.
        color: bool,
        /// Maximum width of a line.
        width: Width,
        /// Time zone of the times.
        clock: Clock,
        /// Additional parts of a line.
        extras: Extras,
    },
    /// The whole object after each event.
    Objects {
        /// Format of the object.
        format: ObjectFormat,
        /// Time zone of the times.
        clock: Clock,
    },
    /// One JSON object per line.
    Json {
        /// Includes the whole object.
        full: bool,
    },
}

/// Additional parts of a text line.
#[derive(Clone, Debug, Default)]
pub(super) struct Extras {
    /// Current state of a changed object.
    pub(super) state: bool,
    /// Each changed value below the line.
    pub(super) diff: bool,
    /// Labels with these names.
    pub(super) label_columns: Vec<String>,
    /// All labels.
    pub(super) all_labels: bool,
}

/// Line of one event.
#[derive(Debug)]
pub(super) struct EventLine {
    /// The line; `None` if only noise changed.
    pub(super) text: Option<String>,
    pub(super) counted: Counted,
}

impl Style {
    /// Formats `event`. `replacement` describes the replacement if the object replaces another object of the same name.
    pub(super) fn event(&self, subject: &Subject, event: &DecodedEvent<'_>, replacement: Option<&str>) -> EventLine {
        let now = event.line_time();
        let counted = match event.name {
            "Added" => Counted::Added,
            "Deleted" => Counted::Deleted,
            _ => Counted::Changed,
        };
        match &self.format {
            Format::Json { full } => {
                let text = json_line::event(now, subject, event, *full, self.content);
                EventLine { text: Some(text), counted }
            }
            Format::Text { color, width, clock, extras } => {
                let path = object_path(event, width.columns());
                let Some(mut line) =
                    event_line(&clock.format_time_of_day(now), &path, subject, event, replacement, self.content)
                else {
                    return EventLine { text: None, counted: Counted::Hidden };
                };
                add_extras(&mut line, extras, subject, event, self.content);
                let mut text = line.render(*color, width.columns());
                if let Some(old) = event.old.as_ref().filter(|_| extras.diff) {
                    let visible_changes = visible(&subject.kind, old, &event.object, Detail::Subtrees, self.content);
                    text.push_str(&diff_lines::render(&visible_changes.changes, *color));
                }
                EventLine { text: Some(text), counted }
            }
            Format::Objects { format, clock } => {
                let path = object_path(event, None);
                let Some(comment) =
                    event_line(&clock.format_time_of_day(now), &path, subject, event, replacement, self.content)
                else {
                    return EventLine { text: None, counted: Counted::Hidden };
                };
                let object = json_line::printable(subject, event, self.content);
                let text = format.render(&subject.kind, &comment.render(false, None), &object);
                EventLine { text: Some(text), counted }
            }
        }
    }

    /// Returns whether the format shows the owners of an object.
    pub(super) fn has_owners(&self) -> bool {
        matches!(self.format, Format::Text { .. } | Format::Objects { format: ObjectFormat::Yaml, .. })
    }

    /// Returns the line before all events.
    pub(super) fn heading(&self) -> Option<String> {
        match &self.format {
            Format::Objects { format, .. } => format.heading(),
            Format::Text { .. } | Format::Json { .. } => None,
        }
    }

    /// Returns a warning for standard error if events before this one were merged because output was too slow.
    pub(super) fn missed(&self, subject: &Subject, call: Call) -> Option<String> {
        match &self.format {
            Format::Text { clock, .. } | Format::Objects { clock, .. } if call.missed > 0 => {
                let (clock, resource, missed) =
                    (clock.format_time_of_day(Timestamp::now()), subject.title(), call.missed);
                Some(format!(
                    "{clock} ! {resource}: {missed} events merged: they came faster than they could be written"
                ))
            }
            _ => None,
        }
    }

    /// Formats the line after the initial objects. Formats of objects have no such line.
    pub(super) fn synced(
        &self,
        subject: &Subject,
        version: Option<&ResourceVersion>,
        object_count: usize,
    ) -> Option<String> {
        let now = Timestamp::now();
        match &self.format {
            Format::Objects { .. } => None,
            Format::Json { .. } => Some(json_line::synced(now, subject, version)),
            Format::Text { clock, .. } => {
                let version_suffix = version.map(|version| format!(" at {version}")).unwrap_or_default();
                let (time, name, scope) = (clock.format_time_of_day(now), subject.title(), &subject.scope);
                Some(format!("{time} = {name} synced{version_suffix}: {object_count} in {scope}"))
            }
        }
    }

    /// Formats a change of freshness as a JSON line among the events. At the end of a doubt, `missed` is the numbers of
    /// changes since its start. Returns `None` for other formats: standard error reports these changes to people.
    pub(super) fn freshness(
        &self,
        subject: &Subject,
        transition: &Transition,
        missed: Option<Counts>,
    ) -> Option<String> {
        match self.format {
            Format::Text { .. } | Format::Objects { .. } => None,
            Format::Json { .. } => Some(json_line::freshness(Timestamp::now(), subject, transition, missed)),
        }
    }
}

fn add_extras(line: &mut TextLine, extras: &Extras, subject: &Subject, event: &DecodedEvent<'_>, content: Content) {
    if extras.state && event.old.is_some() {
        let state = state(&subject.kind, &subject.columns, &event.object);
        line.add_dim(&if state.is_empty() { state } else { format!("[{state}]") });
    }
    if extras.label_columns.is_empty() && !extras.all_labels {
        return;
    }
    // Labels of a Secret may repeat its values.
    let object = json_line::printable(subject, event, content);
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let value = |name: &str| labels.and_then(|labels| labels.get(name)?.as_str());
    let columns = extras.label_columns.iter().map(|name| format!("{name}={}", value(name).unwrap_or("<none>")));
    let mut labels_text: Vec<String> = columns.collect();
    if extras.all_labels {
        let other_labels = labels.into_iter().flatten().filter(|(name, _)| !extras.label_columns.contains(name));
        labels_text.extend(other_labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())));
    }
    line.add_dim(&labels_text.join(","));
}

/// Returns namespace, owners and name of the object, for a terminal of this width.
fn object_path(event: &DecodedEvent<'_>, columns: Option<usize>) -> String {
    let name = event.metadata("name").unwrap_or_default();
    let owners = event.owners.prefix(name, columns);
    match event.metadata("namespace") {
        Some(namespace) if owners.is_empty() => format!("{namespace}/{name}"),
        Some(namespace) => format!("{namespace} {owners}{name}"),
        None => format!("{owners}{name}"),
    }
}

/// Returns the line of an event, or `None` if only noise changed.
fn event_line(
    clock: &str,
    path: &str,
    subject: &Subject,
    event: &DecodedEvent<'_>,
    replacement: Option<&str>,
    content: Content,
) -> Option<TextLine> {
    let (symbol, color) = match event.name {
        "Added" => ('+', GREEN),
        "Deleted" => ('-', RED),
        _ => ('~', YELLOW),
    };
    let mut line = TextLine::default();
    line.add(None, clock);
    line.add(Some(color), &format!("{symbol} {} {path}", subject.title()));
    // Merged changes are marked, so that the reader does not take them for one change.
    let merged = (event.call.changes > 1).then(|| format!("{} changes", event.call.changes));
    if let Some(old) = &event.old {
        let description = describe(&subject.kind, &subject.columns, old, &event.object, content);
        if description.phrases.is_empty() {
            return None;
        }
        line.add_phrases(&description.phrases);
        line.add(None, &in_brackets(None, merged));
        line.add_dim(&managers_suffix(&description.managers));
        return Some(line);
    }
    line.add(None, &state(&subject.kind, &subject.columns, &event.object));
    if let Some(deletion) = event.deletion {
        line.add(None, &in_brackets(Some(format!("{}: {}", deletion.certainty, deletion.reason)), merged));
    } else {
        line.add(None, &in_brackets(replacement.map(str::to_owned), merged));
        line.add_dim(&managers_suffix(manager::latest(&event.object).as_slice()));
    }
    Some(line)
}

/// Returns the details in brackets; empty without details.
fn in_brackets(detail: Option<String>, merged: Option<String>) -> String {
    let details: Vec<String> = detail.into_iter().chain(merged).collect();
    if details.is_empty() { String::new() } else { format!("({})", details.join("; ")) }
}

fn managers_suffix<M: Borrow<str>>(managers: &[M]) -> String {
    if managers.is_empty() { String::new() } else { format!("by {}", managers.join(" and ")) }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod transitions;
