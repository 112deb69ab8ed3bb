//! Phrases that describe a change, and the changed fields that they describe.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::Value;

use super::diff::Change;
use super::path::Segment;
use super::text::escape;
use super::value_text::short;

/// Effect of the described change on the health of the object, which selects the colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthEffect {
    /// Neither good nor bad.
    Neutral,
    /// The object became healthier.
    Improved,
    /// The object became less healthy.
    Degraded,
}

/// Part of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phrase {
    /// Text without characters that a terminal interprets.
    pub(crate) text: String,
    /// Effect on the health of the object.
    pub(crate) effect: HealthEffect,
}

/// Collector of the phrases about one change.
pub(crate) struct DescriptionBuilder<'a> {
    /// Previous state.
    pub(crate) old: &'a Value,
    /// Current state.
    pub(crate) new: &'a Value,
    changes: &'a [Change<'a>],
    described: Vec<bool>,
    major: Vec<Phrase>,
    minor: Vec<Phrase>,
    bookkeeping: Vec<Phrase>,
}

impl<'a> DescriptionBuilder<'a> {
    /// Creates an empty collector for `changes` from `old` to `new`.
    pub(crate) fn new(old: &'a Value, new: &'a Value, changes: &'a [Change<'a>]) -> Self {
        let described = vec![false; changes.len()];
        Self { old, new, changes, described, major: Vec::new(), minor: Vec::new(), bookkeeping: Vec::new() }
    }

    /// Adds a phrase.
    pub(crate) fn add(&mut self, effect: HealthEffect, text: impl AsRef<str>) {
        self.major.push(Phrase { text: escape(text.as_ref()).into_owned(), effect });
    }

    /// Adds a phrase that is printed only if no other phrase exists.
    pub(crate) fn add_fallback(&mut self, text: impl AsRef<str>) {
        self.minor.push(Phrase { text: escape(text.as_ref()).into_owned(), effect: HealthEffect::Neutral });
    }

    /// Adds a phrase that is printed only if no other change exists, also none without a phrase.
    pub(crate) fn add_bookkeeping(&mut self, text: impl AsRef<str>) {
        self.bookkeeping.push(Phrase { text: escape(text.as_ref()).into_owned(), effect: HealthEffect::Neutral });
    }

    /// Marks changes below `pattern` as described; returns whether such changes exist.
    pub(crate) fn consume_changed(&mut self, pattern: &str) -> bool {
        let mut is_changed = false;
        for (change, described) in self.changes.iter().zip(&mut self.described) {
            if change.path.starts_with(pattern) {
                (*described, is_changed) = (true, true);
            }
        }
        is_changed
    }

    /// Marks changes of one element of the list at `pattern` as described.
    pub(crate) fn mark_element_described(&mut self, pattern: &str, key: &str, value: &str) {
        let index = pattern.split('/').count();
        for (change, described) in self.changes.iter().zip(&mut self.described) {
            let is_element = match change.path.0.get(index) {
                Some(Segment::Element(keys)) => {
                    let key_value = keys.iter().find(|(name, _)| *name == key).and_then(|(_, value)| *value);
                    key_value.and_then(Value::as_str) == Some(value)
                }
                _ => false,
            };
            *described |= is_element && change.path.starts_with(pattern);
        }
    }

    /// Returns the changes that are not described yet below `pattern`, and marks them as described.
    pub(crate) fn take_changes(&mut self, pattern: &str) -> Vec<&'a Change<'a>> {
        let mut taken = Vec::new();
        for (change, described) in self.changes.iter().zip(&mut self.described) {
            if !*described && change.path.starts_with(pattern) {
                *described = true;
                taken.push(change);
            }
        }
        taken
    }

    /// Adds `label old→new` if the value at `pattern` changed.
    pub(crate) fn add_field_change(&mut self, label: &str, pattern: &str) {
        if self.consume_changed(pattern) {
            let (old, new) = (at(self.old, pattern), at(self.new, pattern));
            self.add(HealthEffect::Neutral, transition(label, &short(old), &short(new)));
        }
    }

    /// Adds `label old→new` for a number that is 0 if it is missing.
    pub(crate) fn add_count_change(&mut self, label: &str, pattern: &str, effect: HealthEffect) {
        if self.consume_changed(pattern) {
            let (old, new) = (number(self.old, pattern), number(self.new, pattern));
            if old != new {
                self.add(effect, format!("{label} {old}→{new}"));
            }
        }
    }

    /// Adds `label +added −removed` for two sets. Does nothing if the sets are equal.
    pub(crate) fn add_set_change(&mut self, label: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) {
        if let Some(text) = difference(label, old, new) {
            self.add(HealthEffect::Neutral, text);
        }
    }

    /// Returns whether a phrase exists, minor phrases included.
    pub(crate) fn has_any(&self) -> bool {
        !self.major.is_empty() || !self.minor.is_empty()
    }

    /// Returns whether a phrase exists, regardless of minor phrases.
    pub(crate) fn has_major(&self) -> bool {
        !self.major.is_empty()
    }

    /// Returns the phrases. Changes that no phrase describes follow, with their paths; if there is no phrase at all,
    /// all changes follow.
    pub(crate) fn finish(mut self) -> Vec<Phrase> {
        if self.major.is_empty() {
            self.major.append(&mut self.minor);
        }
        let shows_all = self.major.is_empty() && self.bookkeeping.is_empty();
        let undescribed = self.changes.iter().zip(&self.described).filter(|(_, described)| shows_all || !**described);
        let undescribed: Vec<String> = undescribed.map(|(change, _)| by_path(change)).collect();
        for text in undescribed {
            self.add(HealthEffect::Neutral, text);
        }
        if self.major.is_empty() {
            self.major.append(&mut self.bookkeeping);
        }
        self.major
    }
}

