//! What differs by intent: each entry stands in `docs/embedded-server.md`, and nothing else may differ.

use serde_json::Value;

use crate::script::Step;

/// Something that differs by intent.
pub struct Known {
    /// The words by which `docs/embedded-server.md` lists it.
    pub listed: &'static str,
    /// Takes it out of both answers where it is in play.
    pub forget: fn(&Step, &mut Value, &mut Value),
}

/// All that differs by intent.
pub const KNOWN: &[Known] = &[
    Known {
        listed: "**Tables** have the columns that a real server gives the common built-in kinds",
        forget: table_columns,
    },
    Known { listed: "**Bookmarks** come when they are due, and not more often", forget: bookmarks },
    Known { listed: "**No `storageVersionHash`** in discovery", forget: storage_version_hash },
    Known { listed: "**No `serverAddressByClientCIDRs`**", forget: addresses },
    Known { listed: "**Answers are JSON**", forget: representations },
    Known { listed: "**Parse errors** are told in other words", forget: parse_errors },
    Known { listed: "**Several complaints** come in the order of the alphabet", forget: order_of_complaints },
    Known { listed: "**What a patch made** is quoted", forget: quoted_patches },
];

/// Takes out of both answers what differs by intent.
pub fn forget(step: &Step, ours: &mut Value, theirs: &mut Value) {
    for known in KNOWN {
        (known.forget)(step, ours, theirs);
    }
}

/// Leaves of a table the columns that ours have.
fn table_columns(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for answer in [ours, theirs] {
        let table = &mut answer["body"];
        if table["kind"] != "Table" {
            continue;
        }
        let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
        let kept: Vec<bool> =
            columns.iter().map(|column| column["name"] == "Name" || column["name"] == "Age").collect();
        retain(&mut table["columnDefinitions"], &kept);
        for column in table["columnDefinitions"].as_array_mut().into_iter().flatten() {
            column["description"] = Value::Null;
        }
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            retain(&mut row["cells"], &kept);
        }
    }
}

fn retain(list: &mut Value, kept: &[bool]) {
    let mut kept = kept.iter();
    if let Some(list) = list.as_array_mut() {
        list.retain(|_| kept.next().copied().unwrap_or(true));
    }
}

/// Leaves the bookmark at the end of the initial events, and of that what is not an empty part of a typed object.
fn bookmarks(_: &Step, ours: &mut Value, theirs: &mut Value) {
    let told = |event: &Value| {
        event["type"] != "BOOKMARK"
            || event.pointer("/object/metadata/annotations/k8s.io~1initial-events-end").is_some()
    };
    for answer in [ours, theirs] {
        let Some(events) = answer["events"].as_array_mut() else { continue };
        events.retain(told);
        for event in events.iter_mut().filter(|event| event["type"] == "BOOKMARK") {
            if let Some(object) = event["object"].as_object_mut() {
                object.retain(|_, value| value.as_object().is_none_or(|fields| !fields.is_empty()));
            }
        }
    }
}

fn storage_version_hash(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for answer in [ours, theirs] {
        for resource in answer.pointer_mut("/body/resources").and_then(Value::as_array_mut).into_iter().flatten() {
            resource.as_object_mut().map(|fields| fields.remove("storageVersionHash"));
        }
    }
}

/// Leaves of a refusal of unreadable JSON what stands before the parser's own words.
fn parse_errors(_: &Step, ours: &mut Value, theirs: &mut Value) {
    let words = ["json parse error: ", " cannot be handled as a ", "continue key is not valid: "];
    for answer in [ours, theirs] {
        for words in words {
            cut_after(answer, words);
        }
    }
}

/// Leaves of a refusal what stands before the list of what would be taken.
fn representations(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for answer in [ours, theirs] {
        let refused = answer["code"] == 406 || answer["code"] == 415;
        let json_only =
            answer.pointer("/body/message").and_then(Value::as_str).is_some_and(|text| !text.contains("patch"));
        if refused && json_only {
            cut_after(answer, "Available representations: ");
            cut_after(answer, "accepted media types include: ");
        }
    }
}

fn cut_after(answer: &mut Value, words: &str) {
    if let Some(Value::String(message)) = answer.pointer_mut("/body/message")
        && let Some(place) = message.find(words)
    {
        message.truncate(place + words.len());
    }
}

/// Leaves of several complaints the causes alone, in one order.
fn order_of_complaints(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for answer in [ours, theirs] {
        let Some(causes) = answer.pointer_mut("/body/details/causes").and_then(Value::as_array_mut) else { continue };
        causes.sort_by_key(ToString::to_string);
        cut_after(answer, " is invalid: [");
    }
}

/// Leaves of a refused patch that it was refused.
fn quoted_patches(_: &Step, ours: &mut Value, theirs: &mut Value) {
    for answer in [ours, theirs] {
        for cause in answer.pointer_mut("/body/details/causes").and_then(Value::as_array_mut).into_iter().flatten() {
            if cause["field"] == "patch" {
                cause["message"] = Value::Null;
            }
        }
        cut_after(answer, " is invalid: patch: ");
    }
}

fn addresses(step: &Step, ours: &mut Value, theirs: &mut Value) {
    if step.path != "/api" {
        return;
    }
    for answer in [ours, theirs] {
        answer["body"]["serverAddressByClientCIDRs"] = Value::Null;
    }
}
