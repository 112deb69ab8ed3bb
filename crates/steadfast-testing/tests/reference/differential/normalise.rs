//! Normalization of unavoidable differences: UIDs, versions, times, generated names, and the order of managers with
//! equal times.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::differential::execute::ServerResponse;

/// Number of random characters after the prefix of a generated name.
const SUFFIX_LENGTH: usize = 5;
const GENERATED_NAME_PREFIXES: &[&str] = &["made-", "Not_Valid-", LONG_PREFIX];
/// Remaining part of a prefix that is too long for a name.
const LONG_PREFIX: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
/// Times before this year were written by the script.
const FIRST_SERVER_YEAR: &str = "2026";

/// Returns the responses to a script in a form that is equal for both servers.
pub fn normalise(responses: &[ServerResponse]) -> Vec<Value> {
    let mut identifiers = ScriptIdentifiers::default();
    for response in responses {
        identifiers.collect(&response.body, false);
        for event in &response.events {
            identifiers.collect(&event["object"], event["type"] == "BOOKMARK");
        }
    }
    responses.iter().map(|response| identifiers.normalise_response(response)).collect()
}

#[derive(Default)]
struct ScriptIdentifiers {
    uids: HashMap<String, usize>,
    versions: BTreeSet<u64>,
}

impl ScriptIdentifiers {
    fn collect(&mut self, value: &Value, is_bookmark: bool) {
        let Value::Object(fields) = value else { return };
        let is_list = fields.contains_key("items") || fields.contains_key("rows");
        if let Some(metadata) = fields.get("metadata") {
            if let Some(uid) = metadata.get("uid").and_then(Value::as_str).filter(|uid| is_uid(uid)) {
                let next = self.uids.len();
                self.uids.entry(uid.to_owned()).or_insert(next);
            }
            let version = metadata.get("resourceVersion").and_then(Value::as_str);
            let version = version.and_then(|text| text.parse::<u64>().ok());
            if !is_list && !is_bookmark {
                self.versions.extend(version);
            }
        }
        for key in ["items", "rows"] {
            for item in fields.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.collect(item.get("object").unwrap_or(item), is_bookmark);
            }
        }
    }

    fn normalise_response(&self, response: &ServerResponse) -> Value {
        let events: Vec<Value> = response.events.iter().map(|event| self.normalise_value("", event)).collect();
        let body = self.normalise_value("", &response.body);
        json!({"code": response.code, "headers": response.headers, "body": body, "events": events})
    }

    fn normalise_value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let normalised = fields.iter().map(|(name, value)| (name.clone(), self.normalise_value(name, value)));
                normalised.collect::<Map<_, _>>().into()
            }
            Value::Array(items) if matches!(key, "managedFields" | "causes") => {
                let mut normalised: Vec<Value> = items.iter().map(|item| self.normalise_value(key, item)).collect();
                // Managers are ordered by the second of their last change. The order in conflicts with several managers
                // is random.
                if key == "managedFields" || items.iter().any(|item| item["reason"] == "FieldManagerConflict") {
                    normalised.sort_by_key(Value::to_string);
                }
                normalised.into()
            }
            Value::Array(items) => items.iter().map(|item| self.normalise_value(key, item)).collect(),
            Value::String(text) => self.normalise_text(key, text).into(),
            other => other.clone(),
        }
    }

    fn normalise_text(&self, key: &str, text: &str) -> String {
        if is_time(text) {
            return "<time>".to_owned();
        }
        match key {
            "resourceVersion" => {
                return text.parse().map_or_else(|_| text.to_owned(), |version| self.normalise_version(version));
            }
            "continue" if !text.is_empty() => return "<continue>".to_owned(),
            "cells" if is_age(text) => return "<age>".to_owned(),
            _ => {}
        }
        let mut replaced = without_suffixes(text);
        for (uid, number) in &self.uids {
            if replaced.contains(uid.as_str()) {
                replaced = replaced.replace(uid.as_str(), &format!("<uid {number}>"));
            }
        }
        if key == "message" { self.replace_versions(&replaced) } else { replaced }
    }

    /// Replaces a version by its rank among the versions of this script's objects.
    fn normalise_version(&self, version: u64) -> String {
        format!("<version {}>", self.versions.range(..=version).count())
    }

    /// Replaces the numbers in a sentence that are versions of this script's objects.
    fn replace_versions(&self, text: &str) -> String {
        let mut output = String::new();
        let mut digits = String::new();
        for character in text.chars().chain(['\0']) {
            if character.is_ascii_digit() {
                digits.push(character);
                continue;
            }
            match digits.parse() {
                // Another writer created this version.
                Ok(_) if output.ends_with(", current: ") => output.push_str("<current>"),
                // The number is part of a name, such as the name of an RFC, or part of a time in an example.
                Ok(_) if character == '-' || output.ends_with(['-', '\'']) => output.push_str(&digits),
                Ok(version) if self.versions.contains(&version) || precedes_version(&output) => {
                    output.push_str(&self.normalise_version(version));
                }
                _ => output.push_str(&digits),
            }
            digits.clear();
            if character != '\0' {
                output.push(character);
            }
        }
        output
    }
}

/// Returns `true` if the number after this text is a version.
fn precedes_version(words: &str) -> bool {
    let is_too_old_error = words.contains("too old resource version: ") && words.ends_with(" (");
    is_too_old_error || words.ends_with("in the precondition (") || words.ends_with("ResourceVersion in record (")
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_time(text: &str) -> bool {
    let has_time_format = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.ends_with('Z');
    has_time_format && text.get(..4).is_some_and(|year| year >= FIRST_SERVER_YEAR)
}

/// Returns `true` for an age such as `5s`, `2m3s` or `<unknown>`, with the small values of scripts.
fn is_age(text: &str) -> bool {
    let is_amount = |text: &str| text.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u16>().is_ok());
    is_amount(text)
        || text.split_once('m').is_some_and(|(minutes, rest)| minutes.parse::<u16>().is_ok() && is_amount(rest))
}

fn without_suffixes(text: &str) -> String {
    GENERATED_NAME_PREFIXES.iter().fold(text.to_owned(), |text, prefix| without_suffix(&text, prefix))
}

fn without_suffix(text: &str, prefix: &str) -> String {
    let mut output = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(prefix) {
        let is_suffix = |suffix: &str| suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        output.push_str(before);
        output.push_str(prefix);
        rest = match after.get(..SUFFIX_LENGTH).filter(|suffix| is_suffix(suffix)) {
            Some(_) => {
                output.push_str("<suffix>");
                &after[SUFFIX_LENGTH..]
            }
            None => after,
        };
    }
    output.push_str(rest);
    output
}

/// A year looks like a version, and an object of one of the servers may happen to have this version.
#[test]
fn years_and_examples_are_not_versions() {
    let message = "Invalid value: \"2020-01-01T00:00:00Z\": field is immutable, as '2020' and RFC-2020 are; not 2020";
    let body = json!({"message": message, "metadata": {"resourceVersion": "2020"}});
    let response = [ServerResponse { body, ..ServerResponse::default() }];
    assert_eq!(normalise(&response)[0]["body"]["message"], message.replace("not 2020", "not <version 1>"));
}