/// Returns `path old→new` for a change.
pub(crate) fn by_path(change: &Change<'_>) -> String {
    let path = change.path.short();
    match (change.old.as_deref(), change.new.as_deref()) {
        (Some(old), Some(new)) => transition(&path, &short(Some(old)), &short(Some(new))),
        (None, new) => format!("+{path}={}", short(new)),
        (Some(_), None) => format!("−{path}"),
    }
}

/// Returns `label old→new`; `label changed` if both texts are equal because they are shortened.
pub(crate) fn transition(label: &str, old: &str, new: &str) -> String {
    if old == new { format!("{label} changed") } else { format!("{label} {old}→{new}") }
}

/// Maximum number of elements that a set's difference lists.
const MAX_LISTED: usize = 4;

/// Returns `label +added −removed`, or `None` for equal sets.
pub(crate) fn difference(label: &str, old: &BTreeSet<String>, new: &BTreeSet<String>) -> Option<String> {
    let mut text = label.to_owned();
    for (sign, elements) in [('+', new.difference(old)), ('−', old.difference(new))] {
        let elements: Vec<&String> = elements.collect();
        for element in elements.iter().take(MAX_LISTED) {
            let _ = write!(text, " {sign}{element}");
        }
        if elements.len() > MAX_LISTED {
            let _ = write!(text, " {sign}{} more", elements.len() - MAX_LISTED);
        }
    }
    (text.len() > label.len()).then_some(text)
}

/// Returns the elements separated by spaces, and the number of those that are not listed.
pub(crate) fn listed(elements: &[String]) -> String {
    match elements.get(..MAX_LISTED) {
        Some(first) if elements.len() > MAX_LISTED => {
            format!("{} and {} more", first.join(" "), elements.len() - MAX_LISTED)
        }
        _ => elements.join(" "),
    }
}

/// Returns the value at `pattern`, a path of fields separated by slashes.
pub(crate) fn at<'a>(object: &'a Value, pattern: &str) -> Option<&'a Value> {
    pattern.split('/').try_fold(object, |value, name| value.get(name))
}

/// Returns the text at `pattern`; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Value, pattern: &str) -> &'a str {
    at(object, pattern).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at `pattern`; 0 if it is missing.
pub(crate) fn number(object: &Value, pattern: &str) -> i64 {
    at(object, pattern).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns whether the value at `pattern` is `true`.
pub(crate) fn flag(object: &Value, pattern: &str) -> bool {
    at(object, pattern).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the texts in the list at `pattern`.
pub(crate) fn texts(object: &Value, pattern: &str) -> BTreeSet<String> {
    list(object, pattern).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the condition of type `kind`.
pub(crate) fn find_condition<'a>(conditions: &'a [Value], kind: &str) -> Option<&'a Value> {
    conditions.iter().find(|condition| text(condition, "type") == kind)
}

/// Returns the time of the last occurrence of an Event, in either API group.
pub(crate) fn event_time(event: &Value) -> Option<Timestamp> {
    let times = ["series/lastObservedTime", "lastTimestamp", "eventTime", "deprecatedLastTimestamp"];
    let mut times = times.into_iter().chain(["metadata/creationTimestamp"]).map(|field| text(event, field));
    times.find_map(|time| time.parse().ok())
}

/// Returns the statuses of all containers of a pod, in the order of their start.
pub(crate) fn container_statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    let fields = ["status/initContainerStatuses", "status/containerStatuses", "status/ephemeralContainerStatuses"];
    fields.into_iter().flat_map(|field| list(pod, field))
}

/// Returns the message of an event of either version; empty if it is missing.
pub(crate) fn event_message(event: &Value) -> &str {
    let messages = [text(event, "message"), text(event, "note")];
    messages.into_iter().find(|message| !message.is_empty()).unwrap_or_default()
}

/// Returns the elements of the list at `pattern`.
pub(crate) fn list<'a>(object: &'a Value, pattern: &str) -> &'a [Value] {
    at(object, pattern).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
