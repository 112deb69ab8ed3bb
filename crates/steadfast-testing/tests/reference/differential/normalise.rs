//! Normalization of unavoidable differences: UIDs, versions, times, generated names, and the order of managers with
//! equal times.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use crate::differential::execute::ServerResponse;

/// Number of random characters after the prefix of a generated name.
const SUFFIX: usize = 5;
const PREFIXES: &[&str] = &["made-", "Not_Valid-", LONG];
/// Remaining part of a prefix that is too long for a name.
const LONG: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";
/// Times before this year were written by the script.
const OWN_YEARS: &str = "2026";

/// Returns the responses to a script in a form that is equal for both servers.
pub fn normalised(answers: &[ServerResponse]) -> Vec<Value> {
    let mut names = Names::default();
    for response in answers {
        names.learn(&response.body, false);
        for event in &response.events {
            names.learn(&event["object"], event["type"] == "BOOKMARK");
        }
    }
    answers.iter().map(|response| names.answer(response)).collect()
}

#[derive(Default)]
struct Names {
    uids: HashMap<String, usize>,
    versions: BTreeSet<u64>,
}

impl Names {
    fn learn(&mut self, value: &Value, bookmark: bool) {
        let Value::Object(fields) = value else { return };
        let list = fields.contains_key("items") || fields.contains_key("rows");
        if let Some(metadata) = fields.get("metadata") {
            if let Some(uid) = metadata.get("uid").and_then(Value::as_str).filter(|uid| is_uid(uid)) {
                let next = self.uids.len();
                self.uids.entry(uid.to_owned()).or_insert(next);
            }
            let version = metadata.get("resourceVersion").and_then(Value::as_str);
            let version = version.and_then(|text| text.parse::<u64>().ok());
            if !list && !bookmark {
                self.versions.extend(version);
            }
        }
        for key in ["items", "rows"] {
            for item in fields.get(key).and_then(Value::as_array).into_iter().flatten() {
                self.learn(item.get("object").unwrap_or(item), bookmark);
            }
        }
    }

    fn answer(&self, response: &ServerResponse) -> Value {
        let events: Vec<Value> = response.events.iter().map(|event| self.value("", event)).collect();
        json!({"code": response.code, "headers": response.headers, "body": self.value("", &response.body), "events": events})
    }

    fn value(&self, key: &str, value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let named = fields.iter().map(|(name, value)| (name.clone(), self.value(name, value)));
                named.collect::<Map<_, _>>().into()
            }
            Value::Array(items) if matches!(key, "managedFields" | "causes") => {
                let mut named: Vec<Value> = items.iter().map(|item| self.value(key, item)).collect();
                // Managers are ordered by the second of their last change. The order in conflicts with several managers
                // is random.
                if key == "managedFields" || items.iter().any(|item| item["reason"] == "FieldManagerConflict") {
                    named.sort_by_key(Value::to_string);
                }
                named.into()
            }
            Value::Array(items) => items.iter().map(|item| self.value(key, item)).collect(),
            Value::String(text) => self.text(key, text).into(),
            other => other.clone(),
        }
    }

    fn text(&self, key: &str, text: &str) -> String {
        if is_time(text) {
            return "<time>".to_owned();
        }
        match key {
            "resourceVersion" => return text.parse().map_or_else(|_| text.to_owned(), |version| self.version(version)),
            "continue" if !text.is_empty() => return "<continue>".to_owned(),
            "cells" if is_age(text) => return "<age>".to_owned(),
            _ => {}
        }
        let mut named = without_suffixes(text);
        for (uid, number) in &self.uids {
            if named.contains(uid.as_str()) {
                named = named.replace(uid.as_str(), &format!("<uid {number}>"));
            }
        }
        if key == "message" { self.with_versions(&named) } else { named }
    }

    /// Replaces a version by its rank among the versions of this script's objects.
    fn version(&self, version: u64) -> String {
        format!("<version {}>", self.versions.range(..=version).count())
    }

    /// Replaces the numbers in a sentence that are versions of this script's objects.
    fn with_versions(&self, text: &str) -> String {
        let mut named = String::new();
        let mut digits = String::new();
        for letter in text.chars().chain(['\0']) {
            if letter.is_ascii_digit() {
                digits.push(letter);
                continue;
            }
            match digits.parse() {
                // Another writer created this version.
                Ok(_) if named.ends_with(", current: ") => named.push_str("<current>"),
                // The number is part of a name, such as the name of an RFC, or part of a time in an example.
                Ok(_) if letter == '-' || named.ends_with(['-', '\'']) => named.push_str(&digits),
                Ok(version) if self.versions.contains(&version) || is_version(&named) => {
                    named.push_str(&self.version(version));
                }
                _ => named.push_str(&digits),
            }
            digits.clear();
            if letter != '\0' {
                named.push(letter);
            }
        }
        named
    }
}

/// Returns `true` if the number after this text is a version.
fn is_version(words: &str) -> bool {
    let oldest = words.contains("too old resource version: ") && words.ends_with(" (");
    oldest || words.ends_with("in the precondition (") || words.ends_with("ResourceVersion in record (")
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_time(text: &str) -> bool {
    let shaped = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.ends_with('Z');
    shaped && text.get(..4).is_some_and(|year| year >= OWN_YEARS)
}

/// Returns `true` for an age such as `5s`, `2m3s` or `<unknown>`, with the small values of scripts.
fn is_age(text: &str) -> bool {
    let amount = |text: &str| text.strip_suffix(['s', 'm']).is_some_and(|number| number.parse::<u16>().is_ok());
    amount(text) || text.split_once('m').is_some_and(|(minutes, rest)| minutes.parse::<u16>().is_ok() && amount(rest))
}

fn without_suffixes(text: &str) -> String {
    PREFIXES.iter().fold(text.to_owned(), |text, prefix| without_suffix(&text, prefix))
}

fn without_suffix(text: &str, prefix: &str) -> String {
    let mut named = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(prefix) {
        let is_suffix = |suffix: &str| suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        named.push_str(before);
        named.push_str(prefix);
        rest = match after.get(..SUFFIX).filter(|suffix| is_suffix(suffix)) {
            Some(_) => {
                named.push_str("<suffix>");
                &after[SUFFIX..]
            }
            None => after,
        };
    }
    named.push_str(rest);
    named
}

/// A year looks like a version, and an object of one of the servers may happen to have this version.
#[test]
fn years_and_examples_are_not_versions() {
    let message = "Invalid value: \"2020-01-01T00:00:00Z\": field is immutable, as '2020' and RFC-2020 are; not 2020";
    let body = json!({"message": message, "metadata": {"resourceVersion": "2020"}});
    let response = [ServerResponse { body, ..ServerResponse::default() }];
    assert_eq!(normalised(&response)[0]["body"]["message"], message.replace("not 2020", "not <version 1>"));
}
