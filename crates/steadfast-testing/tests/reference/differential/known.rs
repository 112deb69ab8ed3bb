//! Intended differences. `docs/embedded-server.md` lists each of them, and no other difference is allowed.

use serde_json::Value;

use crate::differential::events::EVENTS;
use crate::differential::kinds::KINDS;
use crate::differential::script::Step;

/// Intended difference.
pub struct KnownDifference {
    /// Text of the entry in `docs/embedded-server.md`.
    pub entry: &'static str,
    /// Removes the difference from both responses, if it applies to the step.
    pub remove: fn(&Step, &mut Value, &mut Value),
}

/// All intended differences.
pub const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        entry: "**Tables** have the columns that a real server gives the common built-in kinds",
        remove: table_columns,
    },
    KnownDifference { entry: "**Bookmarks** are sent only when they are due", remove: bookmarks },
    KnownDifference { entry: "**No `storageVersionHash`** in discovery", remove: storage_version_hash },
    KnownDifference { entry: "**No `serverAddressByClientCIDRs`**", remove: addresses },
    KnownDifference { entry: "**Responses are JSON**", remove: representations },
    KnownDifference {
        entry: "**No admission; built-in kinds have few defaults and few validation rules.**",
        remove: default_fields,
    },
    KnownDifference { entry: "**`managedFields`** are written", remove: managers_of_defaulted_kinds },
    KnownDifference { entry: "**Events** are one collection", remove: managers_of_events },
    KnownDifference {
        entry: "**A dry run of a deletion** that would remove the last finalizer",
        remove: empty_objects,
    },
    KnownDifference { entry: "**No warnings**", remove: warnings },
    KnownDifference { entry: "**Parse errors** have other texts", remove: parse_errors },
    KnownDifference { entry: "**Several errors** are in the alphabetical order", remove: order_of_errors },
    KnownDifference { entry: "**The result of a patch** is quoted", remove: quoted_patches },
];

/// Removes the intended differences from both responses.
pub fn remove_known_differences(step: &Step, ours: &mut Value, theirs: &mut Value) {
    for difference in KNOWN_DIFFERENCES {
        (difference.remove)(step, ours, theirs);
    }
}

/// Keeps the table columns that both servers have, and drops the descriptions and formats of the columns.
fn table_columns(step: &Step, ours: &mut Value, theirs: &mut Value) {
    fn tables(response: &mut Value) -> Vec<&mut Value> {
        let Value::Object(response) = response else { return Vec::new() };
        let mut tables = Vec::new();
        for (part, value) in response.iter_mut() {
            match part.as_str() {
                "body" => tables.push(value),
                "events" => {
                    let events = value.as_array_mut().into_iter().flatten();
                    tables.extend(events.filter_map(|event| event.get_mut("object")));
                }
                _ => {}
            }
        }
        tables.retain(|table| table["kind"] == "Table");
        tables
    }
    let names = |tables: &[&mut Value]| -> Option<Vec<String>> {
        // Only the first event has the columns, and it may be a bookmark.
        let columns = tables.iter().find_map(|table| table["columnDefinitions"].as_array())?.iter();
        Some(columns.map(|column| column["name"].as_str().unwrap_or_default().to_owned()).collect())
    };
    // Tables of definitions must have all columns.
    let is_custom = step.path.contains(".steadfast.dev/");
    let (ours, theirs) = (tables(ours), tables(theirs));
    let (Some(our_columns), Some(their_columns)) = (names(&ours), names(&theirs)) else { return };
    for (tables, columns, other_columns) in
        [(ours, &our_columns, &their_columns), (theirs, &their_columns, &our_columns)]
    {
        let is_kept: Vec<bool> = columns.iter().map(|name| is_custom || other_columns.contains(name)).collect();
        for (number, table) in tables.into_iter().enumerate() {
            retain_flagged(&mut table["columnDefinitions"], &is_kept);
            for column in table["columnDefinitions"].as_array_mut().into_iter().flatten() {
                column["description"] = Value::Null;
                column["format"] = Value::Null;
            }
            for row in table["rows"].as_array_mut().into_iter().flatten() {
                retain_flagged(&mut row["cells"], &is_kept);
            }
            // Without rows, this field is sometimes null.
            if table["rows"].is_null() {
                table["rows"] = Value::Array(Vec::new());
            }
            // Watches share encoded events. An event repeats the columns if it was first encoded as the first event of
            // another watch.
            if number > 0 || table["rows"].as_array().is_some_and(|rows| rows.len() == 1) {
                table["columnDefinitions"] = Value::Null;
            }
        }
    }
}

fn retain_flagged(list: &mut Value, is_kept: &[bool]) {
    let mut is_kept = is_kept.iter();
    if let Some(list) = list.as_array_mut() {
        list.retain(|_| is_kept.next().copied().unwrap_or(true));
    }
}

