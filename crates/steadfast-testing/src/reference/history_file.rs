//! Parser of the history file. It converts the changes for the checker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::value::RawValue;
use steadfast_contract::{Change, History};

use crate::TestkitError;

/// One change, in the format of the reference.
#[derive(Debug, Deserialize)]
struct ChangeLine {
    revision: u64,
    at_ms: u64,
    resource: Resource,
    namespace: Option<String>,
    name: String,
    uid: String,
    /// Parsed only if the change belongs to the selected resource, since other objects may exceed the nesting limit
    /// of the parser.
    object: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    plural: String,
}

/// Selection of changes in a file of the history.
pub(super) struct ChangeSelection<'a> {
    /// Start of the recorded times.
    pub(super) started: SystemTime,
    pub(super) group: &'a str,
    pub(super) plural: &'a str,
}

impl ChangeSelection<'_> {
    /// Adds the changes of the resource to the current epoch of `history`. `text` is the content of a history file. Its
    /// changes up to the revision `after` are skipped.
    pub(super) fn read(&self, text: &str, after: u64, history: &mut History) -> Result<(), TestkitError> {
        let started = self.started.duration_since(UNIX_EPOCH)?;
        for (index, line) in text.lines().enumerate() {
            let line_error = |error| format!("line {} of the history: {error}", index + 1);
            let line: ChangeLine = serde_json::from_str(line).map_err(line_error)?;
            let is_selected = line.resource.group == self.group && line.resource.plural == self.plural;
            // Changes up to `after` are part of an earlier epoch and were read from its file.
            if is_selected && line.revision > after {
                history.push(change(line, started).map_err(line_error)?.in_epoch(history.epoch()));
            }
        }
        Ok(())
    }
}

/// Returns the revision of the newest change in the file `text`.
pub(super) fn last_revision(text: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Revision {
        revision: u64,
    }
    serde_json::from_str::<Revision>(text.lines().next_back()?).ok().map(|line| line.revision)
}

fn change(line: ChangeLine, started: Duration) -> serde_json::Result<Change> {
    let namespace = line.namespace.as_deref();
    let change = match line.object {
        Some(object) => {
            let object = serde_json::from_str(object.get())?;
            Change::new(line.revision, &line.uid, namespace, &line.name, object)
        }
        None => Change::deleted(line.revision, &line.uid, namespace, &line.name),
    };
    // Wall clocks may step back, so the subtraction saturates.
    Ok(change.at(Duration::from_millis(line.at_ms).saturating_sub(started)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HISTORY_FILE: &str = r#"
{"revision":7,"at_ms":1000500,"key":"k","deleted":false,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":{"data":{}},"previous":null}
{"revision":8,"at_ms":1000600,"key":"k","deleted":false,"resource":{"group":"","plural":"namespaces"},"namespace":null,"name":"d","uid":"n","object":{},"previous":null}
{"revision":9,"at_ms":1000700,"key":"k","deleted":true,"resource":{"group":"","plural":"configmaps"},"namespace":"d","name":"a","uid":"u","object":null,"previous":{"data":{}}}
"#;

    const SELECTION: ChangeSelection<'static> =
        ChangeSelection { started: UNIX_EPOCH, group: "", plural: "configmaps" };

    #[test]
    fn changes_of_resource_are_read_with_times() -> Result<(), TestkitError> {
        let mut history = History::new();
        let started = UNIX_EPOCH + Duration::from_secs(1000);
        ChangeSelection { started, ..SELECTION }.read(HISTORY_FILE.trim(), 0, &mut history)?;
        let at = Duration::from_millis;
        assert_eq!(last_revision(HISTORY_FILE.trim()), Some(9));
        let created = Change::new(7, "u", Some("d"), "a", serde_json::json!({ "data": {} })).at(at(500));
        assert_eq!(history.changes(), [created, Change::deleted(9, "u", Some("d"), "a").at(at(700))]);
        Ok(())
    }

    #[test]
    fn changes_after_restore_start_new_epoch() -> Result<(), TestkitError> {
        let mut history = History::new();
        SELECTION.read(HISTORY_FILE.trim(), 0, &mut history)?;
        history.restore(Duration::ZERO, 7);
        SELECTION.read(HISTORY_FILE.trim(), 7, &mut history)?;
        let history: Vec<_> = history.changes().iter().map(|change| (change.epoch, change.version)).collect();
        assert_eq!(history, [(0, 7), (0, 9), (1, 9)]);
        Ok(())
    }

    #[test]
    fn malformed_line_is_reported_by_number() {
        let message = SELECTION.read("{}", 0, &mut History::new()).expect_err("the line has no revision").to_string();
        assert!(message.starts_with("line 1 of the history: missing field"), "{message}");
    }
}
