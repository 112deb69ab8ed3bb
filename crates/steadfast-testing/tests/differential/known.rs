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
    Known { listed: "**Tables** have a name and an age.", forget: table_columns },
    Known { listed: "**Headers** that no client goes by", forget: |_, _, _| {} },
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