/// Drops all bookmarks except the one at the end of the initial events, and the irrelevant parts of that bookmark.
fn bookmarks(_: &Step, ours: &mut Value, theirs: &mut Value) {
    let is_compared = |event: &Value| {
        let in_object = "/object/metadata/annotations/k8s.io~1initial-events-end";
        let in_row = "/object/rows/0/object/metadata/annotations/k8s.io~1initial-events-end";
        event["type"] != "BOOKMARK" || [in_object, in_row].iter().any(|pointer| event.pointer(pointer).is_some())
    };
    for response in [ours, theirs] {
        let Some(events) = response["events"].as_array_mut() else { continue };
        events.retain(is_compared);
        for event in events.iter_mut().filter(|event| event["type"] == "BOOKMARK") {
            if event["object"]["kind"] == "Table" {
                // The cells of a bookmark's object are not compared.
                event["object"]["rows"][0]["cells"] = Value::Null;
                continue;
            }
            if let Some(object) = event["object"].as_object_mut() {
                object.retain(|key, _| matches!(key.as_str(), "kind" | "apiVersion" | "metadata"));
            }
        }
    }
}

fn storage_version_hash(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for response in [ours, theirs] {
        for resource in response.pointer_mut("/body/resources").and_then(Value::as_array_mut).into_iter().flatten() {
            resource.as_object_mut().map(|fields| fields.remove("storageVersionHash"));
        }
    }
}

/// Keeps the part of a JSON parse error before the parser's own text.
fn parse_errors(_: &Step, ours: &mut Value, theirs: &mut Value) {
    let words = [
        "json parse error: ",
        "json: cannot unmarshal ",
        " cannot be handled as a ",
        "continue key is not valid: ",
        "error decoding patch: ",
        "Object 'Kind' is missing in ",
        " is registered for version ",
        "error converting YAML to JSON: ",
    ];
    for response in [ours, theirs] {
        // Messages about unknown fields must be equal.
        if !is_strict(&response["body"]["message"]) {
            for words in words {
                cut_after(response, words);
            }
        }
    }
}

/// Keeps the part of a rejection before the list of accepted types.
fn representations(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for response in [ours, theirs] {
        let is_rejected = response["code"] == 406 || response["code"] == 415;
        let json_only =
            response.pointer("/body/message").and_then(Value::as_str).is_some_and(|text| !text.contains("patch"));
        if is_rejected && json_only {
            cut_after(response, "Available representations: ");
            cut_after(response, "accepted media types include: ");
            cut_after(response, "the following media types are accepted: ");
        }
    }
}

fn cut_after(response: &mut Value, words: &str) {
    if let Some(Value::String(message)) = response.pointer_mut("/body/message")
        && let Some(start) = message.find(words)
    {
        message.truncate(start + words.len());
    }
}

/// Sorts the causes of several errors, and truncates the list of errors in the message.
fn order_of_errors(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for response in [ours, theirs] {
        let Some(causes) = response.pointer_mut("/body/details/causes").and_then(Value::as_array_mut) else { continue };
        causes.sort_by_key(ToString::to_string);
        cut_after(response, " is invalid: [");
    }
}

const STRICT_ERROR: &str = "strict decoding error: ";

fn is_strict(message: &Value) -> bool {
    message.as_str().is_some_and(|message| message.contains(STRICT_ERROR))
}

/// Keeps the start of the message about a rejected patch, and its list of unknown fields.
fn quoted_patches(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for response in [ours, theirs] {
        for cause in response.pointer_mut("/body/details/causes").and_then(Value::as_array_mut).into_iter().flatten() {
            if cause["field"] == "patch" {
                let message = cause["message"].as_str().unwrap_or_default();
                cause["message"] = message.find(STRICT_ERROR).map(|start| message[start..].to_owned()).into();
            }
        }
        cut_after(response, " is invalid: patch: ");
    }
}

fn warnings(step: &Step, ours: &mut Value, theirs: &mut Value) {
    let concerns_fields = |response: &Value| {
        let warning = response.pointer("/headers/warning").and_then(Value::as_str).unwrap_or_default();
        ["metadata.", "unknown field ", "duplicate field "].iter().any(|words| warning.contains(words))
    };
    if step.path.contains(".steadfast.dev/") || concerns_fields(ours) || concerns_fields(theirs) {
        return;
    }
    for response in [ours, theirs] {
        response["headers"].as_object_mut().map(|headers| headers.remove("warning"));
    }
}

fn is_of_defaulted_kind(step: &Step) -> bool {
    let is_of = |plural: &str| step.path.split(['/', '?']).any(|part| part == plural);
    KINDS.iter().chain(&EVENTS).any(|kind| kind.has_server_defaults() && is_of(kind.plural))
}

/// Removes the default fields that only the reference sets, except metadata, from its managers' fields.
fn managers_of_defaulted_kinds(step: &Step, ours: &mut Value, theirs: &mut Value) {
    fn walk(ours: &Value, theirs: &mut Value) {
        match (ours, theirs) {
            (Value::Object(ours), Value::Object(theirs)) => {
                for (key, theirs) in theirs {
                    let nothing = Value::Null;
                    let ours = ours.get(key).unwrap_or(&nothing);
                    if key == "managedFields" { managers(ours, theirs) } else { walk(ours, theirs) }
                }
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                ours.iter().zip(theirs).for_each(|(ours, theirs)| walk(ours, theirs));
            }
            _ => {}
        }
    }
    fn managers(ours: &Value, theirs: &mut Value) {
        let Value::Array(theirs) = theirs else { return };
        theirs.retain_mut(|entry| {
            let is_same_manager =
                |other: &&Value| ["manager", "operation", "subresource"].iter().all(|key| other[key] == entry[key]);
            let ours = ours.as_array().into_iter().flatten().find(is_same_manager).map(|ours| ours["fieldsV1"].clone());
            let is_in_ours = ours.is_some();
            if let (Some(ours), Some(fields)) = (&ours, entry["fieldsV1"].as_object_mut()) {
                fields.retain(|key, _| key == "f:metadata" || ours.get(key).is_some());
                fields
                    .iter_mut()
                    .filter(|(key, _)| *key != "f:metadata")
                    .for_each(|(key, field)| retain_common_fields(&ours[key], field));
            }
            is_in_ours || entry["fieldsV1"].get("f:metadata").is_some()
        });
    }
    if is_of_defaulted_kind(step) {
        walk(ours, theirs);
    }
}

/// Keeps only the success of a dry-run deletion if a real server returns an object without fields.
fn empty_objects(step: &Step, ours: &mut Value, theirs: &mut Value) {
    let is_dry = step.path.contains("dryRun=All") || step.body.contains("\"dryRun\"");
    let is_empty = theirs["body"]["kind"] != "Status"
        && theirs["body"]["metadata"].as_object().is_none_or(serde_json::Map::is_empty)
        && theirs["body"]["items"].is_null();
    if step.method == "DELETE" && is_dry && is_empty && theirs["code"] == 200 && ours["code"] == 200 {
        theirs["body"] = ours["body"].clone();
    }
}

/// Removes the managers of events.
fn managers_of_events(step: &Step, ours: &mut Value, theirs: &mut Value) {
    if step.verb != "event" {
        return;
    }
    let remove_managers = |event: &mut Value| {
        event.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("managedFields"));
    };
    for response in [ours, theirs] {
        let body = &mut response["body"];
        remove_managers(body);
        body.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten().for_each(remove_managers);
    }
}

/// Removes the fields of `theirs` that `ours` lacks, at all depths.
fn retain_common_fields(ours: &Value, theirs: &mut Value) {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            theirs.retain(|key, _| ours.contains_key(key));
            theirs.iter_mut().for_each(|(key, theirs)| retain_common_fields(&ours[key], theirs));
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.iter().zip(theirs).for_each(|(ours, theirs)| retain_common_fields(ours, theirs));
        }
        _ => {}
    }
}

/// Removes the default fields that only the reference sets, except metadata, from its objects.
fn default_fields(step: &Step, ours: &mut Value, theirs: &mut Value) {
    if !is_of_defaulted_kind(step) {
        return;
    }
    let kind = |body: &Value| {
        body["kind"].as_str().map(|kind| KINDS.iter().chain(&EVENTS).any(|known_kind| known_kind.kind == kind))
    };
    match ours["body"].get("items").and_then(Value::as_array) {
        Some(items) => {
            let theirs = theirs["body"].get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
            items.iter().zip(theirs).for_each(|(ours, theirs)| retain_fields_of_ours(ours, theirs));
        }
        None if kind(&ours["body"]) == Some(true) => retain_fields_of_ours(&ours["body"], &mut theirs["body"]),
        None => {}
    }
    let events = theirs["events"].as_array_mut().into_iter().flatten();
    for (ours, theirs) in ours["events"].as_array().into_iter().flatten().zip(events) {
        if let Some(theirs) = theirs.get_mut("object").filter(|_| kind(&ours["object"]) == Some(true)) {
            retain_fields_of_ours(&ours["object"], theirs);
        }
    }
}

/// Removes the fields of the reference's object that the embedded server's object lacks.
fn retain_fields_of_ours(ours: &Value, theirs: &mut Value) {
    for (key, theirs) in theirs.as_object_mut().into_iter().flatten() {
        if key != "metadata" {
            retain_common_fields(ours.get(key).unwrap_or(&Value::Null), theirs);
        }
    }
    let is_object = ours.get("metadata").is_some_and(|metadata| metadata.get("uid").is_some());
    if let Some(fields) = theirs.as_object_mut().filter(|_| is_object) {
        fields.retain(|key, _| ours.get(key).is_some());
    }
}

fn addresses(step: &Step, ours: &mut Value, theirs: &mut Value) {
    if step.path != "/api" {
        return;
    }
    for response in [ours, theirs] {
        response["body"]["serverAddressByClientCIDRs"] = Value::Null;
    }
}
